package jsapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestLevelsOfConfigurations: answers show the level that a configuration requires. Sent back, it
// is the configuration of before.
func TestLevelsOfConfigurations(t *testing.T) {
	for _, test := range []struct {
		level  string
		config StreamConfig
	}{
		{"0", StreamConfig{Name: "S"}},
		{"1", StreamConfig{Name: "S", AllowMessageTTL: true}},
		{"1", StreamConfig{Name: "S", SubjectDeleteMarkerTTL: time.Second}},
		{"2", StreamConfig{Name: "S", PersistMode: asyncPersist}},
		{"2", StreamConfig{Name: "S", AllowCounter: true, AllowMessageTTL: true}},
		{"4", StreamConfig{Name: "S", AllowBatched: true}},
	} {
		test.config.Metadata = map[string]string{"team": "sales"}
		shown := test.config.Versioned()
		want := map[string]string{"team": "sales", "_nats.ver": ServerVersion, "_nats.level": "4", "_nats.req.level": test.level}
		if !reflect.DeepEqual(shown.Metadata, want) {
			t.Errorf("%+v is shown with %v", test.config, shown.Metadata)
		}
		if len(test.config.Metadata) != 1 {
			t.Errorf("the configuration has changed: %v", test.config.Metadata)
		}
		if back, err := userMetadata(shown.Metadata); err != nil || !reflect.DeepEqual(back, test.config.Metadata) {
			t.Errorf("sent back: %v, %v", back, err)
		}
	}
	pause := time.Now()
	for _, test := range []struct {
		level  string
		config ConsumerConfig
	}{
		{"0", ConsumerConfig{PauseUntil: &time.Time{}, PriorityPolicy: priorityNone}},
		{"1", ConsumerConfig{PauseUntil: &pause}},
		{"1", ConsumerConfig{PriorityGroups: []string{"A"}}},
		{"4", ConsumerConfig{AckPolicy: ackFlowControl}},
	} {
		shown := test.config.Versioned()
		if got := shown.Metadata[requiredLevelMetadata]; got != test.level {
			t.Errorf("%+v requires level %s, want %s", test.config, got, test.level)
		}
		if !shown.Equal(&test.config) {
			t.Errorf("%+v is another consumer when it is shown", test.config)
		}
	}
	for text, want := range map[string]bool{"0": true, "4": true, "5": false, "": false, "x": false, "-1": false} {
		if LevelServed([]byte(text)) != want {
			t.Errorf("level %q: %v", text, !want)
		}
	}
}

// TestBucketsAreRefusedByTheirName: clients make buckets of streams, so a refusal speaks of buckets
// and of all that they lack.
func TestBucketsAreRefusedByTheirName(t *testing.T) {
	for name, test := range map[string]struct {
		config StreamConfig
		says   string
	}{
		"a bucket":          {StreamConfig{Name: "KV_prices", Subjects: []string{"$KV.prices.>"}, Placement: &Placement{Cluster: "c"}, Sources: []*StreamSource{{Name: "A", External: json.RawMessage(`{"api":"x"}`)}}}, "key-value buckets need placement and sources: external, not supported yet: prices can't be made"},
		"an object store":   {StreamConfig{Name: "OBJ_files", Subjects: []string{"$O.files.C.>"}, Placement: &Placement{Cluster: "c"}}, "object stores need placement, not supported yet: files can't be made"},
		"a stream":          {StreamConfig{Name: "KV_prices", Subjects: []string{"prices"}, Placement: &Placement{Cluster: "c"}, Sources: []*StreamSource{{Name: "A", External: json.RawMessage(`{"api":"x"}`)}}}, "placement and sources: external are not supported yet"},
		"a single setting":  {StreamConfig{Name: "S", Placement: &Placement{Cluster: "c"}}, "placement is not supported yet"},
		"more than a pair":  {StreamConfig{Name: "S", Placement: &Placement{Cluster: "c"}, Sources: []*StreamSource{{Name: "A", External: json.RawMessage(`{"api":"x"}`), Consumer: json.RawMessage(`{"name":"x"}`)}}}, "placement, sources: external and sources: consumer are not supported yet"},
		"nothing to refuse": {StreamConfig{Name: "S"}, ""},
	} {
		err, got := test.config.Normalize(), ""
		if err != nil {
			got = err.Description
		}
		if got != test.says {
			t.Errorf("%s: %q, want %q", name, got, test.says)
		}
		if strings.Contains(got, "leave it out") {
			t.Errorf("%s: it advises what the user can't do: %q", name, got)
		}
	}
}

// TestAStartBeforeTimeBegan: some clients send the year 1 for "from the start". It is the first
// time that a record can have, as is any time before 1970.
func TestAStartBeforeTimeBegan(t *testing.T) {
	for sent, want := range map[string]string{
		"0001-01-01T00:00:00Z": "1970-01-01T00:00:00Z",
		"1969-12-31T23:59:59Z": "1970-01-01T00:00:00Z",
		"2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z",
		"9999-01-01T00:00:00Z": "2262-04-11T23:47:16.854775807Z",
	} {
		start, err := time.Parse(time.RFC3339, sent)
		if err != nil {
			t.Fatal(err)
		}
		c := ConsumerConfig{Name: "c", DeliverPolicy: deliverFromTime, StartTime: &start}
		if err := c.Normalize(&StreamConfig{Replicas: 1}); err != nil {
			t.Errorf("%s: %v", sent, err)
			continue
		}
		if got := c.SubscriptionSpec().Start.Time.Format(time.RFC3339Nano); got != want {
			t.Errorf("%s: it starts at %s, want %s", sent, got, want)
		}
		again := ConsumerOf("c", new(c.SubscriptionSpec()))
		if !sameTime(again.StartTime, c.StartTime) {
			t.Errorf("%s is told as %v", sent, again.StartTime)
		}
	}
}
