package jsapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// asked returns the configuration that reaches the broker when nats.go creates the stream.
func asked(t *testing.T, config jetstream.StreamConfig) StreamConfig {
	t.Helper()
	payload, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	request, refusal := Decode[StreamRequest](payload)
	if refusal != nil {
		t.Fatalf("%s: %v", payload, refusal)
	}
	return request.StreamConfig
}

// told returns what the client decodes from the answer.
func told[T any](t *testing.T, answer any) (got T) {
	t.Helper()
	data, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return got
}

// filled returns nats-server's answer to a request with a name only.
func filled(change func(*jetstream.StreamConfig)) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"ORDERS"}, MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1,
		MaxMsgSize: -1, Replicas: 1, Duplicates: 2 * time.Minute,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func TestAStreamConfigIsReturnedAsRequested(t *testing.T) {
	full := filled(func(c *jetstream.StreamConfig) {
		c.Description, c.Subjects = "of customers", []string{"orders.>", "returns.*"}
		c.MaxConsumers, c.MaxMsgs, c.MaxBytes, c.MaxAge, c.MaxMsgSize = 7, 1000, 1<<30, time.Hour, 4096
		c.Duplicates, c.NoAck, c.DenyDelete, c.DenyPurge, c.AllowDirect = time.Minute, true, true, true, true
		c.ConsumerLimits = jetstream.StreamConsumerLimits{InactiveThreshold: time.Minute, MaxAckPending: 10}
		c.Metadata = map[string]string{"team": "sales"}
	})
	for name, test := range map[string]struct{ asked, want jetstream.StreamConfig }{
		"only a name":       {jetstream.StreamConfig{Name: "ORDERS"}, filled(nil)},
		"everything":        {full, full},
		"what it was told":  {filled(nil), filled(nil)},
		"three replicas":    {filled(func(c *jetstream.StreamConfig) { c.Replicas = 3 }), filled(func(c *jetstream.StreamConfig) { c.Replicas = 3 })},
		"in memory":         {jetstream.StreamConfig{Name: "ORDERS", Storage: jetstream.MemoryStorage}, filled(func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage })},
		"acks before disks": {jetstream.StreamConfig{Name: "ORDERS", PersistMode: jetstream.AsyncPersistMode}, filled(func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode })},
		"short age":         {jetstream.StreamConfig{Name: "ORDERS", MaxAge: time.Second}, filled(func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = time.Second, time.Second })},
		"odd limits":        {jetstream.StreamConfig{Name: "ORDERS", MaxMsgs: -5, MaxBytes: -2}, filled(nil)},
		"the usual start":   {jetstream.StreamConfig{Name: "ORDERS", FirstSeq: 1}, filled(func(c *jetstream.StreamConfig) { c.FirstSeq = 1 })},
		"a work queue":      {jetstream.StreamConfig{Name: "ORDERS", Retention: jetstream.WorkQueuePolicy}, filled(func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy })},
		"by interest":       {jetstream.StreamConfig{Name: "ORDERS", Retention: jetstream.InterestPolicy}, filled(func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })},
		"a later start":     {jetstream.StreamConfig{Name: "ORDERS", FirstSeq: 100}, filled(func(c *jetstream.StreamConfig) { c.FirstSeq = 100 })},
		"a transform": {
			jetstream.StreamConfig{Name: "ORDERS", SubjectTransform: &jetstream.SubjectTransformConfig{Source: "a", Destination: "b"}},
			filled(func(c *jetstream.StreamConfig) {
				c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "a", Destination: "b"}
			}),
		},
		"batches": {
			jetstream.StreamConfig{Name: "ORDERS", AllowAtomicPublish: true}, filled(func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true }),
		},
		"counters": {
			jetstream.StreamConfig{Name: "ORDERS", AllowMsgCounter: true}, filled(func(c *jetstream.StreamConfig) { c.AllowMsgCounter = true }),
		},
		"TTLs": {
			jetstream.StreamConfig{Name: "ORDERS", AllowMsgTTL: true}, filled(func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }),
		},
		"markers": {
			jetstream.StreamConfig{Name: "ORDERS", SubjectDeleteMarkerTTL: time.Minute, DenyPurge: true},
			filled(func(c *jetstream.StreamConfig) {
				c.SubjectDeleteMarkerTTL, c.AllowMsgTTL, c.AllowRollup = time.Minute, true, true
			}),
		},
		"empty placement": {jetstream.StreamConfig{Name: "ORDERS", Placement: &jetstream.Placement{}}, filled(nil)},
		"told elsewhere": {jetstream.StreamConfig{Name: "ORDERS", Metadata: map[string]string{
			"_nats.ver": "2.15.2", "_nats.level": "5", "_nats.req.level": "0"}}, filled(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			c := asked(t, test.asked)
			if err := c.Normalize(); err != nil {
				t.Fatal(err)
			}
			if got := told[jetstream.StreamConfig](t, c); !reflect.DeepEqual(got, test.want) {
				t.Errorf("at once:\n got %+v\nwant %+v", got, test.want)
			}
			// The Topic must round-trip through etcd.
			var kept coordination.TopicSpec
			data, err := json.Marshal(c.TopicSpec())
			if err == nil {
				err = json.Unmarshal(data, &kept)
			}
			if err != nil {
				t.Fatal(err)
			}
			again := StreamOf(c.Name, &kept)
			if got := told[jetstream.StreamConfig](t, again); !reflect.DeepEqual(got, test.want) {
				t.Errorf("as a topic:\n got %+v\nwant %+v", got, test.want)
			}
			// Requesting the configuration that was answered must change nothing.
			if err := again.Normalize(); err != nil {
				t.Fatal(err)
			}
			if x, y := again.TopicSpec(), c.TopicSpec(); !reflect.DeepEqual(told[any](t, x), told[any](t, y)) {
				t.Errorf("asked again: %+v, then %+v", y, x)
			}
		})
	}
}

func TestUnsupportedStreamSettingsAreNamed(t *testing.T) {
	set := func(change func(*jetstream.StreamConfig)) jetstream.StreamConfig {
		c := jetstream.StreamConfig{Name: "ORDERS"}
		change(&c)
		return c
	}
	seen := map[string]bool{}
	for _, test := range []struct {
		config jetstream.StreamConfig
		names  string
	}{
		{set(func(c *jetstream.StreamConfig) { c.Placement = &jetstream.Placement{Tags: []string{"ssd"}} }), "placement"},
		{set(func(c *jetstream.StreamConfig) {
			c.Mirror = &jetstream.StreamSource{Name: "X", External: &jetstream.ExternalStream{APIPrefix: "$JS.other.API"}}
		}), "mirror: external"},
		{set(func(c *jetstream.StreamConfig) {
			c.Sources = []*jetstream.StreamSource{{Name: "X", External: &jetstream.ExternalStream{APIPrefix: "$JS.other.API"}}}
		}), "sources: external"},
	} {
		c := asked(t, test.config)
		err := c.Normalize()
		if err == nil || err.ErrCode != 10052 || !strings.HasPrefix(err.Description, test.names+" is not supported yet") {
			t.Errorf("%s: %v", test.names, err)
		}
		seen[test.names] = true
	}
	durable := StreamConfig{Name: "ORDERS", Sources: []*StreamSource{{Name: "X", Consumer: []byte(`{"name":"c"}`)}}} // nats.go lacks it
	if err := durable.Normalize(); err == nil || !strings.HasPrefix(err.Description, "sources: consumer is not supported yet") {
		t.Errorf("a durable consumer of a source: %v", err)
	}
	durable = StreamConfig{Name: "ORDERS", Mirror: &StreamSource{Name: "X", Consumer: []byte(`{"name":"c"}`)}}
	if err := durable.Normalize(); err == nil || !strings.HasPrefix(err.Description, "mirror: consumer is not supported yet") {
		t.Errorf("a durable consumer of a mirror: %v", err)
	}
	seen["sources: consumer"], seen["mirror: consumer"] = true, true
	for _, feature := range unsupportedStream {
		if !seen[feature.setting] {
			t.Errorf("no test asks for %s", feature.setting)
		}
	}
	if _, err := Decode[StreamRequest]([]byte(`{"name":"ORDERS","encrypt":true}`)); err == nil || !strings.Contains(err.Description, "encrypt") {
		t.Errorf("a setting of tomorrow: %v", err)
	}
}

// TestNoStreamSettingIsForgotten: every field of nats.go's configuration is returned or refused. It
// fails when a newer nats.go adds a field.
func TestNoStreamSettingIsForgotten(t *testing.T) {
	ours := map[string]bool{"template_owner": true} // unknown to nats-server, too: Decode refuses it
	for field := range reflect.TypeFor[StreamConfig]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		ours[name] = true
	}
	for field := range reflect.TypeFor[jetstream.StreamConfig]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !ours[name] {
			t.Errorf("%s (%s) is nothing to us", field.Name, name)
		}
	}
}

func TestImpossibleStreams(t *testing.T) {
	for why, c := range map[string]StreamConfig{
		"stream name is required":               {Name: "a.b"},
		"stream name is too long":               {Name: strings.Repeat("x", 256)},
		"description is too long":               {Name: "S", Description: strings.Repeat("x", 4097)},
		"metadata exceeds":                      {Name: "S", Metadata: map[string]string{"k": strings.Repeat("x", 128<<10)}},
		"api level":                             {Name: "S", Metadata: map[string]string{"_nats.req.level": "5"}},
		"invalid retention":                     {Name: "S", Retention: "forever"},
		"invalid storage":                       {Name: "S", Storage: "tape"},
		"async persist mode":                    {Name: "S", Storage: "memory", PersistMode: "async"},
		"with atomic batch publish":             {Name: "S", AllowAtomic: true, PersistMode: "async"},
		"max age needs":                         {Name: "S", MaxAge: time.Millisecond},
		"max age can not":                       {Name: "S", MaxAge: -1},
		"duplicates window can not be larger":   {Name: "S", MaxAge: time.Second, DuplicateWindow: time.Minute},
		"duplicates window can not be negative": {Name: "S", DuplicateWindow: -1},
		"duplicates window needs":               {Name: "S", DuplicateWindow: 1},
		"consumer limits":                       {Name: "S", ConsumerLimits: ConsumerLimits{InactiveThreshold: -1}},
		"first sequence can be":                 {Name: "S", FirstSequence: 1<<62 + 1},
		"stream transform source":               {Name: "S", SubjectTransform: &SubjectTransform{"a..b", "c"}},
		"wildcard index":                        {Name: "S", SubjectTransform: &SubjectTransform{"a.*", "$2"}},
		"keeps no messages under $X.b":          {Name: "S", Subjects: []string{"*.a"}, SubjectTransform: &SubjectTransform{">", "$X.b.>"}},
		"marker TTL must not be":                {Name: "S", SubjectDeleteMarkerTTL: -1},
		"marker TTL must be at least":           {Name: "S", SubjectDeleteMarkerTTL: time.Second - 1},
		"with subject_transform":                {Name: "S", SubjectDeleteMarkerTTL: time.Second, SubjectTransform: &SubjectTransform{"a", "b"}},
		"replicas count":                        {Name: "S", Replicas: -1},
		"maximum replicas":                      {Name: "S", Replicas: 6},
		"invalid subject":                       {Name: "S", Subjects: []string{"a..b"}},
		"duplicate subjects":                    {Name: "S", Subjects: []string{"a", "a"}},
		"257 subjects":                          {Name: "S", Subjects: slices.Repeat([]string{"a"}, 257)}, // they are not compared
		`"a.>" overlaps with "*.b"`:             {Name: "S", Subjects: []string{"a.>", "*.b"}},
	} {
		if err := c.Normalize(); err == nil || !strings.Contains(err.Description, why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestAStreamUpdateKeepsFixedSettings(t *testing.T) {
	base := func(change func(*StreamConfig)) *StreamConfig {
		c := StreamConfig{Name: "S", DenyDelete: true, DenyPurge: true, AllowMessageTTL: true}
		change(&c)
		if err := c.Normalize(); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	from := base(func(*StreamConfig) {})
	for why, to := range map[string]*StreamConfig{
		"name":      base(func(c *StreamConfig) { c.Name = "T" }),
		"storage":   base(func(c *StreamConfig) { c.Storage = memoryStorage }),
		"persist":   base(func(c *StreamConfig) { c.PersistMode = asyncPersist }),
		"deletes":   base(func(c *StreamConfig) { c.DenyDelete = false }),
		"disabled":  base(func(c *StreamConfig) { c.AllowMessageTTL = false }),
		"purge":     base(func(c *StreamConfig) { c.DenyPurge = false }),
		"workqueue": base(func(c *StreamConfig) { c.Retention = workQueueRetention }),
		"(allows)": base(func(c *StreamConfig) {
			c.MaxAge, c.Subjects, c.Retention = time.Hour, []string{"x"}, interestRetention
		}),
	} {
		err := CheckStreamUpdate(from, to)
		if allowed := why == "(allows)"; allowed != (err == nil) || err != nil && !strings.Contains(err.Description, why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}
