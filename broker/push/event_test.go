package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/carillon-mq/carillon/broker/coordination"
)

var from = origin{cluster: "shop/main", topic: "orders", key: "T1"}

func recordOf(header, payload string) *item {
	if header != "" {
		header = "NATS/1.0\r\n" + header + "\r\n"
	}
	return &item{offset: 17, time: time.Date(2026, 1, 31, 12, 0, 0, 5, time.UTC).UnixNano(), subject: "orders.eu.\u00fc", header: len(header), data: []byte(header + payload)}
}

// events returns the events of a request.
func events(t *testing.T, header http.Header, body []byte) (all []event.Event) {
	t.Helper()
	var err error
	switch kind, _, _ := strings.Cut(header.Get("Content-Type"), ";"); kind {
	case event.ApplicationCloudEventsJSON:
		all = make([]event.Event, 1)
		err = json.Unmarshal(body, &all[0])
	case event.ApplicationCloudEventsBatchJSON:
		err = json.Unmarshal(body, &all)
	default:
		t.Fatalf("content type %q", header.Get("Content-Type"))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, e := range all {
		if err := e.Validate(); err != nil {
			t.Errorf("%v: %s", err, body)
		}
	}
	return all
}

func TestARecordIsAnEvent(t *testing.T) {
	push := &coordination.Push{Format: coordination.CloudEventsStructured}
	for _, c := range []struct {
		header, payload string
		base64          bool
		want            map[string]string
	}{
		{"", "\x00\xff", true, map[string]string{"datacontenttype": "application/octet-stream"}},
		{"Content-Type: application/json\r\n", `{"a":1}`, false, map[string]string{"datacontenttype": "application/json"}},
		{"Content-Type: application/json\r\n", `{"a":`, true, map[string]string{"datacontenttype": "application/json"}},
		{"Content-Type: text/plain; charset=utf-8\r\n", "h\u00e4", false, map[string]string{"datacontenttype": "text/plain; charset=utf-8"}},
		{"Content-Type: text/plain\r\n", "\xff", true, nil},
		{"Content-Type: a b c\r\n", "x", true, map[string]string{"datacontenttype": "application/octet-stream"}},
		{"Traceparent: 00-ab\r\nX-Tenant: 9\r\nData: 1\r\nSequence: 1\r\nce-id: 5\r\n", "", true, map[string]string{"traceparent": "00-ab", "id": "T1/17"}},
		{"ce-specversion: 1.0\r\nce-id: %61%22\r\nce-source: /shop\r\nce-type: paid\r\nce-tenant: 9\r\nce-time: never\r\n", "x", true,
			map[string]string{"id": "a\"", "source": "/shop", "type": "paid", "tenant": "9", "time": "2026-01-31T12:00:00.000000005Z"}},
	} {
		header, body := encode(push, from, []*item{recordOf(c.header, c.payload)})
		e := events(t, header, body)[0]
		if string(e.Data()) != c.payload || e.DataBase64 != c.base64 {
			t.Errorf("%q with %q: the data is %q, in base64: %v", c.header, c.payload, e.Data(), e.DataBase64)
		}
		want := map[string]string{
			"id": "T1/17", "source": "/carillon/shop/main/topics/orders", "type": "dev.carillon.record", "subject": "orders.eu.\u00fc", "time": "2026-01-31T12:00:00.000000005Z",
			"sequence": "00000000000000000017",
		}
		for key, value := range c.want {
			want[key] = value
		}
		for key, value := range want {
			var got string
			switch key {
			case "id":
				got = e.ID()
			case "source":
				got = e.Source()
			case "type":
				got = e.Type()
			case "subject":
				got = e.Subject()
			case "time":
				got = e.Time().Format(time.RFC3339Nano)
			case "datacontenttype":
				got = e.DataContentType()
			default:
				got, _ = e.Extensions()[key].(string)
			}
			if got != value {
				t.Errorf("%q: %s is %q, want %q", c.header, key, got, value)
			}
		}
		for _, not := range []string{"xtenant", "x-tenant", "data"} {
			if _, is := e.Extensions()[not]; is {
				t.Errorf("%q: there is an extension %s", c.header, not)
			}
		}
	}
}

func TestBinaryEventsHaveTheirAttributesInHeaders(t *testing.T) {
	header, body := encode(&coordination.Push{}, from, []*item{recordOf("Content-Type: text/plain\r\nTraceparent: a\"b %\r\n", "hello")})
	want := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"T1/17"}, "Ce-Source": {"/carillon/shop/main/topics/orders"}, "Ce-Type": {"dev.carillon.record"},
		"Ce-Subject": {"orders.eu.%C3%BC"}, "Ce-Time": {"2026-01-31T12:00:00.000000005Z"}, "Content-Type": {"text/plain"},
		"Ce-Sequence": {"00000000000000000017"}, "Ce-Traceparent": {"a%22b%20%25"},
	}
	if string(body) != "hello" || len(header) != len(want) {
		t.Errorf("sent %q with %v", body, header)
	}
	for name, value := range want {
		if header.Get(name) != value[0] {
			t.Errorf("%s is %q, want %q", name, header.Get(name), value[0])
		}
	}
	if again := unescape(header.Get("Ce-Traceparent")); again != `a"b %` {
		t.Errorf("it is read as %q", again)
	}
}

func TestABatchIsAListOfEvents(t *testing.T) {
	header, body := encode(&coordination.Push{Format: coordination.CloudEventsStructured, Batch: &coordination.PushBatch{MaxRecords: 5}}, from,
		[]*item{recordOf("", "a"), recordOf("", "b")})
	all := events(t, header, body)
	if len(all) != 2 || string(all[0].Data()) != "a" || string(all[1].Data()) != "b" {
		t.Errorf("sent %s", body)
	}
}

func TestARawRequestIsTheRecord(t *testing.T) {
	header, body := encode(&coordination.Push{Format: coordination.RawPush}, from,
		[]*item{recordOf("Content-Type: text/plain\r\nX-Tenant: 9\r\nHost: evil\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\nb\xffd: 1\r\nNats-Msg-Id: 7\r\nbad: \x01\r\n", "hello")})
	if !bytes.Equal(body, []byte("hello")) || header.Get("X-Tenant") != "9" || header.Get("Nats-Msg-Id") != "7" || header.Get("Content-Type") != "text/plain" ||
		header.Get("Carillon-Subject") != "orders.eu.%C3%BC" || header.Get("Carillon-Offset") != "17" || header.Get("Carillon-Topic") != "orders" {
		t.Errorf("sent %q with %v", body, header)
	}
	for _, not := range []string{"Host", "Transfer-Encoding", "Content-Length", "Bad"} {
		if _, is := header[not]; is {
			t.Errorf("a record set %s", not)
		}
	}
}

func TestBodiesAndHeadersOfEventsAreBounded(t *testing.T) {
	push := &coordination.Push{Format: coordination.CloudEventsStructured}
	for _, payload := range []string{strings.Repeat("\x01", 1<<20), strings.Repeat("\u2028<", 1<<18), strings.Repeat("<&", 1<<19)} {
		header, body := encode(push, from, []*item{recordOf("Content-Type: text/plain\r\n", payload)})
		if len(body) > 4*len(payload)/3+2048 {
			t.Errorf("%d bytes became %d", len(payload), len(body))
		}
		if all := events(t, header, body); string(all[0].Data()) != payload {
			t.Error("the data is another")
		}
	}
	html := `"` + strings.Repeat("<", 1<<20) + `"`
	if _, body := encode(push, from, []*item{recordOf("Content-Type: application/json\r\n", html)}); len(body) > len(html)+2048 {
		t.Errorf("%d bytes of JSON became %d", len(html), len(body))
	}
	many := ""
	for n := range 100 {
		many += fmt.Sprintf("x%d: %s\r\n", n, strings.Repeat(" \u00fc", 100))
	}
	push.Format = coordination.CloudEventsBinary
	header, _ := encode(push, from, []*item{recordOf(many, "a")})
	size := 0
	for name, values := range header {
		size += len(name) + len(values[0])
	}
	if size > rawHeader+2048 || header.Get("Ce-Sequence") == "" {
		t.Errorf("the headers have %d bytes", size)
	}
}
