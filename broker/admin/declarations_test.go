package admin

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// declares has a client's message declare something, and waits for the outcome. waited reports
// whether the message did.
func declares(t *testing.T, d session.Declarer, subject, text string, bound bool) (refusal *session.Refusal, waited bool) {
	t.Helper()
	set, refusal := d.Declare([]byte(subject), []byte(text), bound)
	if set == nil {
		return refusal, false
	}
	made := set()
	if made == nil {
		return nil, false
	}
	select {
	case refusal = <-made:
	case <-time.After(testutil.Patience):
		t.Fatal("no outcome")
	}
	return refusal, true
}

func (d *described) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// TestAMessageSetsOnlyWhatDiffers: messages whose attributes are there take no change, also after
// others have changed them and back.
func TestAMessageSetsOnlyWhatDiffers(t *testing.T) {
	s, box, all := attributesServer(t, "", 1e6)
	d := s.Declarer(5)
	set := func(subject, text string, wait bool, want string) {
		t.Helper()
		before := all.count()
		refusal, waited := declares(t, d, subject, text, true)
		if refusal != nil || waited != wait || all.count()-before > 1 || wait != (all.count() > before) {
			t.Errorf("%s of %s: %+v, it waited: %v, and %d changes were made", text, subject, refusal, waited, all.count()-before)
		}
		if got := all.store.Get(subject); got.Text != want || got.Holder != (attribute.Holder{Broker: "a", Process: 99, Connection: 5}) {
			t.Errorf("after %s subject %s has %+v", text, subject, got)
		}
	}
	set("s", `{"room":"410"}`, true, `{"room":"410"}`)
	set("s", `{"room":"410"}`, false, `{"room":"410"}`)
	set("s", `{ "room" : "410" }`, false, `{"room":"410"}`)
	set("t", `{"room":"1"}`, true, `{"room":"1"}`)
	set("s", `{"floor":4}`, true, `{"floor":4,"room":"410"}`)
	set("s", `{"room":"410"}`, false, `{"floor":4,"room":"410"}`)
	var one SubjectAttributes
	box.asks(t, s, 6, AttributesSetSubject, `{"subject":"s","set":{"room":"411"}}`, &one)
	set("s", `{"room":"410"}`, true, `{"floor":4,"room":"410"}`)
	box.asks(t, s, 6, AttributesDeleteSubject, `{"subject":"s"}`, &one)
	set("s", `{"room":"410"}`, true, `{"room":"410"}`)
	subject, text := []byte("s"), []byte(`{"room":"410"}`)
	if testing.AllocsPerRun(100, func() { d.Declare(subject, text, true) }) > 0 {
		t.Error("a repetition allocates")
	}
	// A restored etcd may have something else at the same revision.
	e := all.store.Get("s")
	e.Text = `{"room":"1"}`
	all.store.Distrust()
	all.store.Put(e)
	all.store.Listed(e.Revision)
	set("s", `{"room":"410"}`, true, `{"room":"410"}`)
}

// TestAMessageWhoseAttributesAreThereWaitsForNothing: another connection holds them. This one
// claims them meanwhile, once in a while, and takes over nothing that was set since.
func TestAMessageWhoseAttributesAreThereWaitsForNothing(t *testing.T) {
	s, _, all := attributesServer(t, "", 1e6)
	declares(t, s.Declarer(5), "s", `{"room":"410"}`, true)
	all.block = make(chan struct{})
	d := s.Declarer(6)
	for range 3 {
		if refusal, waited := declares(t, d, "s", `{"room":"410"}`, true); refusal != nil || waited {
			t.Errorf("it was refused for %+v, and waited: %v", refusal, waited)
		}
	}
	close(all.block)
	testutil.EventuallyTrue(t, "the claim", func() bool { return all.store.Get("s").Holder.Connection == 6 })
	if got := all.count(); got != 2 {
		t.Errorf("%d changes were made", got)
	}
	// 5 claims it once, and 6 not again so soon.
	declares(t, s.Declarer(5), "s", `{"room":"410"}`, true)
	testutil.EventuallyTrue(t, "the other claim", func() bool { return all.store.Get("s").Holder.Connection == 5 })
	declares(t, d, "s", `{"room":"410"}`, true)
	d.(*declarer).claimed[maphash.String(hashSeed, "s")] = time.Now().Add(-claimAgain)
	declares(t, d, "s", `{"room":"410"}`, true)
	testutil.EventuallyTrue(t, "a later claim", func() bool { return all.store.Get("s").Holder.Connection == 6 })
	declares(t, d, "s", `{"room":"410"}`, false)
	d.(*declarer).claimed[maphash.String(hashSeed, "s")] = time.Now().Add(-claimAgain)
	declares(t, d, "s", `{"room":"410"}`, false)
	testutil.EventuallyTrue(t, "none holds it", func() bool { return all.store.Get("s").Holder == attribute.Holder{} })
	if got := all.count(); got != 5 {
		t.Errorf("%d changes were made", got)
	}
	for i := range maxNoted + 10 {
		if !d.(*declarer).claims("s." + time.Duration(i).String()) {
			t.Fatal("it does not claim another subject")
		}
	}
	if known := len(d.(*declarer).claimed); known > maxNoted {
		t.Errorf("a connection knows %d claims", known)
	}
}

// fails has changes fail; nil: no more.
func (d *described) fails(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// TestMessagesAreRefusedWithTheReason: in words, and as a PubAck of JetStream.
func TestMessagesAreRefusedWithTheReason(t *testing.T) {
	s, _, all := attributesServer(t, "", 1e6)
	d := s.Declarer(5)
	for text, says := range map[string]string{
		``: "unexpected end", `{`: "unexpected end", `{"1":2}`: "named", `{"a":null}`: "attribute a", `{"a":"` + strings.Repeat("x", 5000) + `"}`: "4096",
		`{"a":1` + strings.Repeat(" ", maxDeclaredText) + `}`: "bytes (there may be",
	} {
		refusal, _ := declares(t, d, "s", text, true)
		refusedFor(t, refusal, jsapi.ErrBadRequest, says)
	}
	refusal, _ := declares(t, d, "s.*", `{"a":1}`, true)
	refusedFor(t, refusal, jsapi.ErrBadRequest, "no subject that messages are published on")
	for _, tc := range []struct {
		err  error
		want *jsapi.Error
		says string
	}{
		{&coordination.AttributesFullError{Subject: "s"}, jsapi.ErrInsufficientResources, "no room"},
		{errors.New("no\nleader"), jsapi.ErrClusterNotAvailable, "no leader"},
	} {
		all.fails(tc.err)
		refusal, _ := declares(t, d, "s", `{"a":1}`, true)
		refusedFor(t, refusal, tc.want, tc.says)
	}
	all.fails(nil)
	if refusal, _ := declares(t, d, "s", `{"a":1}`, true); refusal != nil {
		t.Errorf("then it is refused for %+v", refusal)
	}
	s.attributes.gate.close()
	refusal, _ = declares(t, d, "s", `{"a":2}`, true)
	refusedFor(t, refusal, jsapi.ErrClusterNotAvailable, "2000 a second")
}

func refusedFor(t *testing.T, refusal *session.Refusal, want *jsapi.Error, says string) {
	t.Helper()
	if refusal == nil {
		t.Errorf("it is not refused, want %q", says)
		return
	}
	var ack struct{ Error *jsapi.Error }
	if err := json.Unmarshal(refusal.Answer(nil), &ack); err != nil || ack.Error.Code != want.Code || ack.Error.ErrCode != want.ErrCode || ack.Error.Description != refusal.Text ||
		refusal.Code != want.Code || !strings.Contains(refusal.Text, says) || strings.Contains(refusal.Text, "\n") {
		t.Errorf("it is refused by %s, %+v, want %+v and %q", refusal.Answer(nil), refusal, want, says)
	}
}

// TestMessagesWaitForABrokerThatHasJustStarted: it has not read the attributes yet.
func TestMessagesWaitForABrokerThatHasJustStarted(t *testing.T) {
	s, _, all := attributesServer(t, "", 1e6)
	all.store = attribute.NewStore()
	set, refusal := s.Declarer(5).Declare([]byte("s"), []byte(`{"a":1}`), true)
	if refusal != nil || set == nil {
		t.Fatalf("it does not wait: %+v", refusal)
	}
	made := set()
	select {
	case refusal := <-made:
		t.Fatalf("it did not wait: %+v", refusal)
	default:
	}
	all.store.Listed(0)
	if refusal := <-made; refusal != nil || all.store.Get("s").Text != `{"a":1}` {
		t.Errorf("then it was refused for %+v, or has %+v", refusal, all.store.Get("s"))
	}
}

// TestMessagesBindNothingThatStays: what is bound to none, as by a manifest, stays so when messages
// repeat it, or add to it. Otherwise it would go with their connection.
func TestMessagesBindNothingThatStays(t *testing.T) {
	s, _, all := attributesServer(t, "", 1e6)
	if _, err := all.Change(t.Context(), []attribute.Change{{Subject: "s", Set: attribute.Set{"room": attribute.String("410")}}}); err != nil {
		t.Fatal(err)
	}
	d := s.Declarer(5)
	if refusal, waited := declares(t, d, "s", `{"room":"410"}`, true); refusal != nil || waited || all.count() != 1 {
		t.Errorf("a repetition is refused for %+v, waited: %v, and there were %d changes", refusal, waited, all.count())
	}
	if refusal, _ := declares(t, d, "s", `{"floor":4}`, true); refusal != nil {
		t.Errorf("refused for %+v", refusal)
	}
	if got := all.store.Get("s"); got.Text != `{"floor":4,"room":"410"}` || got.Holder != (attribute.Holder{}) {
		t.Errorf("the subject has %+v", got)
	}
	if refusal, _ := declares(t, d, "new", `{"floor":4}`, true); refusal != nil || all.store.Get("new").Holder.Connection != 5 {
		t.Errorf("refused for %+v, and a new subject has %+v", refusal, all.store.Get("new"))
	}
}

// TestClaimsKeepNoMessageWaiting: a connection that publishes on many subjects of another one, as
// after a reconnect, has few claims under way. Looking at a message submits none, since the hub is
// locked meanwhile.
func TestClaimsKeepNoMessageWaiting(t *testing.T) {
	s, _, all := attributesServer(t, "", 1e6)
	const subjects = 2 * maxClaiming
	subject := func(i int) string { return "s." + time.Duration(i).String() }
	for i := range subjects {
		declares(t, s.Declarer(5), subject(i), `{"a":1}`, true)
	}
	testutil.EventuallyTrue(t, "no change is under way", func() bool { return len(s.attributes.gate.places) == 0 })
	all.block = make(chan struct{})
	d := s.Declarer(6).(*declarer)
	d.Declare([]byte(subject(0)), []byte(`{"a":1}`), true)
	d.Declare([]byte("new"), []byte(`{"a":1}`), true)
	if n := d.claiming.Load(); n != 0 || len(s.attributes.gate.places) != 0 || s.attributes.gate.waiting.Waiting() != 0 {
		t.Errorf("messages that were only looked at made %d claims", n)
	}
	for i := range subjects {
		if refusal, waited := declares(t, d, subject(i), `{"a":1}`, true); refusal != nil || waited {
			t.Errorf("refused for %+v, waited: %v", refusal, waited)
		}
	}
	if n := d.claiming.Load(); n != maxClaiming {
		t.Errorf("%d claims are under way", n)
	}
	close(all.block)
	testutil.EventuallyTrue(t, "they end", func() bool { return d.claiming.Load() == 0 })
}

// TestRefusalsInsideOfAFastBatchDoNotEndIt: for its publisher, an answer without a type does.
func TestRefusalsInsideOfAFastBatchDoNotEndIt(t *testing.T) {
	refusal := refusalOf(refuse(BadRequest, "it's wrong"))
	for reply, want := range map[string]string{
		"":                          "",
		"_INBOX.a":                  "",
		"_INBOX.id.10.ok.1.0.$FI":   "", // its first message
		"_INBOX.id.10.ok.2.1.$FI":   "err",
		"_INBOX.id.10.fail.2.1.$FI": "err",
		"_INBOX.id.10.ok.3.2.$FI":   "", // its last one
		"_INBOX.id.10.ok.3.3.$FI":   "", // the end behind it
		"_INBOX.id.10.ok.1.4.$FI":   "err",
		"_INBOX.id.10.fail.3.4.$FI": "err",
		"_INBOX.id.10.ok.1.1.$FI":   "", // none of a batch
	} {
		var is struct {
			Type  string
			Error *jsapi.Error
		}
		answer := refusal.Answer([]byte(reply))
		testutil.Must(t, json.Unmarshal(answer, &is))
		if is.Type != want || is.Error == nil || is.Error.Code != 400 {
			t.Errorf("to %q the answer is %s, want type %q", reply, answer, want)
		}
	}
}
