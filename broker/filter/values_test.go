package filter

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// payloads are messages whose fields the test reads. Some are valid JSON, and others are damaged.
var payloads = []string{
	``, ` `, `7`, `"a"`, `[1]`, `{}`, `null`, `{"a":1}`, `{"a":{"b":2,"c":"x"},"d":null}`,
	`{"a":{"b":{"c":3}},"b":[1,{"a":2}],"c":true}`, `{"a":1,"a":2,"b":{"c":1},"b":{"c":2}}`,
	`{"\u0061":5,"b":"\u00e9\n"}`, `{"a":{"b":1 broken},"d":4}`, `{"d":1.5e3,"c":[1,"a":2}`,
	`{"a":[1,],"d":2}`, `{"d":tru,"a":1}`, `{"a":1`, `{"a":"open`, `{"b":{"c":"x"},"a":01,"d":-2}`,
}

// TestSeveralValuesAreThoseOfEachExpression: by one pass over the payload, whatever it is cut to.
func TestSeveralValuesAreThoseOfEachExpression(t *testing.T) {
	texts := []string{"json.a", "json.b", "json.a.b", "json.a.b.c", `json["a"]`, "json.b.c", "json.d",
		"json.c", "subject", "time", "headers.K", "json.d + 1.0", "json.a > 1.0", "json"}
	for n := range 3 * maxPaths { // more than one pass finds
		texts = append(texts, fmt.Sprintf("json.x%d", n), fmt.Sprintf("json.y%d.z", n))
	}
	var all []*Expression
	for _, text := range texts {
		e, err := CompileExpression(text)
		testutil.Must(t, err)
		all = append(all, e)
	}
	header := []byte("NATS/1.0\r\nK: v\r\n\r\n")
	for range 10 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		of := all[:rand.IntN(len(all)+1)]
		v := NewValues(of)
		for _, payload := range payloads {
			for end := range len(payload) + 1 {
				r := &Record{Subject: []byte("s"), Time: 7, Header: header, Data: []byte(payload[:end])}
				got := v.Append(nil, r)
				for n, e := range of {
					if want := e.Value(r); !reflect.DeepEqual(got[n], want) {
						t.Fatalf("%s of %s: %+v, and alone %+v", e, r.Data, got[n], want)
					}
				}
			}
		}
	}
}
