package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// described is attributes without an etcd.
type described struct {
	store *attribute.Store
	mu    sync.Mutex
	at    int64
	calls int
	block chan struct{} // if not nil, changes wait for it
	err   error         // of changes
}

func (d *described) Store() *attribute.Store { return d.store }

func (d *described) Change(ctx context.Context, changes []attribute.Change) (out []coordination.Outcome, err error) {
	if d.block != nil {
		select {
		case <-d.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return []coordination.Outcome{{Err: d.err}}, nil
	}
	d.calls++
	for i := range changes {
		d.at++
		e, err := changes[i].Apply(d.store.Get(changes[i].Subject))
		switch {
		case err != nil:
		case e.Text == "":
			d.store.Delete(changes[i].Subject, d.at)
			e.Revision = d.at
		default:
			e.Revision = d.at
			d.store.Put(e)
		}
		out = append(out, coordination.Outcome{Entry: e, Err: err})
	}
	return out, nil
}

// letterbox is a hub whose answers come from other goroutines.
type letterbox struct {
	inbox
	mu  sync.Mutex
	all map[string][]byte // by reply subject
	n   int
}

func (b *letterbox) Send(messages []protocol.Message) (behind work.Behind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		b.all[string(m.Subject)] = m.Data
	}
	return behind
}

// asks makes a request of a client, and returns its answer.
func (b *letterbox) asks(t *testing.T, s *Server, client uint64, subject, payload string, answer any) {
	t.Helper()
	b.n++
	reply := fmt.Sprint("_INBOX.", b.n)
	s.TakeOf(client, []protocol.Message{{Subject: []byte(subject), Reply: []byte(reply), Data: []byte(payload)}}, nil, &work.Behind{})
	var data []byte
	testutil.EventuallyTrue(t, "an answer to "+subject, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		data = b.all[reply]
		return data != nil
	})
	if err := json.Unmarshal(data, answer); err != nil {
		t.Fatalf("%s was answered by %s: %v", subject, data, err)
	}
}

func attributesServer(t *testing.T, users string, rate float64) (*Server, *letterbox, *described) {
	t.Helper()
	box := &letterbox{all: map[string][]byte{}}
	all := &described{store: attribute.NewStore()}
	all.store.Listed(0)
	rights := func(uint64) *identity.Identity { return nil }
	if users != "" {
		document, err := identity.Parse([]byte(users))
		if err != nil {
			t.Fatal(err)
		}
		table, err := document.Table()
		if err != nil {
			t.Fatal(err)
		}
		rights = func(client uint64) *identity.Identity { return table.User(fmt.Sprint("user", client)).Identity }
	}
	s := New("a", known{&coordination.State{}}, box, slog.New(slog.DiscardHandler)).Attributes(all, 99, rights, func() float64 { return rate })
	t.Cleanup(s.Close)
	return s, box, all
}

func TestAttributesAreSetReadListedAndDeleted(t *testing.T) {
	s, box, all := attributesServer(t, "", 1e6)
	var one SubjectAttributes
	box.asks(t, s, 7, AttributesSetSubject, `{"subject":"sensors.7","set":{"room":"410","tags":["a",1]},"bound":true}`, &one)
	if one.Error != nil || one.Subject != "sensors.7" || one.Revision != 1 || string(one.Attributes) != `{"room":"410","tags":["a",1]}` || !one.Bound {
		t.Errorf("answered by %+v", one)
	}
	if got := all.store.Get("sensors.7").Holder; got != (attribute.Holder{Broker: "a", Process: 99, Connection: 7}) {
		t.Errorf("bound to %+v", got)
	}
	var many AttributesResults
	box.asks(t, s, 7, AttributesSetSubject, `{"changes":[{"subject":"sensors.7","delete":["tags"]},{"subject":"b.1","set":{"n":1},"if_revision":9},{"subject":"b.2","set":{"n":1}}]}`, &many)
	if len(many.Results) != 3 || string(many.Results[0].Attributes) != `{"room":"410"}` || !many.Results[0].Bound || many.Results[1].Error == nil || many.Results[1].Error.Code != Changed || many.Results[2].Error != nil {
		t.Errorf("answered by %+v", many)
	}
	box.asks(t, s, 8, AttributesSetSubject, `{"subject":"sensors.7","bound":false}`, &many)
	if all.store.Get("sensors.7").Holder != (attribute.Holder{}) {
		t.Error("still bound")
	}
	one = SubjectAttributes{}
	box.asks(t, s, 7, AttributesGetSubject, `{"subject":"sensors.7"}`, &one)
	if one.Error != nil || string(one.Attributes) != `{"room":"410"}` || one.Bound {
		t.Errorf("got %+v", one)
	}
	var list AttributesList
	box.asks(t, s, 7, AttributesListSubject, `{"limit":1}`, &list)
	if len(list.Subjects) != 1 || list.Subjects[0].Subject != "b.2" || list.Next != "b.2" || list.Total != 2 {
		t.Errorf("listed %+v", list)
	}
	list = AttributesList{}
	box.asks(t, s, 7, AttributesListSubject, `{"after":"b.2"}`, &list)
	if len(list.Subjects) != 1 || list.Subjects[0].Subject != "sensors.7" || list.Next != "" {
		t.Errorf("listed %+v", list)
	}
	list = AttributesList{}
	box.asks(t, s, 7, AttributesListSubject, `{"subjects":"b.*"}`, &list)
	if len(list.Subjects) != 1 || list.Subjects[0].Subject != "b.2" {
		t.Errorf("listed %+v", list)
	}
	one = SubjectAttributes{}
	box.asks(t, s, 7, AttributesDeleteSubject, `{"subject":"b.2"}`, &one)
	if one.Error != nil || one.Attributes != nil || one.Revision == 0 {
		t.Errorf("the deletion is answered by %+v", one)
	}
	one = SubjectAttributes{}
	box.asks(t, s, 7, AttributesGetSubject, `{"subject":"b.2"}`, &one)
	if one.Error == nil || one.Error.Code != NotFound {
		t.Errorf("got deleted attributes: %+v", one)
	}
}

func TestWrongRequestsForAttributesAreRefused(t *testing.T) {
	s, box, all := attributesServer(t, "", 1e6)
	for _, tc := range [][2]string{
		{AttributesSetSubject, ``}, {AttributesSetSubject, `{}`}, {AttributesSetSubject, `{"subject":"a.*","set":{"a":1}}`},
		{AttributesSetSubject, `{"subject":"$SYS.a","set":{"a":1}}`}, {AttributesSetSubject, `{"subject":"a","set":{"a":null}}`},
		{AttributesSetSubject, `{"subject":"a","set":{"a":{}}}`}, {AttributesSetSubject, `{"subject":"a","set":{"1":1}}`}, {AttributesSetSubject, `{"subject":"a","sets":{}}`},
		{AttributesSetSubject, `{"subject":"a","changes":[{"subject":"b"}]}`}, {AttributesSetSubject, `{"changes":[{"subject":"a","set":{"a":1}},{"subject":"b","set":{"a b":1}}]}`},
		{AttributesSetSubject, `{"changes":[` + strings.Repeat(`{"subject":"a"},`, 100) + `{"subject":"a"}]}`},
		{AttributesSetSubject, `{"subject":"a","set":{"a":"` + strings.Repeat("x", 4096) + `"}}`},
		{AttributesGetSubject, `{}`}, {AttributesGetSubject, `{"subject":"a","if_revision":1}`}, {AttributesDeleteSubject, ``}, {AttributesListSubject, `{"subjects":"a..b"}`}, {AttributesListSubject, `{"limit":257}`},
		{AttributesSetSubject + ".a", `{}`}, {Prefix + "ATTRIBUTES.OTHER", ``},
	} {
		var got onlyError
		box.asks(t, s, 7, tc[0], tc[1], &got)
		if got.Error == nil || got.Error.Code != BadRequest || len(got.Error.Text) > 1000 {
			t.Errorf("%s %.100s: %+v", tc[0], tc[1], got.Error)
		}
	}
	var got onlyError
	box.asks(t, s, 0, AttributesSetSubject, `{"subject":"a","set":{"a":1}}`, &got)
	if got.Error == nil || got.Error.Code != Forbidden {
		t.Errorf("a request of nobody: %+v", got.Error)
	}
	if all.calls > 0 {
		t.Error("a wrong request has changed something")
	}
}

func TestAttributesAreShownByRights(t *testing.T) {
	s, box, all := attributesServer(t, `{"users":[
		{"name":"user1","certificates":["dns:one"],"permissions":{"publish":{"allow":["mine.>"]},"subscribe":{"allow":["mine.>","shared.*"],"deny":["mine.secret"]}}},
		{"name":"user2","certificates":["dns:two"]}]}`, 1e6)
	for _, subject := range []string{"mine.a", "mine.secret", "other.a", "shared.a"} {
		var one SubjectAttributes
		box.asks(t, s, 2, AttributesSetSubject, `{"subject":"`+subject+`","set":{"a":1}}`, &one)
		if one.Error != nil || one.User != "user2" {
			t.Fatalf("%+v", one)
		}
	}
	calls := all.calls
	for _, payload := range []string{`{"subject":"shared.a","set":{"a":2}}`, `{"changes":[{"subject":"mine.a","set":{"a":2}},{"subject":"other.a","set":{"a":2}}]}`} {
		var got onlyError
		box.asks(t, s, 1, AttributesSetSubject, payload, &got)
		if got.Error == nil || got.Error.Code != Forbidden {
			t.Errorf("%s: %+v", payload, got.Error)
		}
	}
	if all.calls != calls {
		t.Error("a request without rights has changed something")
	}
	for subject, want := range map[string]Code{"mine.a": "", "shared.a": "", "mine.secret": Forbidden, "other.a": Forbidden, "other.none": Forbidden} {
		var one SubjectAttributes
		box.asks(t, s, 1, AttributesGetSubject, `{"subject":"`+subject+`"}`, &one)
		if (one.Error == nil) != (want == "") || want != "" && one.Error.Code != want {
			t.Errorf("%s: %+v", subject, one)
		}
	}
	var list AttributesList
	box.asks(t, s, 1, AttributesListSubject, ``, &list)
	if len(list.Subjects) != 2 || list.Subjects[0].Subject != "mine.a" || list.Subjects[1].Subject != "shared.a" || list.Total != 0 {
		t.Errorf("listed %+v", list)
	}
}

// TestChangesShowNoMoreThanRequests: a publisher that may not see attributes does not learn
// them from the answers to its changes. A change of nothing would be enough to ask for them.
func TestChangesShowNoMoreThanRequests(t *testing.T) {
	s, box, _ := attributesServer(t, `{"users":[
		{"name":"user1","certificates":["dns:one"],"permissions":{"subscribe":{"allow":["mine"]}}},
		{"name":"user2","certificates":["dns:two"]},
		{"name":"user3","certificates":["dns:three"],"roles":["publisher"]}]}`, 1e6)
	for _, subject := range []string{"mine", "s"} {
		var one SubjectAttributes
		box.asks(t, s, 2, AttributesSetSubject, `{"subject":"`+subject+`","set":{"a":1},"bound":true}`, &one)
		if string(one.Attributes) != `{"a":1}` || !one.Bound {
			t.Fatalf("%+v", one)
		}
	}
	for client, subjects := range map[uint64]map[string]bool{1: {"mine": true, "s": false}, 3: {"mine": false, "s": false}} {
		for subject, sees := range subjects {
			var one SubjectAttributes
			box.asks(t, s, client, AttributesSetSubject, `{"subject":"`+subject+`","set":{}}`, &one)
			if one.Error != nil || one.Subject != subject || one.Revision == 0 || (one.Attributes != nil) != sees || one.Bound != sees || (one.User != "") != sees {
				t.Errorf("user%d, %s: %+v", client, subject, one)
			}
		}
	}
}

// TestAPageEndsWithNoHiddenSubject: a request looks at a bounded number of subjects, and the one
// where it ends is named in the answer.
func TestAPageEndsWithNoHiddenSubject(t *testing.T) {
	s, box, all := attributesServer(t, `{"users":[
		{"name":"user1","certificates":["dns:one"],"permissions":{"subscribe":{"allow":["mine.>"]}}}]}`, 1e6)
	names := []string{"mine.z"}
	for i := range listLooks + 10 {
		names = append(names, fmt.Sprintf("hidden.%05d", i))
	}
	for i, subject := range names {
		all.store.Put(attribute.Entry{Subject: subject, Revision: int64(i + 1), Text: `{"a":1}`, Bytes: 20})
	}
	var list AttributesList
	box.asks(t, s, 1, AttributesListSubject, ``, &list)
	if len(list.Subjects) != 1 || list.Subjects[0].Subject != "mine.z" || list.Next != "" {
		t.Errorf("%+v", list)
	}
}

// TestChangesPassInTurn: a client has all places, and many requests that wait. Another one passes
// after the one that has its turn, and one more.
func TestChangesPassInTurn(t *testing.T) {
	g := newChangeGate(func() float64 { return 1e6 })
	passes, leave, end := make(chan uint64), make(chan struct{}), make(chan struct{})
	submit := func(key uint64, do func()) {
		if !g.submit(work.Client{User: key}, 1, 10, func(context.Context) { do() }, func() {}) {
			t.Error("refused")
		}
	}
	for range changesAtOnce {
		submit(1, func() { <-leave })
	}
	testutil.EventuallyTrue(t, "all places", func() bool { return len(g.places) == changesAtOnce })
	note := func(key uint64) func() {
		return func() {
			select {
			case passes <- key:
			case <-end:
			}
			<-end // it keeps its place
		}
	}
	for range 200 {
		submit(1, note(1))
	}
	testutil.EventuallyTrue(t, "one with its turn", func() bool { return g.waiting.Waiting() == 199 })
	submit(2, note(2))
	var order []uint64
	for range 3 {
		leave <- struct{}{}
		select {
		case key := <-passes:
			order = append(order, key)
		case <-time.After(testutil.Patience):
			t.Fatal("nothing passes")
		}
	}
	if !slices.Contains(order, 2) {
		t.Errorf("of two clients, these passed: %v", order)
	}
	close(leave)
	close(end)
	g.close()
}

// TestLargeRequestsTakeSeveralPlaces: short numbers take many times their text in memory. So few
// requests of them are under way at once.
func TestLargeRequestsTakeSeveralPlaces(t *testing.T) {
	change := `{"subject":"s","set":{"a":[1` + strings.Repeat(",1", 1999) + `]}}`
	payload := `{"changes":[` + change + strings.Repeat(","+change, attribute.MaxChanges-1) + `]}`
	r, refusal := parse([]byte(AttributesSetSubject), []byte(payload))
	if refusal != nil {
		t.Fatal(refusal)
	}
	memory := 0
	for _, c := range r.attributes.set.Changes {
		memory += (&attribute.Change{Subject: c.Subject, Set: c.Set}).Memory()
	}
	if memory < 20*len(payload) || memory > changesBytes {
		t.Errorf("a request of %d bytes counts as %d of memory, with a bound of %d", len(payload), memory, changesBytes)
	}
	g := newChangeGate(func() float64 { return 1e9 })
	defer g.close()
	for size, want := range map[int]int{100: 1, changesBytes / 2: changesAtOnce/2 + 1, changesBytes: changesAtOnce} {
		took := make(chan int)
		if !g.submit(work.Client{User: 1}, 1, size, func(context.Context) { took <- len(g.places) }, func() { took <- -1 }) {
			t.Fatal("too much waits")
		}
		if got := <-took; got != want {
			t.Errorf("a request of %d bytes takes %d places, want %d", size, got, want)
		}
		testutil.EventuallyTrue(t, "the places to be free", func() bool { return len(g.places) == 0 })
	}
}

// TestChangesBeyondTheirRateAreRefused: what could not pass in time is dropped, and counted.
func TestChangesBeyondTheirRateAreRefused(t *testing.T) {
	s, box, all := attributesServer(t, "", 1)
	var first AttributesResults
	box.asks(t, s, 1, AttributesSetSubject, `{"changes":[`+strings.Repeat(`{"subject":"a","set":{"a":1}},`, 99)+`{"subject":"b","set":{"a":1}}]}`, &first)
	if first.Error != nil || len(first.Results) != 100 {
		t.Fatal(first.Error)
	}
	var got onlyError
	box.asks(t, s, 1, AttributesSetSubject, `{"subject":"a","set":{"a":2}}`, &got)
	if got.Error == nil || got.Error.Code != Busy || s.Stats().TooFast != 1 || all.calls != 1 {
		t.Errorf("%+v, %+v", got.Error, s.Stats())
	}
}
