package coordination

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestASubscriptionIsWrittenBesideThoseThatWereJudgedOnly: its writer knows the others as of a
// revision, and another was written since.
func TestASubscriptionIsWrittenBesideThoseThatWereJudgedOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "orders", spec("orders", "orders.>"), manifest)
	before := c.revision(t)
	first, err := c.CreateSubscriptionSince(ctx, "orders", "first", SubscriptionSpec{}, client, before)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CreateSubscriptionSince(ctx, "orders", "second", SubscriptionSpec{}, client, before)
	as[*StaleError](t, err)
	_, err = c.CreateSubscriptionSince(ctx, "orders", "first", SubscriptionSpec{}, other, before)
	as[*ExistsError](t, err)
	if _, err = c.CreateSubscriptionSince(ctx, "orders", "second", SubscriptionSpec{}, client, first.Revision); err != nil {
		t.Error(err)
	}
	change := SubscriptionUpdate{By: client, Since: first.Revision, Spec: SubscriptionSpec{Subjects: []string{"orders.eu"}}}
	_, err = c.UpdateSubscription(ctx, "orders", "first", change)
	as[*StaleError](t, err)
	change.Since = c.revision(t)
	if _, err = c.UpdateSubscription(ctx, "orders", "first", change); err != nil {
		t.Error(err)
	}
}

func TestASubscriptionIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	_, err := c.CreateSubscription(ctx, "orders", "billing", SubscriptionSpec{}, manifest)
	as[*NotFoundError](t, err)
	topic := c.mustCreate(t, "orders", spec("orders", "orders.>"), manifest)

	want := SubscriptionSpec{
		Start: Start{From: FromTime, Time: now()}, Subjects: []string{"orders.eu.>"},
		Ack:      Ack{Wait: 30 * time.Second, MaxDeliver: 5, Backoff: []time.Duration{time.Second}},
		Consumer: ConsumerSettings{Description: "bills", InactiveThreshold: time.Minute},
	}
	made, err := c.CreateSubscription(ctx, "orders", "billing", want, manifest)
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.GetSubscription(ctx, "orders", "billing")
	if err != nil || subscriptionText(read) != subscriptionText(made) || read.Topic != topic.ID || read.Generation != 1 {
		t.Fatalf("read %+v, %v; want %+v", read, err, made)
	}
	before := c.revision(t)
	if again, err := c.CreateSubscription(ctx, "orders", "billing", want, manifest); err != nil || again.Revision != made.Revision || c.revision(t) != before {
		t.Errorf("made again: %+v, %v", again, err)
	}
	_, err = c.CreateSubscription(ctx, "orders", "billing", want, client)
	if e := as[*ExistsError](t, err); e.Owner != manifest {
		t.Errorf("the owner named is %v", e.Owner)
	}

	// Ownership works as for Topics.
	wider := want
	wider.Subjects = nil
	for _, by := range []Owner{client, other, again} {
		_, err = c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: by, Spec: wider})
		as[*NotOwnerError](t, err)
		as[*NotOwnerError](t, c.DeleteSubscription(ctx, "orders", "billing", 0, by))
	}
	changed, err := c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: manifest, Generation: 1, Spec: wider})
	if err != nil || changed.Generation != 2 || changed.Made != made.Made {
		t.Fatalf("changed: %+v, %v", changed, err)
	}
	_, err = c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: manifest, Generation: 1, Spec: want})
	as[*StaleError](t, err)
	elsewhere := wider
	elsewhere.Start = Start{From: FromEarliest}
	_, err = c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: manifest, Spec: elsewhere})
	as[*ImmutableError](t, err)
	if _, err := c.OrphanSubscription(ctx, "orders", "billing", manifest); err != nil {
		t.Fatal(err)
	}
	_, err = c.AdoptSubscription(ctx, "orders", "billing", other, wider)
	as[*NotOwnerError](t, err)
	adopted, err := c.AdoptSubscription(ctx, "orders", "billing", again, wider)
	if err != nil || adopted.Owner != again {
		t.Fatalf("adopted: %+v, %v", adopted, err)
	}

	if list, _, err := c.listSubscriptions(ctx, topic.ID); err != nil || len(list) != 1 || list[0].Name != "billing" {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := c.DeleteSubscription(ctx, "orders", "billing", 0, again); err != nil {
		t.Fatal(err)
	}
	as[*NotFoundError](t, c.DeleteSubscription(ctx, "orders", "billing", 0, again))
	anew, err := c.CreateSubscription(ctx, "orders", "billing", want, manifest)
	if err != nil || anew.Made <= made.Made {
		t.Errorf("made anew: %+v, %v", anew, err)
	}
	as[*StaleError](t, c.DeleteSubscription(ctx, "orders", "billing", made.Revision, manifest))
	changed, err = c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: manifest, Spec: wider})
	if err != nil {
		t.Fatal(err)
	}
	as[*StaleError](t, c.DeleteSubscription(ctx, "orders", "billing", anew.Revision, manifest))
	if err := c.DeleteSubscription(ctx, "orders", "billing", changed.Revision, manifest); err != nil {
		t.Error(err)
	}
}

// TestNoSubscriptionOutlivesItsTopic: a Subscription created while its Topic is deleted is refused
// or deleted with it.
func TestNoSubscriptionOutlivesItsTopic(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c, maker := etcd.open(), etcd.open()
	for round := range 20 {
		name := fmt.Sprintf("t%d", round)
		topic := c.mustCreate(t, name, spec(name), client)
		refused, enough := make(chan error), make(chan struct{})
		go func() {
			for n := 0; ; n++ {
				if _, err := maker.CreateSubscription(ctx, name, fmt.Sprintf("s%d", n), SubscriptionSpec{}, client); err != nil {
					refused <- err
					return
				}
				if n == round%5 {
					close(enough)
				}
			}
		}()
		select {
		case <-enough:
		case err := <-refused:
			t.Fatal(err)
		}
		if err := c.DeleteTopic(ctx, name, "", client); err != nil {
			t.Fatal(err)
		}
		as[*NotFoundError](t, <-refused)
		if left := c.keys(t, c.subscriptionsPrefix(topic.ID)); left != 0 {
			t.Fatalf("%d subscriptions are left", left)
		}
	}
}

func TestInvalidSubscriptionsAreRefused(t *testing.T) {
	for what, spoil := range map[string]func(*SubscriptionSpec){
		"filter":           func(s *SubscriptionSpec) { s.Subjects = []string{"a..b"} },
		"filters overlap":  func(s *SubscriptionSpec) { s.Subjects = []string{"a.*", "*.b"} },
		"too many filters": func(s *SubscriptionSpec) { s.Subjects = make([]string, MaxFilterSubjects+1) },
		"where":            func(s *SubscriptionSpec) { s.Where = strings.Repeat("a", maxWhere+1) },
		"start":            func(s *SubscriptionSpec) { s.Start.From = "Somewhere" },
		"time missing":     func(s *SubscriptionSpec) { s.Start.From = FromTime },
		"offset":           func(s *SubscriptionSpec) { s.Start.Offset = 3 },
		"ack":              func(s *SubscriptionSpec) { s.Ack.Policy = "Maybe" },
		"negative":         func(s *SubscriptionSpec) { s.Ack.MaxDeliver = -1 },
		"backoff":          func(s *SubscriptionSpec) { s.Ack.Backoff = []time.Duration{-1} },
		"backoffs":         func(s *SubscriptionSpec) { s.Ack.Backoff = make([]time.Duration, maxBackoffs+1) },
		"push":             func(s *SubscriptionSpec) { s.Push = &Push{URL: "ftp://example.org"} },
		"deliver pattern":  func(s *SubscriptionSpec) { s.Consumer.DeliverSubject = "a.*" },
		"deliver subject":  func(s *SubscriptionSpec) { s.Consumer.DeliverSubject = strings.Repeat("a", maxSubject+1) },
		"dead letters":     func(s *SubscriptionSpec) { s.DeadLetter = "a.b" },
		"policy":           func(s *SubscriptionSpec) { s.DeletionPolicy = DeleteIfEmpty },
	} {
		var s SubscriptionSpec
		if why := s.valid(); why != "" {
			t.Fatal(why)
		}
		spoil(&s)
		if s.valid() == "" {
			t.Errorf("%s: it was accepted", what)
		}
	}
}

// TestAConsumerIsDeclared: with the time at which it was created before.
func TestAConsumerIsDeclared(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "orders", spec("orders", "orders.>"), manifest)
	when := now().Add(-time.Hour)
	declared, err := c.DeclareConsumer(ctx, "orders", "reader", SubscriptionSpec{}, client, when)
	if err != nil || !declared.Created.Equal(when) {
		t.Fatalf("declared %+v, %v", declared, err)
	}
	if read, err := c.GetSubscription(ctx, "orders", "reader"); err != nil || !read.Created.Equal(when) {
		t.Errorf("read %+v, %v", read, err)
	}
}

func TestASubscriptionIsReset(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "orders", spec("orders", "orders.>"), manifest)
	at := now()
	want := SubscriptionSpec{Start: Start{From: FromLatest}}
	made, err := c.CreateSubscription(ctx, "orders", "billing", want, manifest)
	if err != nil {
		t.Fatal(err)
	}
	incarnation := made.Incarnation()
	is := func(step string, resets int64, begin Start, by func() (*Subscription, error)) {
		t.Helper()
		changed, err := by()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		read, err := c.GetSubscription(ctx, "orders", "billing")
		if err != nil || read.Resets != resets || *read.Begin() != begin || read.Made != made.Made || read.Revision != changed.Revision {
			t.Errorf("%s: it is %+v, %v; want %d resets, the last one to %+v", step, read, err, resets, begin)
		}
		switch next := read.Incarnation(); {
		case next < incarnation:
			t.Errorf("%s: after incarnation %d it is %d", step, incarnation, next)
		case next > incarnation && (!made.Forgot(next) || read.Forgot(next) || read.Forgot(incarnation)):
			t.Errorf("%s: incarnation %d is no later reset than %d", step, next, incarnation)
		default:
			incarnation = next
		}
	}
	update := func(reset *Reset) func() (*Subscription, error) {
		return func() (*Subscription, error) {
			spec := want
			spec.Reset = reset
			return c.UpdateSubscription(ctx, "orders", "billing", SubscriptionUpdate{By: manifest, Spec: spec})
		}
	}
	earliest, later := Start{From: FromEarliest}, Start{From: FromTime, Time: at}
	is("no reset", 0, want.Start, update(nil))
	is("reset", 1, earliest, update(&Reset{To: earliest}))
	is("the same again", 1, earliest, update(&Reset{To: earliest}))
	is("another one", 2, later, update(&Reset{To: later}))
	is("with an id", 3, later, update(&Reset{ID: "again", To: later}))
	is("left out", 3, later, update(nil))
	is("by its owner", 4, earliest, func() (*Subscription, error) {
		return c.ResetSubscription(ctx, "orders", "billing", manifest, earliest)
	})
	_, err = c.ResetSubscription(ctx, "orders", "billing", client, earliest)
	as[*NotOwnerError](t, err)
	_, err = c.ResetSubscription(ctx, "orders", "billing", manifest, Start{From: FromTime})
	as[*InvalidError](t, err)
	_, err = c.ResetSubscription(ctx, "orders", "billing", manifest, Start{From: FromLast})
	as[*InvalidError](t, err)

	// A work queue keeps what nobody acknowledged.
	queue := spec("jobs", "jobs.>")
	queue.Stream.Retention = WorkQueue
	c.mustCreate(t, "jobs", queue, client)
	begun := SubscriptionSpec{Start: earliest, Reset: &Reset{To: Start{From: FromLatest}}}
	_, err = c.CreateSubscription(ctx, "jobs", "worker", begun, client)
	as[*InvalidError](t, err)
	if _, err = c.CreateSubscription(ctx, "jobs", "worker", SubscriptionSpec{Start: earliest}, client); err != nil {
		t.Fatal(err)
	}
	_, err = c.UpdateSubscription(ctx, "jobs", "worker", SubscriptionUpdate{By: client, Spec: begun})
	as[*InvalidError](t, err)
	_, err = c.ResetSubscription(ctx, "jobs", "worker", client, later)
	as[*InvalidError](t, err)
	if s, err := c.ResetSubscription(ctx, "jobs", "worker", client, earliest); err != nil || s.Resets != 1 {
		t.Errorf("it is %+v, %v", s, err)
	}

	// Made with a reset, it begins there.
	begun = want
	begun.Reset = &Reset{To: earliest}
	if s, err := c.CreateSubscription(ctx, "orders", "new", begun, manifest); err != nil || *s.Begin() != earliest {
		t.Errorf("it is %+v, %v", s, err)
	}
}

func TestInvalidPushesAreRefused(t *testing.T) {
	valid := func() SubscriptionSpec {
		return SubscriptionSpec{Push: &Push{
			URL: "https://billing.shop.svc/events?all", Format: CloudEventsStructured, Batch: &PushBatch{MaxRecords: 10}, Timeout: time.Second,
			Headers: []PushHeader{{Name: "X-Tenant", Value: "9"}, {Name: "Authorization", File: "token_a.b"}}, TLS: &PushTLS{CA: "ca_ca.crt", ServerName: "a.org", Certificate: "me_tls.crt", Key: "me_tls.key"},
		}}
	}
	if s := valid(); s.valid() != "" {
		t.Fatal(s.valid())
	}
	for what, spoil := range map[string]func(*Push){
		"no key":      func(p *Push) { p.TLS.Key = "" },
		"no cert":     func(p *Push) { p.TLS.Certificate = "" },
		"cert":        func(p *Push) { p.TLS.Certificate = "../tls.crt" },
		"key":         func(p *Push) { p.TLS.Key = "../tls.key" },
		"no host":     func(p *Push) { p.URL = "https:///a" },
		"password":    func(p *Push) { p.URL = "https://me:secret@a/b" },
		"fragment":    func(p *Push) { p.URL = "https://a/b#c" },
		"concurrency": func(p *Push) { p.Concurrency = MaxPushConcurrency + 1 },
		"timeout":     func(p *Push) { p.Timeout = time.Millisecond },
		"format":      func(p *Push) { p.Format, p.Batch = "XML", nil },
		"batch":       func(p *Push) { p.Format = RawPush },
		"records":     func(p *Push) { p.Batch.MaxRecords = 0 },
		"wait":        func(p *Push) { p.Batch.MaxWait = time.Hour },
		"headers":     func(p *Push) { p.Headers = make([]PushHeader, maxPushHeaders+1) },
		"name":        func(p *Push) { p.Headers[0].Name = "a b" },
		"reserved":    func(p *Push) { p.Headers[0].Name = "transfer-encoding" },
		"attribute":   func(p *Push) { p.Headers[0].Name = "ce-id" },
		"value":       func(p *Push) { p.Headers[0].Value = "a\r\nHost: b" },
		"two values":  func(p *Push) { p.Headers[1].Value = "a" },
		"file":        func(p *Push) { p.Headers[1].File = "../token" },
		"CA":          func(p *Push) { p.TLS.CA = "a/b" },
		"plaintext":   func(p *Push) { p.URL = "http://a" },
	} {
		s := valid()
		spoil(s.Push)
		if s.valid() == "" {
			t.Errorf("%s: it was accepted", what)
		}
	}
}
