package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestSizesAndAges(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "512": 512, "1Ki": 1024, "1KiB": 1024, "1k": 1000, "1.5Gi": 3 << 29, "10GB": 10e9, "2Ti": 2 << 40, "100B": 100,
	} {
		var s sizeFlag
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s is %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "Gi", "1e3", "0x10", "1PB", "nan", "infTi", "1_000", "1 Gi", "99999999Ti"} {
		var s sizeFlag
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d bytes", text, s)
		}
	}
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1ms": time.Millisecond} {
		if got, err := parseAge(text); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0s", "-1h", "7", "7D", "1.5d", "40000d", "1e9h"} {
		if got, err := parseAge(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
	for want, d := range map[string]time.Duration{"7d": 168 * time.Hour, "24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "2m": 2 * time.Minute, "30s": 30 * time.Second, "1m30s": 90 * time.Second, "10h": 10 * time.Hour} {
		if got := durationText(d); got != want {
			t.Errorf("%v is written as %s, want %s", d, got, want)
		}
	}
	for want, n := range map[string]uint64{"0 B": 0, "1023 B": 1023, "1 KiB": 1024, "1.5 KiB": 1536, "10 GiB": 10 << 30, "2048 TiB": 2 << 50} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is written as %s, want %s", n, got, want)
		}
	}
}

func TestStartPositionsAreParsed(t *testing.T) {
	for text, want := range map[string]from{
		"latest": {policy: jetstream.DeliverNewPolicy}, "earliest": {policy: jetstream.DeliverAllPolicy},
		"12": {policy: jetstream.DeliverByStartSequencePolicy, sequence: 12}, "#12": {policy: jetstream.DeliverByStartSequencePolicy, sequence: 12},
	} {
		if got, err := parseFrom(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := parseFrom("2026-01-31T12:00:00+01:00"); err != nil || !got.time.Equal(time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("a time: %+v, %v", got, err)
	}
	if got, err := parseFrom("2h"); err != nil || time.Since(*got.time).Round(time.Minute) != 2*time.Hour {
		t.Errorf("two hours ago: %+v, %v", got, err)
	}
	for _, text := range []string{"", "0", "-1", "now", "yesterday", "2026-01-31"} {
		if got, err := parseFrom(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, tc := range []struct {
		first, last uint64
		newest      int
		want        from
	}{
		{1, 100, 10, from{policy: jetstream.DeliverByStartSequencePolicy, sequence: 91}},
		{95, 100, 10, from{policy: jetstream.DeliverAllPolicy}},
		{1, 3, 10, from{policy: jetstream.DeliverAllPolicy}},
		{0, 0, 10, from{policy: jetstream.DeliverAllPolicy}},
		{1, 100, 0, from{policy: jetstream.DeliverByStartSequencePolicy, sequence: 101}},
		{0, 0, 0, from{policy: jetstream.DeliverAllPolicy}},
	} {
		if got := newestFrom(jetstream.StreamState{FirstSeq: tc.first, LastSeq: tc.last}, tc.newest); got != tc.want {
			t.Errorf("the newest %d of #%d to #%d: %+v", tc.newest, tc.first, tc.last, got)
		}
	}
}

var (
	manifest = admin.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "orders", UID: "u"}
	made     = time.Now().Add(-3*time.Hour - time.Minute)
)

// examples are a Topic that is well, one that is orphaned, one that is not served, and one that
// another server has.
func examples() []topicView {
	orphan, since := manifest, time.Now().Add(-49*time.Hour)
	orphan.Orphaned = &since
	led := []admin.Shard{{Epoch: 3, Leader: &admin.Broker{ID: "b1", Name: "main-1"}, Status: admin.Status{Served: true}, Want: 2, InSync: 2, MinInSync: 2, Replicas: []admin.Replica{
		{Broker: admin.Broker{ID: "b0", Name: "main-0"}, InSync: true}, {Broker: admin.Broker{ID: "b1", Name: "main-1"}, InSync: true},
	}}}
	lacking := admin.Status{Served: true, Reason: admin.UnderReplicated, Why: "shard 0 of topic old lacks some"}
	lacks := []admin.Shard{{Epoch: 3, Leader: &admin.Broker{ID: "b1", Name: "main-1"}, Status: lacking, Want: 5, InSync: 2, MinInSync: 3, Replicas: []admin.Replica{
		{Broker: admin.Broker{ID: "b10", Name: "main-10"}, InSync: true, Removing: true}, {Broker: admin.Broker{ID: "b1", Name: "main-1"}, InSync: true},
		{Broker: admin.Broker{ID: "b2", Name: "main-2"}, Suspect: true}, {Broker: admin.Broker{ID: "b3", Name: "main-3"}, Adding: true}, {Broker: admin.Broker{ID: "0123456789", Away: true}},
	}}}
	spec := coordination.TopicSpec{
		Subjects: []string{"orders", "orders.>"}, Shards: 1, Durability: coordination.Synced, DeletionPolicy: coordination.Retain,
		Retention: coordination.Retention{Age: 168 * time.Hour, Bytes: 10 << 30, Messages: 1000}, Deduplication: 2 * time.Minute,
	}
	risky := spec
	risky.Replicas, risky.MinInSync, risky.UncleanElection = 5, 3, true
	away := admin.Status{Reason: "BrokerAway", Why: "shard 0 of topic audit is on broker b2 alone, which is away (bring that broker back with its volume)"}
	stream := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "orders"}, State: jetstream.StreamState{
		Msgs: 12, Bytes: 1536, FirstSeq: 1, LastSeq: 12, FirstTime: made, LastTime: made,
	}}
	return []topicView{
		viewTopic(&admin.Topic{Name: "orders", ID: "0123", Generation: 2, Created: made, Owner: manifest, Spec: spec, Status: admin.Status{Served: true}, Shards: led, Subscriptions: 2}, stream),
		viewTopic(&admin.Topic{Name: "old", ID: "4567", Generation: 1, Created: made, Owner: orphan, Spec: risky, Status: lacking, Shards: lacks}, stream),
		viewTopic(&admin.Topic{Name: "audit", ID: "89ab", Generation: 1, Created: made, Owner: admin.Owner{Kind: coordination.ClientOwner},
			Spec: coordination.TopicSpec{Subjects: []string{"a", "b", "c"}, Shards: 1, Durability: coordination.Memory, DeletionPolicy: coordination.Retain}, Status: away,
			Shards: []admin.Shard{{Epoch: 1, Leader: &admin.Broker{ID: "b2"}, Status: away, Want: 1, MinInSync: 1, Replicas: []admin.Replica{{Broker: admin.Broker{ID: "b2", Away: true}}}}}}, nil),
		viewTopic(nil, &jetstream.StreamInfo{Created: made, Config: jetstream.StreamConfig{
			Name: "foreign", Subjects: []string{"f.>"}, Storage: jetstream.FileStorage, PersistMode: jetstream.AsyncPersistMode, MaxMsgs: -1, MaxBytes: -1, Metadata: map[string]string{"_nats.ver": "2"},
		}}),
	}
}

// looks compares what is printed with what it is to look like.
func looks(t *testing.T, print func(*bytes.Buffer) error, want string) {
	t.Helper()
	var got bytes.Buffer
	if err := print(&got); err != nil {
		t.Fatal(err)
	}
	moment := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	text := moment.ReplaceAllString(got.String(), "TIME")
	blank := regexp.MustCompile(`(?m) +$`)
	if text = blank.ReplaceAllString(text, ""); text != strings.TrimPrefix(want, "\n") {
		t.Errorf("it looks like this:\n%s\nand was to look like this:%s", text, want)
	}
}

func TestTopicsArePrinted(t *testing.T) {
	topics := examples()
	looks(t, func(w *bytes.Buffer) error { return printTopics(w, topics) }, `
NAME      SUBJECTS          MESSAGES   SIZE      SUBSCRIPTIONS   DURABILITY   LEADER      REPLICAS   IN SYNC          MISSING                               OWNER         AGE   STATUS
orders    orders,orders.>   12         1.5 KiB   2               Synced       main-1      2/2        main-1,main-0    -                                     shop/orders   3h    served
old       orders,orders.>   12         1.5 KiB   0               Synced       main-1      2/5        main-1,main-10   01234567 (away),main-2 (suspect) +2   shop/orders   3h    served, under-replicated, orphaned
audit     a,b +1            -          -         0               Memory       b2 (away)   0/1        -                b2 (away)                             a client      3h    not served: BrokerAway
foreign   f.>               0          0 B       0               Replicated   -           -          -                -                                     -             3h    -
`)
	looks(t, func(w *bytes.Buffer) error { return printTopic(w, &topics[0]) }, `
Topic                    orders
Subjects                 orders, orders.>
Owner                    the manifest shop/orders
Id                       0123
Generation               2
Created                  TIME (3h ago)
Durability               Synced: acknowledged once it is on disk
Replicas                 3, or as many as there are brokers; publishing needs a majority in sync
Retention                at most 7d, 10 GiB, 1000 messages
Deduplication            2m
When its manifest goes   Retain
Status                   served
Shard 0                  led by main-1, epoch 3
  in sync                2 of 2, at least 2: main-1, main-0
Messages                 12
Size                     1.5 KiB
Oldest                   #1, TIME (3h ago)
Newest                   #12, TIME (3h ago)
Subscriptions            2
`)
	looks(t, func(w *bytes.Buffer) error { return printTopic(w, &topics[1]) }, `
Topic                    old
Subjects                 orders, orders.>
Owner                    the manifest shop/orders, which is gone
Orphaned                 since TIME (2d ago)
Id                       4567
Generation               1
Created                  TIME (3h ago)
Durability               Synced: acknowledged once it is on disk
Replicas                 5; publishing needs 3 in sync
Unclean election         allowed: acknowledged messages are lost if a broker must lead that lacks them
Retention                at most 7d, 10 GiB, 1000 messages
Deduplication            2m
When its manifest goes   Retain
Status                   served, under-replicated, orphaned
Why                      shard 0 of topic old lacks some
Shard 0                  led by main-1, epoch 3
  in sync                2 of 5, at least 3: main-1, main-10
  missing                01234567 (away), main-2 (suspect), main-3 (catching up), 1 without a broker
  leaving                main-10
Messages                 12
Size                     1.5 KiB
Oldest                   #1, TIME (3h ago)
Newest                   #12, TIME (3h ago)
Subscriptions            0
`)
	looks(t, func(w *bytes.Buffer) error { return printTopic(w, &topics[2]) }, `
Topic           audit
Subjects        a, b, c
Owner           a client
Id              89ab
Generation      1
Created         TIME (3h ago)
Durability      Memory: never on disk, gone with its broker
Replicas        3, or as many as there are brokers; publishing needs a majority in sync
Retention       for ever
Deduplication   none
Status          not served: BrokerAway
Why             shard 0 of topic audit is on broker b2 alone, which is away (bring that broker back with its volume)
Shard 0         led by b2 (away), epoch 1
  in sync       0 of 1, at least 1: -
  missing       b2 (away)
Subscriptions   0
`)
}

func TestSubscriptionsArePrinted(t *testing.T) {
	last := made
	declared := &admin.Subscription{
		Topic: "orders", Name: "billing", Generation: 1, Created: made, Owner: manifest, Status: admin.Status{Served: true},
		Spec: coordination.SubscriptionSpec{
			Start: coordination.Start{From: coordination.FromEarliest}, Subjects: []string{"orders.eu"}, DeletionPolicy: coordination.Delete,
			Ack: coordination.Ack{Policy: coordination.AckExplicit, MaxDeliver: 5, Backoff: []time.Duration{time.Second, 5 * time.Second}},
		},
	}
	consumer := &jetstream.ConsumerInfo{
		NumPending: 7, NumAckPending: 3, NumRedelivered: 1, NumWaiting: 2,
		Delivered: jetstream.SequenceInfo{Stream: 5, Last: &last}, AckFloor: jetstream.SequenceInfo{Stream: 2},
	}
	ordered := &jetstream.ConsumerInfo{Stream: "orders", Name: "x_1", Created: made, Config: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}}
	views := []subscriptionView{viewSubscription(declared, consumer), viewSubscription(nil, ordered), viewSubscription(declared, nil)}
	members := int64(4)
	views[0].Numbers.Members = &members
	looks(t, func(w *bytes.Buffer) error { return printSubscriptions(w, views) }, `
TOPIC    SUBSCRIPTION   FILTER      LAG   PENDING   REDELIVERED   MEMBERS   OWNER         AGE   STATUS
orders   billing        orders.eu   7     3         1             4         shop/orders   3h    served
orders   x_1            -           0     0         0             -         -             3h    temporary
orders   billing        orders.eu   -     -         -             -         shop/orders   3h    served
`)
	looks(t, func(w *bytes.Buffer) error { return printSubscription(w, &views[0]) }, `
Subscription             billing
Topic                    orders
Owner                    the manifest shop/orders
Generation               1
Created                  TIME (3h ago)
Filter                   orders.eu
Began with               the oldest message
Acknowledgement          of each message, within 30s, 5 attempts, at most 1000 pending
Backoff                  1s, 5s
When its manifest goes   Delete
Status                   served
Lag                      7
Pending                  3
Redelivered              1
Waiting requests         2
Active members           4
Delivered                #5, TIME (3h ago)
Acknowledged up to       #2
`)
}

// TestAForeignStreamIsShownAsATopic: metadata that another server adds is not part of a spec.
func TestAForeignStreamIsShownAsATopic(t *testing.T) {
	foreign := examples()[3]
	if len(foreign.Spec.Stream.Metadata) > 0 || foreign.Spec.Durability != coordination.Replicated || foreign.Served != nil || foreign.Owner != nil {
		t.Errorf("it is %+v", foreign)
	}
}

// TestChangingATopicOfAManifestIsRefused: changing a Topic of a manifest is refused before the
// question, with the command to use instead.
func TestChangingATopicOfAManifestIsRefused(t *testing.T) {
	err := declaredElsewhere("topic orders", "topics", manifest)
	want := "topic orders belongs to the manifest shop/orders (change or delete that manifest): kubectl delete --namespace shop topics.carillon.dev orders"
	if err == nil || err.Error() != want {
		t.Errorf("it says %v", err)
	}
	now := time.Now()
	for _, owner := range []admin.Owner{{Kind: coordination.ClientOwner}, {Kind: coordination.ManifestOwner, Namespace: "shop", Name: "orders", Orphaned: &now}} {
		if err := declaredElsewhere("topic orders", "topics", owner); err != nil {
			t.Errorf("of %+v it says %v", owner, err)
		}
	}
}

// TestTheCopyWithTheOldestScrubIsShown: of all reported copies, the one that has waited longest to
// be scrubbed is shown.
func TestTheCopyWithTheOldestScrubIsShown(t *testing.T) {
	v := topicView{Shards: make([]admin.Shard, 1)}
	if got := v.unscrubbedText(); got != "" {
		t.Errorf("nobody told, and it says %q", got)
	}
	told := func(name string, ages ...time.Duration) {
		of := admin.TopicCopies{Broker: &admin.Broker{ID: "id", Name: name}}
		for n, age := range ages {
			of.Copies = append(of.Copies, admin.Copy{Shard: n, Unscrubbed: age})
		}
		v.Copies = append(v.Copies, of)
	}
	told("main-0", 0)
	if got := v.unscrubbedText(); got != "" {
		t.Errorf("nothing is sealed, and it says %q", got)
	}
	told("main-1", 72*time.Minute+300*time.Millisecond)
	told("main-2", 30*time.Second)
	if got := v.unscrubbedText(); got != "1h12m ago, on main-1" {
		t.Errorf("it says %q", got)
	}
	v.Shards = make([]admin.Shard, 2)
	told("main-3", time.Minute, 2*time.Hour)
	if got := v.unscrubbedText(); got != "2h ago, on main-3 (shard 1)" {
		t.Errorf("it says %q", got)
	}
}

// TestStreamSettingsFromTheCommandLine: topic create asks for the settings of streams, and topic
// show prints them. Repeating it changes nothing.
func TestStreamSettingsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	for range 2 {
		s.does("topic create jobs --message-ttl --marker-ttl 1h --schedules --atomic-batches --republish jobs.*,seen.{{wildcard(1)}} --republish-headers-only")
	}
	s.does("topic create visits --counters")
	s.prints("topic copy keeps messages of jobs\n", "topic create copy --mirror jobs")
	s.prints("topic all keeps messages of jobs, messages of visits\n", "topic create all --sources jobs,visits")
	for range 2 {
		s.prints("topic wide keeps messages of jobs, messages of all in 3 shards\n", "topic create wide --sources jobs,all --shards 3 --durability replicated --min-in-sync 1 --partition-tokens 2")
		s.prints("topic mirror keeps messages of wide in 3 shards\n", "topic create mirror --mirror wide --min-in-sync 1")
	}
	s.fails(exitFailure, "the mirror has 2 shards, and wide, which it mirrors, has 3", "topic create x --mirror wide --shards 2")
	s.fails(exitFailure, "other tokens of a subject decide the shard", "topic create x --mirror wide --shards 3 --partition-tokens 1")
	s.fails(exitFailure, "detected cycle", "topic create x --sources x")
	for topic, lines := range map[string][]string{
		"jobs": {
			`Message TTL +messages may have one of their own, and a marker stays for 1h`, `Republishes +jobs\.\* to seen\.\{\{wildcard\(1\)\}\}, without payload`,
			`Schedules +allowed`, `Atomic batches +allowed`,
		},
		"visits": {`Counters +each subject is one`},
		"copy":   {`Mirror of +jobs`},
		"all":    {`Source +jobs\n`, `Source +visits\n`},
	} {
		got := s.does("topic show " + topic)
		for _, line := range lines {
			if !regexp.MustCompile(`(?m)^` + line).MatchString(got) {
				t.Errorf("%s is not in\n%s", line, got)
			}
		}
	}
	s.fails(exitUsage, "--mirror goes with neither --subjects nor --sources", "topic create x --mirror jobs --subjects x")
	s.fails(exitUsage, "write SOURCE,DESTINATION", "topic create x --republish a")
	s.fails(exitUsage, "--republish-headers-only needs --republish", "topic create x --republish-headers-only")
	s.fails(exitUsage, "--marker-ttl can't be less than 1s", "topic create x --marker-ttl 10ms")
	s.fails(exitFailure, "counter stream cannot use message TTLs", "topic create x --counters --message-ttl")
	from := coordination.StreamSource{Name: "a", StartSequence: 3, Filter: "x", Transforms: []coordination.SubjectMapping{{Source: "b", Destination: "c"}}}
	if got := sourceText(&from); got != "a from #3, subjects x, b to c" {
		t.Errorf("a source is %q", got)
	}
}
