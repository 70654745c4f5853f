package view

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/trigger"
)

func compiled(t testing.TB, s Spec) *View {
	t.Helper()
	v, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// hotRooms is the example of the API page.
func hotRooms() Spec {
	return Spec{
		Filter:   Filter{Subjects: []string{"sensors.>"}, Where: "json.celsius > -40.0"},
		By:       "attributes.room",
		Window:   Window{Tumbling: time.Minute, Time: "json.at", Lateness: 10 * time.Second, Idle: 30 * time.Second},
		Values:   map[string]string{"mean": "mean(json.celsius)", "readings": "count()"},
		Triggers: []trigger.Spec{{Name: "hot", When: "mean > 30.0", Until: "mean < 28.0"}},
	}
}

// TestAWrongSpecIsRefused: the error names the field, and says what to do.
func TestAWrongSpecIsRefused(t *testing.T) {
	compiled(t, hotRooms())
	many := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all["v"+strings.Repeat("x", i)] = "count()"
		}
		return all
	}
	for want, change := range map[string]func(s *Spec){
		`filter.subjects: "a..b" is no subject`:            func(s *Spec) { s.Filter.Subjects = []string{"a..b"} },
		"filter.subjects: 33 patterns":                     func(s *Spec) { s.Filter.Subjects = make([]string, 33) },
		`filter.where: filter "json."`:                     func(s *Spec) { s.Filter.Where = "json." },
		`by: by "json."`:                                   func(s *Spec) { s.By = "json." },
		`window.time: time "jsn.at"`:                       func(s *Spec) { s.Window.Time = "jsn.at" },
		"window: choose one of tumbling":                   func(s *Spec) { s.Window.Session = time.Second },
		"window.sliding: say the size":                     func(s *Spec) { s.Window.Tumbling, s.Window.Sliding = 0, &Sliding{Size: time.Second} },
		"window: a slide of 2s is longer":                  func(s *Spec) { s.Window.Tumbling, s.Window.Sliding = 0, &Sliding{time.Second, 2 * time.Second} },
		"window: each record would be in 1000":             func(s *Spec) { s.Window.Tumbling, s.Window.Sliding = 0, &Sliding{time.Second, time.Millisecond} },
		"window: a window of 1µs":                          func(s *Spec) { s.Window.Tumbling = time.Microsecond },
		"window: time, lateness and idle are about":        func(s *Spec) { s.Window.Tumbling = 0 },
		"window.lateness: -1s":                             func(s *Spec) { s.Window.Lateness = -time.Second },
		"window.idle: 2562047h47m16.854775807s":            func(s *Spec) { s.Window.Idle = 1<<63 - 1 },
		"values: 0 of them":                                func(s *Spec) { s.Values = nil },
		"values: 33 of them":                               func(s *Spec) { s.Values = many(33) },
		"values.mean: aggregate":                           func(s *Spec) { s.Values["mean"] = "average(json.x)" },
		`values.mean: "count() as a, sum(json.x)" is`:      func(s *Spec) { s.Values["mean"] = "count() as a, sum(json.x)" },
		`values.a b: aggregate "count() as a b": column 1`: func(s *Spec) { s.Values["a b"] = "count()" },
		"values: aggregate": func(s *Spec) {
			s.Values = map[string]string{"a": "sum(" + strings.Repeat(" ", 3000) + "json.a)", "b": "sum(" + strings.Repeat(" ", 3000) + "json.b)"}
		},
		"triggers: 17 of them":              func(s *Spec) { s.Triggers = make([]trigger.Spec, 17) },
		`triggers: two have the name "hot"`: func(s *Spec) { s.Triggers = append(s.Triggers, s.Triggers[0]) },
		"trigger hot: when: filter":         func(s *Spec) { s.Triggers[0].When = "median > 1.0" },
	} {
		s := hotRooms()
		change(&s)
		if _, err := Compile(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\nerror: %v", want, err)
		}
	}
}

// TestAChangedSpecHasAnotherState: but for triggers and the idle time, which decide no result.
func TestAChangedSpecHasAnotherState(t *testing.T) {
	b, err := compiled(t, hotRooms()).NewShard().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[error]func(s *Spec){
		nil:      func(s *Spec) { s.Triggers, s.Window.Idle = nil, 0 },
		errOther: func(s *Spec) { s.Window.Lateness = 0 },
	} {
		s := hotRooms()
		change(&s)
		if _, err := compiled(t, s).DecodeShard(b); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
