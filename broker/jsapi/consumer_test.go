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

// askedConsumer returns the configuration that reaches the broker when nats.go creates the
// consumer.
func askedConsumer(t *testing.T, config jetstream.ConsumerConfig) ConsumerConfig {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"stream_name": "ORDERS", "config": config, "action": "create"})
	if err != nil {
		t.Fatal(err)
	}
	request, refusal := Decode[ConsumerRequest](payload)
	if refusal != nil {
		t.Fatalf("%s: %v", payload, refusal)
	}
	name := config.Name
	if name == "" {
		name = config.Durable
	}
	if err := request.CheckSubject(&Request{Call: ConsumerCreate, Stream: []byte("ORDERS"), Consumer: []byte(name), Filter: []byte(config.FilterSubject)}); err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	return request.Config
}

func ordersStream(t *testing.T, limits ConsumerLimits) *StreamConfig {
	t.Helper()
	c := StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, ConsumerLimits: limits}
	if err := c.Normalize(); err != nil {
		t.Fatal(err)
	}
	return &c
}

// filledConsumer returns nats-server's answer to a request with a durable name only.
func filledConsumer(change func(*jetstream.ConsumerConfig)) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Name: "billing", Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second,
		MaxDeliver: -1, MaxWaiting: 512, MaxAckPending: 1000,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func TestAConsumerConfigIsReturnedAsRequested(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	type config = jetstream.ConsumerConfig
	full := filledConsumer(func(c *config) {
		c.Description, c.Metadata, c.HeadersOnly, c.MemoryStorage, c.Replicas = "invoices", map[string]string{"a": "b"}, true, true, 1
		c.DeliverPolicy, c.OptStartSeq, c.FilterSubjects = jetstream.DeliverByStartSequencePolicy, 5, []string{"orders.eu.>", "orders.us"}
		c.AckPolicy, c.AckWait, c.MaxDeliver, c.MaxAckPending, c.BackOff = jetstream.AckAllPolicy, time.Second, 3, -1, []time.Duration{time.Second, time.Minute}
		c.MaxWaiting, c.MaxRequestBatch, c.MaxRequestExpires, c.MaxRequestMaxBytes, c.InactiveThreshold = 7, 8, time.Hour, 9, time.Minute
	})
	for name, test := range map[string]struct {
		limits      ConsumerLimits
		asked, want config
	}{
		"only a name":      {asked: config{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy}, want: filledConsumer(nil)},
		"everything":       {asked: full, want: full},
		"what it was told": {asked: filledConsumer(nil), want: filledConsumer(nil)},
		"one filter":       {asked: config{Durable: "billing", FilterSubject: "orders.eu"}, want: filledConsumer(func(c *config) { c.FilterSubject = "orders.eu" })},
		"a list of one":    {asked: config{Durable: "billing", FilterSubjects: []string{"orders.eu"}}, want: filledConsumer(func(c *config) { c.FilterSubjects = []string{"orders.eu"} })},
		"pushed": {asked: config{Durable: "billing", DeliverSubject: "inbox", DeliverGroup: "g", FlowControl: true, IdleHeartbeat: time.Second, RateLimit: 8000, HeadersOnly: true}, want: filledConsumer(func(c *config) {
			c.DeliverSubject, c.DeliverGroup, c.FlowControl, c.IdleHeartbeat, c.RateLimit, c.HeadersOnly, c.MaxWaiting = "inbox", "g", true, time.Second, 8000, true, 0
		})},
		"pinned": {asked: config{Durable: "billing", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A", "b_/=-9"}}, want: filledConsumer(func(c *config) {
			c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{"A", "b_/=-9"}, 2*time.Minute
		})},
		"prioritized": {asked: config{Durable: "billing", PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"A"}, PinnedTTL: -1}, want: filledConsumer(func(c *config) {
			c.PriorityPolicy, c.PriorityGroups = jetstream.PriorityPolicyPrioritized, []string{"A"}
		})},
		"no acks": {asked: config{Durable: "billing", AckPolicy: jetstream.AckNonePolicy}, want: filledConsumer(func(c *config) {
			c.AckPolicy, c.AckWait, c.MaxAckPending = jetstream.AckNonePolicy, 0, 0
		})},
		"backoff": {asked: config{Durable: "billing", MaxDeliver: 4, BackOff: []time.Duration{time.Second}}, want: filledConsumer(func(c *config) {
			c.MaxDeliver, c.BackOff, c.AckWait = 4, []time.Duration{time.Second}, time.Second
		})},
		"from a time": {asked: config{Durable: "billing", DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start}, want: filledConsumer(func(c *config) {
			c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &start
		})},
		"new":  {asked: config{Durable: "billing", DeliverPolicy: jetstream.DeliverNewPolicy}, want: filledConsumer(func(c *config) { c.DeliverPolicy = jetstream.DeliverNewPolicy })},
		"last": {asked: config{Durable: "billing", DeliverPolicy: jetstream.DeliverLastPolicy}, want: filledConsumer(func(c *config) { c.DeliverPolicy = jetstream.DeliverLastPolicy })},
		"last of each": {asked: config{Durable: "billing", DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: ">"}, want: filledConsumer(func(c *config) {
			c.DeliverPolicy, c.FilterSubject = jetstream.DeliverLastPerSubjectPolicy, ">"
		})},
		"by the stream's limits": {ConsumerLimits{time.Minute, 10}, config{Durable: "billing"}, filledConsumer(func(c *config) {
			c.InactiveThreshold, c.MaxAckPending = time.Minute, 10
		})},
	} {
		t.Run(name, func(t *testing.T) {
			if test.asked.AckPolicy == jetstream.AckExplicitPolicy != (test.want.AckPolicy == jetstream.AckExplicitPolicy) {
				t.Fatal("the test contradicts itself")
			}
			c := askedConsumer(t, test.asked)
			if err := c.Normalize(ordersStream(t, test.limits)); err != nil {
				t.Fatal(err)
			}
			if got := told[config](t, c); !reflect.DeepEqual(got, test.want) {
				t.Errorf("at once:\n got %+v\nwant %+v", got, test.want)
			}
			spec := told[coordination.SubscriptionSpec](t, c.SubscriptionSpec())
			again := ConsumerOf("billing", &spec)
			if got := told[config](t, again); !reflect.DeepEqual(got, test.want) {
				t.Errorf("as a subscription:\n got %+v\nwant %+v", got, test.want)
			}
			if err := again.Normalize(ordersStream(t, test.limits)); err != nil {
				t.Fatal(err)
			}
			if !again.Equal(&c) {
				t.Errorf("asked again: %+v, then %+v", c, again)
			}
		})
	}
}

func TestAConsumerWithoutADurableName(t *testing.T) {
	c := askedConsumer(t, jetstream.ConsumerConfig{
		Name: "watch_1", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 3, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
	})
	if err := c.Normalize(ordersStream(t, ConsumerLimits{})); err != nil {
		t.Fatal(err)
	}
	got := told[jetstream.ConsumerConfig](t, c)
	if got.Durable != "" || got.Name != "watch_1" || got.InactiveThreshold != 5*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestAManifestsSubscriptionAsAConsumer: clients see defaults for what a manifest leaves out.
func TestAManifestsSubscriptionAsAConsumer(t *testing.T) {
	got := ConsumerOf("billing", &coordination.SubscriptionSpec{})
	want := filledConsumer(func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy })
	if got := told[jetstream.ConsumerConfig](t, got); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	got = ConsumerOf("billing", &coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromOffset}})
	if got.StartSequence != 1 {
		t.Errorf("offset 0 is shown as sequence %d", got.StartSequence)
	}
}

func TestUnsupportedConsumerSettingsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for names, c := range map[string]ConsumerConfig{
		"ack_policy: flow_control": {AckPolicy: ackFlowControl},
		"direct":                   {Direct: true},
		"sourcing":                 {Sourcing: true},
	} {
		c.Name = "billing"
		err := c.Normalize(ordersStream(t, ConsumerLimits{}))
		if err == nil || err.ErrCode != 10012 || !strings.HasPrefix(err.Description, names+" is not supported yet") {
			t.Errorf("%s: %v", names, err)
		}
		seen[names] = true
	}
	for _, feature := range unsupportedConsumer {
		if !seen[feature.setting] {
			t.Errorf("no test asks for %s", feature.setting)
		}
	}
	ours := map[string]bool{}
	for field := range reflect.TypeFor[ConsumerConfig]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		ours[name] = true
	}
	for field := range reflect.TypeFor[jetstream.ConsumerConfig]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !ours[name] {
			t.Errorf("%s (%s) is nothing to us", field.Name, name)
		}
	}
}

func TestImpossibleConsumers(t *testing.T) {
	then := time.Now()
	for _, test := range []struct {
		code   int
		config ConsumerConfig
	}{
		{10052, ConsumerConfig{Name: "a.b"}},
		{10132, ConsumerConfig{Name: "a", Durable: "b"}},
		{10181, ConsumerConfig{AckPolicy: "maybe"}},
		{10182, ConsumerConfig{ReplayPolicy: "backwards"}},
		{10094, ConsumerConfig{DeliverPolicy: "some"}},
		{10094, ConsumerConfig{DeliverPolicy: DeliverFromSequence}},
		{10094, ConsumerConfig{DeliverPolicy: deliverFromTime}},
		{10094, ConsumerConfig{DeliverPolicy: deliverFromTime, StartTime: &then, StartSequence: 1}},
		{10094, ConsumerConfig{StartSequence: 1}},
		{10094, ConsumerConfig{StartTime: &then}},
		{10094, ConsumerConfig{DeliverPolicy: deliverLastBySubject}},
		{10107, ConsumerConfig{Description: strings.Repeat("x", 4097)}},
		{10135, ConsumerConfig{Metadata: map[string]string{"k": strings.Repeat("x", 128<<10)}}},
		{10185, ConsumerConfig{Metadata: map[string]string{"_nats.req.level": "5"}}},
		{10133, ConsumerConfig{Replicas: -1}},
		{10126, ConsumerConfig{Replicas: 3}},
		{10183, ConsumerConfig{AckWait: -1}},
		{10184, ConsumerConfig{Backoff: []time.Duration{-1}}},
		{10116, ConsumerConfig{MaxDeliver: 1, Backoff: []time.Duration{1, 2}}},
		{10086, ConsumerConfig{RateLimit: 1}},
		{10089, ConsumerConfig{FlowControl: true}},
		{10088, ConsumerConfig{Heartbeat: 1}},
		{10115, ConsumerConfig{MaxRequestExpires: 1}},
		{10121, ConsumerConfig{MaxAckPending: 11}},
		{10153, ConsumerConfig{InactiveThreshold: time.Hour}},
		{10136, ConsumerConfig{FilterSubject: "a", FilterSubjects: []string{"b"}}},
		{10138, ConsumerConfig{FilterSubjects: []string{"a.*", "*.b"}}},
		{10139, ConsumerConfig{FilterSubjects: []string{""}}},
		{10012, ConsumerConfig{FilterSubjects: slices.Repeat([]string{"a"}, coordination.MaxFilterSubjects+1)}}, // they are not compared
		{10052, ConsumerConfig{FilterSubject: "a..b"}},
		{10094, ConsumerConfig{PriorityPolicy: "first", PriorityGroups: []string{"a"}}},
		{10159, ConsumerConfig{PriorityPolicy: priorityOverflow}},
		{10161, ConsumerConfig{PriorityPolicy: priorityOverflow, PriorityGroups: []string{"a", ""}}},
		{10162, ConsumerConfig{PriorityPolicy: priorityOverflow, PriorityGroups: []string{"a.b"}}},
		{10162, ConsumerConfig{PriorityPolicy: priorityOverflow, PriorityGroups: []string{strings.Repeat("a", 17)}}},
		{10012, ConsumerConfig{PriorityPolicy: priorityOverflow, PriorityGroups: slices.Repeat([]string{"a"}, 65)}},
		{10178, ConsumerConfig{PriorityPolicy: priorityOverflow, PriorityGroups: []string{"a"}, DeliverSubject: "inbox"}},
		{10196, ConsumerConfig{PriorityGroups: []string{"a"}}},
		{10197, ConsumerConfig{PriorityTimeout: 1}},
	} {
		c := test.config
		if c.Name == "" {
			c.Name = "billing"
		}
		if err := c.Normalize(ordersStream(t, ConsumerLimits{time.Minute, 10})); err == nil || err.ErrCode != test.code {
			t.Errorf("%+v: %v, want %d", test.config, err, test.code)
		}
	}
}

// TestTheConsumersOfAWorkQueue: each message has one consumer, which acknowledges it by itself.
func TestTheConsumersOfAWorkQueue(t *testing.T) {
	stream := ordersStream(t, ConsumerLimits{})
	stream.Replicas, stream.Retention = 3, workQueueRetention
	normal := func(c ConsumerConfig) (ConsumerConfig, *Error) {
		if c.AckPolicy == "" {
			c.AckPolicy = AckExplicit
		}
		c.Name = "billing"
		err := c.Normalize(stream)
		return c, err
	}
	for _, test := range []struct {
		code   int
		config ConsumerConfig
		others []ConsumerConfig
	}{
		{0, ConsumerConfig{}, nil},
		{0, ConsumerConfig{Replicas: 3, FilterSubject: "a.*"}, []ConsumerConfig{{FilterSubject: "a.b.c"}, {FilterSubjects: []string{"b", "c"}}}},
		{10084, ConsumerConfig{AckPolicy: ackNone}, nil},
		{10098, ConsumerConfig{AckPolicy: ackNone, DeliverSubject: "inbox"}, nil},
		{10098, ConsumerConfig{AckPolicy: ackAll}, nil},
		{10099, ConsumerConfig{}, []ConsumerConfig{{FilterSubject: "a"}}},
		{10100, ConsumerConfig{FilterSubject: "a"}, []ConsumerConfig{{}}},
		{10100, ConsumerConfig{FilterSubjects: []string{"b", "a.>"}}, []ConsumerConfig{{FilterSubject: "c"}, {FilterSubjects: []string{"d", "*.x"}}}},
		{10101, ConsumerConfig{DeliverPolicy: deliverNew}, nil},
		{10134, ConsumerConfig{Replicas: 1}, nil},
	} {
		c, err := normal(test.config)
		if err == nil {
			err = c.CheckQueued(test.others)
		}
		if (err == nil) != (test.code == 0) || err != nil && err.ErrCode != test.code {
			t.Errorf("%+v beside %+v: %v, want %d", test.config, test.others, err, test.code)
		}
	}
	stream.Retention = limitsRetention
	if _, err := normal(ConsumerConfig{AckPolicy: ackNone, Replicas: 1}); err != nil {
		t.Errorf("of a stream by limits: %v", err)
	}
}

// TestReplicasOfAConsumer: a consumer's cursor has as many replicas as its stream, even if fewer
// are requested.
func TestReplicasOfAConsumer(t *testing.T) {
	stream := ordersStream(t, ConsumerLimits{})
	stream.Replicas = 3
	for asked, want := range map[int]int{0: 0, 1: 3, 2: 3, 3: 3} {
		c := ConsumerConfig{Name: "billing", Durable: "billing", Replicas: asked}
		if err := c.Normalize(stream); err != nil || c.Replicas != want {
			t.Errorf("%d asked: %d, %v", asked, c.Replicas, err)
		}
		spec := c.SubscriptionSpec()
		if told := ConsumerOf("billing", &spec); told.Replicas != want {
			t.Errorf("%d asked: told %d", asked, told.Replicas)
		}
	}
	c := ConsumerConfig{Name: "billing", Replicas: 4}
	if err := c.Normalize(stream); err == nil || err.ErrCode != 10126 {
		t.Errorf("more than the stream has: %v", err)
	}
}

func TestARequestIsParsedFromItsSubject(t *testing.T) {
	at := func(subject string) *Request {
		r, ok := ParseSubject([]byte(subject))
		if !ok || r.Call == Unknown {
			t.Fatalf("%s: %+v", subject, r)
		}
		return &r
	}
	const here, durable, nameless = "$JS.API.CONSUMER.CREATE.S.c", "$JS.API.CONSUMER.DURABLE.CREATE.S.c", "$JS.API.CONSUMER.CREATE.S"
	for _, test := range []struct {
		code    int
		subject string
		request ConsumerRequest
	}{
		{0, here, ConsumerRequest{Stream: "S"}},
		{0, here, ConsumerRequest{Stream: "S", Config: ConsumerConfig{Durable: "c"}, Action: UpdateConsumer}},
		{0, here + ".a.>", ConsumerRequest{Stream: "S", Config: ConsumerConfig{FilterSubject: "a.>"}}},
		{0, durable, ConsumerRequest{Stream: "S", Config: ConsumerConfig{Durable: "c"}}},
		{0, nameless, ConsumerRequest{Stream: "S"}},
		{10056, here, ConsumerRequest{Stream: "T"}},
		{10025, here, ConsumerRequest{Stream: "S", Action: "replace"}},
		{10127, here + `\x`, ConsumerRequest{Stream: "S"}},
		{10017, here, ConsumerRequest{Stream: "S", Config: ConsumerConfig{Durable: "d"}}},
		{10018, durable, ConsumerRequest{Stream: "S"}},
		{10020, nameless, ConsumerRequest{Stream: "S", Config: ConsumerConfig{Durable: "d"}}},
		{10131, here + ".a", ConsumerRequest{Stream: "S", Config: ConsumerConfig{FilterSubject: "b"}}},
		{10137, here + ".a", ConsumerRequest{Stream: "S", Config: ConsumerConfig{FilterSubjects: []string{"a", "b"}}}},
	} {
		err := test.request.CheckSubject(at(test.subject))
		if code := codeOf(err); code != test.code {
			t.Errorf("%s %+v: %v, want %d", test.subject, test.request, err, test.code)
		}
		if named := test.subject != nameless; err == nil && named != (test.request.Config.Name == "c") {
			t.Errorf("%s: named %q", test.subject, test.request.Config.Name)
		}
	}
}

func codeOf(err *Error) int {
	if err == nil {
		return 0
	}
	return err.ErrCode
}

func TestAConsumerUpdateKeepsFixedSettings(t *testing.T) {
	then := time.Now()
	base := func(change func(*ConsumerConfig)) *ConsumerConfig {
		c := ConsumerConfig{Name: "c", Durable: "c", DeliverPolicy: DeliverFromSequence, StartSequence: 4}
		change(&c)
		if err := c.Normalize(ordersStream(t, ConsumerLimits{})); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	from := base(func(*ConsumerConfig) {})
	for why, to := range map[string]*ConsumerConfig{
		"deliver policy": base(func(c *ConsumerConfig) { c.DeliverPolicy, c.StartSequence, c.StartTime = deliverFromTime, 0, &then }),
		"start sequence": base(func(c *ConsumerConfig) { c.StartSequence = 5 }),
		"ack policy":     base(func(c *ConsumerConfig) { c.AckPolicy = ackAll }),
		"max waiting":    base(func(c *ConsumerConfig) { c.MaxWaiting = 3 }),
		"durable":        base(func(c *ConsumerConfig) { c.Durable = "" }),
		"storage":        base(func(c *ConsumerConfig) { c.MemoryStorage = true }),
		"(allows)":       base(func(c *ConsumerConfig) { c.FilterSubject, c.AckWait, c.MaxDeliver = "orders.eu", time.Hour, 2 }),
	} {
		err := CheckConsumerUpdate(from, to)
		if allowed := why == "(allows)"; allowed != (err == nil) || err != nil && !strings.Contains(err.Description, why) {
			t.Errorf("%s: %v", why, err)
		}
		if from.Equal(to) {
			t.Errorf("%s: no change is seen", why)
		}
	}
}
