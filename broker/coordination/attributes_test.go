package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// attributes is the Attributes of a broker of the test, with the changes that it was told of.
type attributes struct {
	*Attributes
	t    *testing.T
	news news
	mu   sync.Mutex
	told []attribute.Event
	stop func() // ends following
}

func (e *etcdServer) attributes(endpoint ...string) *attributes {
	e.t.Helper()
	if endpoint == nil {
		endpoint = []string{e.Endpoint()}
	}
	opened, err := OpenAttributes(Config{Endpoints: endpoint, Cluster: "default/main", Logger: testLogger(e.t)}, attribute.NewStore())
	if err != nil {
		e.t.Fatal(err)
	}
	opened.c.silent = testutil.Patience
	// A change whose answer is late is sent again, and may lose against itself. Machines may be slow.
	opened.soon = requestTimeout
	a := &attributes{Attributes: opened, t: e.t}
	if _, ok := a.Store().Tell(func(event attribute.Event) {
		a.mu.Lock()
		a.told = append(a.told, event)
		a.mu.Unlock()
		a.news.tell()
	}); !ok {
		e.t.Fatal("nobody may be told")
	}
	e.t.Cleanup(func() { _ = a.Close() })
	a.follow()
	return a
}

// follow follows etcd until a.stop.
func (a *attributes) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Follow(ctx) }()
	var once sync.Once
	a.stop = func() { once.Do(func() { cancel(); <-done }) }
	a.t.Cleanup(a.stop)
	testutil.EventuallyTrue(a.t, "the attributes that there are", func() bool { return a.Store().Stats().Ready })
}

// sees waits until a subject has attributes; empty: none.
func (a *attributes) sees(subject, want string) {
	a.t.Helper()
	testutil.EventuallyTrue(a.t, subject+" with "+want, func() bool { return a.Store().Get(subject).Text == want })
}

func (a *attributes) change(changes ...attribute.Change) []Outcome {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	out, err := a.Change(ctx, changes)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

// set makes a change that succeeds.
func (a *attributes) set(change attribute.Change) attribute.Entry {
	a.t.Helper()
	out := a.change(change)
	if out[0].Err != nil {
		a.t.Fatal(out[0].Err)
	}
	return out[0].Entry
}

func room(subject, room string) attribute.Change {
	return attribute.Change{Subject: subject, Set: attribute.Set{"room": attribute.String(room)}}
}

func TestAttributesAreChangedAndFollowed(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, b := etcd.attributes(), etcd.attributes()
	holder := attribute.Holder{Broker: "a", Process: 1, Connection: 7}
	first := a.set(attribute.Change{Subject: "s.1", Set: attribute.Set{"room": attribute.String("<410>"), "floor": attribute.Number(4)}, Holder: &holder, User: "ann"})
	if first.Text != `{"floor":4,"room":"<410>"}` || first.Revision == 0 || a.Store().Get("s.1") != first {
		t.Errorf("the answer is %+v, and the broker has %+v", first, a.Store().Get("s.1"))
	}
	b.sees("s.1", first.Text)
	if got := b.Store().Get("s.1"); got != first {
		t.Errorf("the other broker has %+v, want %+v", got, first)
	}
	again := b.set(room("s.1", "<410>"))
	if again != first {
		t.Errorf("an equal change made %+v of %+v", again, first)
	}
	gone := b.set(attribute.Change{Subject: "s.1", Delete: []string{"room", "floor"}})
	if gone.Text != "" || gone.Revision <= first.Revision {
		t.Errorf("the last attributes were deleted, and the answer is %+v", gone)
	}
	a.sees("s.1", "")
	if none := a.set(attribute.Change{Subject: "s.1", Replace: true}); none.Text != "" || none.Revision < gone.Revision {
		t.Errorf("nothing was deleted again, and the answer is %+v", none)
	}
	if at := first.Revision; true {
		moved := as[*attribute.MovedError](t, a.change(attribute.Change{Subject: "s.1", If: &at})[0].Err)
		if moved.Revision != 0 {
			t.Errorf("of deleted attributes, revision %d is named", moved.Revision)
		}
	}
	for i, want := range []bool{true, false, true, false} {
		set := room("s.2", "1")
		if i >= 2 {
			set = attribute.Change{Subject: "s.2", Replace: true}
		}
		if out := a.change(set)[0]; out.Written != want {
			t.Errorf("change %d is answered by %+v", i, out)
		}
	}
	if is := a.Store().Stats(); is.History == "" || is.History != b.Store().Stats().History {
		t.Errorf("the histories are %q and %q", is.History, b.Store().Stats().History)
	}
	as[*InvalidError](t, a.change(attribute.Change{Subject: "s.1", Set: attribute.Set{"x": attribute.String(strings.Repeat("x", 3000))}},
		attribute.Change{Subject: "s.1", Set: attribute.Set{"y": attribute.String(strings.Repeat("y", 3000))}})[1].Err)
	if _, err := a.Change(context.Background(), []attribute.Change{{Subject: "*"}}); err == nil {
		t.Error("a subject with wildcards has attributes")
	}
}

// TestChangesOfOneSubjectAllHold: brokers merge into one subject at once, each from several
// connections, and a counter of revisions is raised by whoever is first.
func TestChangesOfOneSubjectAllHold(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	brokers := []*attributes{etcd.attributes(), etcd.attributes()}
	const each = 40
	var running sync.WaitGroup
	for i, a := range brokers {
		for n := range each {
			running.Go(func() {
				a.set(attribute.Change{Subject: "s", Set: attribute.Set{fmt.Sprintf("b%d-%d", i, n): attribute.Bool(true)}})
			})
		}
	}
	running.Wait()
	for _, a := range brokers {
		testutil.EventuallyTrue(t, "all merges", func() bool { e := a.Store().Get("s"); return len(e.Set()) == 2*each })
	}
	// Of changes that name one revision, one holds.
	at := brokers[0].Store().Get("s").Revision
	var won, lost int
	var mu sync.Mutex
	for i, a := range brokers {
		for n := range 5 {
			running.Go(func() {
				change := room("s", fmt.Sprint(i, n))
				change.If = &at
				out := a.change(change)
				mu.Lock()
				defer mu.Unlock()
				if moved := (*attribute.MovedError)(nil); errors.As(out[0].Err, &moved) {
					lost++
				} else if out[0].Err == nil {
					won++
				}
			})
		}
	}
	running.Wait()
	if won != 1 || lost != 9 {
		t.Errorf("%d changes of one revision held, and %d were refused", won, lost)
	}
}

// TestChangesOfOneCallKeepTheirOrder: a later change of a subject is made of what the earlier one
// left, and the others share transactions.
func TestChangesOfOneCallKeepTheirOrder(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	changes := []attribute.Change{room("s", "1"), room("s", "2"), {Subject: "s", Replace: true}, room("s", "3")}
	for i := range 50 {
		changes = append(changes, room(fmt.Sprintf("other.%d", i), "x"))
	}
	before := revisionOfEtcd(t, a.c)
	out := a.change(changes...)
	for i, want := range []string{`{"room":"1"}`, `{"room":"2"}`, "", `{"room":"3"}`} {
		if out[i].Err != nil || out[i].Entry.Text != want {
			t.Errorf("change %d: %+v", i, out[i])
		}
	}
	if made := revisionOfEtcd(t, a.c) - before; made != 4 {
		t.Errorf("%d transactions were made", made)
	}
	a.sees("s", `{"room":"3"}`)
	a.sees("other.49", `{"room":"x"}`)
}

func revisionOfEtcd(t *testing.T, c *Client) int64 {
	t.Helper()
	got, err := c.etcd.Get(context.Background(), "none")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.GetRevision()
}

// TestTheStateIsWithoutAttributes: a flood of attributes wakes no watch of the State.
func TestTheStateIsWithoutAttributes(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, main := etcd.attributes(), etcd.open()
	var mu sync.Mutex
	got := map[string]bool{}
	ctx, stop := context.WithCancel(context.Background())
	m := mirror{c: main, prefix: main.prefix, first: main.stateFrom(), keys: func() []string { return nil },
		put: func(kv *mvccpb.KeyValue) {
			mu.Lock()
			defer mu.Unlock()
			got[string(kv.GetKey())] = true
		},
		remove: func([]byte, int64) {}, complete: func(int64) error { return nil }}
	a.set(room("s.0", "1"))
	ended := make(chan struct{})
	go func() { defer close(ended); m.run(ctx) }()
	defer func() { stop(); <-ended }()
	for i := range 100 {
		a.set(room(fmt.Sprintf("s.%d", i), "2"))
		if i == 50 {
			main.mustCreate(t, "orders", TopicSpec{Subjects: []string{"orders"}, Shards: 1}, client)
		}
	}
	main.mustCreate(t, "later", TopicSpec{Subjects: []string{"later"}, Shards: 1}, client)
	has := func(key string) bool { mu.Lock(); defer mu.Unlock(); return got[key] }
	testutil.EventuallyTrue(t, "the Topics", func() bool { return has(main.topicKey("orders")) && has(main.topicKey("later")) })
	mu.Lock()
	defer mu.Unlock()
	for key := range got {
		if strings.Contains(key, "attributes") {
			t.Errorf("the State's watch brought %s", key)
		}
	}
}

// TestAttributesAreReadAgainAfterACompaction: a broker's watch was away while etcd forgot the
// history that it lacks.
func TestAttributesAreReadAgainAfterACompaction(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, b := etcd.attributes(), etcd.attributes()
	a.set(room("kept", "1"))
	a.set(room("gone", "1"))
	b.sees("gone", `{"room":"1"}`)
	b.sees("kept", `{"room":"1"}`)
	b.stop()
	a.set(attribute.Change{Subject: "gone", Replace: true})
	a.set(room("new", "1"))
	last := a.set(room("kept", "2"))
	if _, err := a.c.etcd.Compact(context.Background(), last.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	b.follow()
	b.sees("gone", "")
	b.sees("new", `{"room":"1"}`)
	b.sees("kept", `{"room":"2"}`)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.told {
		if e.Subject == "gone" && e.After == nil {
			return
		}
	}
	t.Errorf("nobody was told of the deletion: %v", b.told)
}

// TestAttributesGoBackWithARestoredEtcd: what was acknowledged since the backup is gone, on brokers
// that stayed, and what is written then is taken although its revisions were given before.
func TestAttributesGoBackWithARestoredEtcd(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, b := etcd.attributes(), etcd.attributes()
	a.set(room("kept", "1"))
	a.set(room("back", "1"))
	backup := etcd.Backup()
	a.set(room("kept", "2"))
	a.set(room("later", "1"))
	a.set(attribute.Change{Subject: "back", Replace: true})
	for i := range 20 {
		a.set(room("kept", fmt.Sprint(i)))
	}
	b.sees("kept", `{"room":"19"}`)
	b.sees("back", "")
	etcd.Restore(backup)
	etcd.Start()
	for _, x := range []*attributes{a, b} {
		x.sees("kept", `{"room":"1"}`)
		x.sees("back", `{"room":"1"}`)
		x.sees("later", "")
	}
	for _, x := range []*attributes{a, b} {
		testutil.EventuallyTrue(t, "a change after the restore", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
			defer cancel()
			out, err := x.Change(ctx, []attribute.Change{{Subject: "kept", Set: attribute.Set{"after": attribute.Bool(true)}}})
			return err == nil && out[0].Err == nil
		})
	}
	for _, x := range []*attributes{a, b} {
		x.sees("kept", `{"after":true,"room":"1"}`)
	}
}

// TestChangesSurviveLostAnswers: etcd carries out transactions and their answers are lost, as when
// its leader changes. Each change is answered, once, and holds.
func TestChangesSurviveLostAnswers(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	a.stop()
	lossy := &lossyKV{KV: a.c.etcd.KV}
	a.c.etcd.KV = lossy
	a.follow()
	none := int64(0)
	for i := range 6 {
		subject := fmt.Sprintf("s.%d", i)
		lossy.lose(1 + i%2)
		change := room(subject, "1")
		change.If = &none
		made := a.set(change)
		lossy.lose(1)
		change = room(subject, "2")
		change.If = &made.Revision
		a.set(change)
		lossy.lose(i % 2)
		if i >= 3 {
			at := a.Store().Get(subject).Revision
			a.set(attribute.Change{Subject: subject, Replace: true, If: &at})
			a.sees(subject, "")
		} else {
			a.sees(subject, `{"room":"2"}`)
		}
	}
}

// lossyKV loses the answers of transactions.
type lossyKV struct {
	clientv3.KV
	mu      sync.Mutex
	left    int
	refused int             // transactions that are not carried out
	lost    func()          // called when an answer is lost
	silent  int             // transactions with changes that are never answered, and not carried out
	times   []time.Duration // what transactions with changes had until their deadline
}

// refuse has the next n transactions with writes fail.
func (l *lossyKV) refuse(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = n
}

func (l *lossyKV) lose(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = n
}

func (l *lossyKV) Txn(ctx context.Context) clientv3.Txn {
	return &lossyTxn{Txn: l.KV.Txn(ctx), ctx: ctx, l: l}
}

type lossyTxn struct {
	clientv3.Txn
	ctx     context.Context
	l       *lossyKV
	changes bool // it has changes, each a transaction
}

func (t *lossyTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }
func (t *lossyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn, t.changes = t.Txn.Then(ops...), ops[0].IsTxn()
	return t
}
func (t *lossyTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

func (t *lossyTxn) Commit() (*clientv3.TxnResponse, error) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	if deadline, ok := t.ctx.Deadline(); t.changes && ok {
		t.l.times = append(t.l.times, time.Until(deadline))
	}
	if t.changes && t.l.silent > 0 {
		t.l.silent--
		<-t.ctx.Done()
		return nil, t.ctx.Err()
	}
	if t.changes && t.l.refused > 0 {
		t.l.refused--
		return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
	}
	done, err := t.Txn.Commit()
	if t.l.lost != nil && t.changes && err == nil && t.l.left > 0 {
		lost := t.l.lost
		t.l.lost, t.l.left = nil, 0
		t.l.mu.Unlock()
		lost()
		t.l.mu.Lock()
		return nil, status.Error(codes.Unavailable, "etcdserver: leader changed")
	}
	if t.l.lost == nil && err == nil && t.l.left > 0 {
		t.l.left--
		return nil, status.Error(codes.Unavailable, "etcdserver: leader changed")
	}
	return done, err
}

// TestAttributesHaveABound: brokers that fill it at once exceed it by what each may have written
// unseen at most, and smaller attributes are never refused.
func TestAttributesHaveABound(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	brokers := []*attributes{etcd.attributes(), etcd.attributes(), etcd.attributes()}
	const most, unseen = 300, 100
	for _, a := range brokers {
		a.most = attributeRoom{most, 1 << 20, unseen, 1 << 20}
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	for i, a := range brokers {
		running.Go(func() {
			for n := 0; n < most; n += 50 {
				var changes []attribute.Change
				for j := range 50 {
					changes = append(changes, room(fmt.Sprintf("s.%d.%d", i, n+j), "x"))
				}
				for _, o := range a.change(changes...) {
					if full := (*AttributesFullError)(nil); errors.As(o.Err, &full) {
						mu.Lock()
						refused++
						mu.Unlock()
					} else if o.Err != nil {
						t.Error(o.Err)
					}
				}
			}
		})
	}
	running.Wait()
	total := 3*most - refused
	for _, a := range brokers {
		testutil.EventuallyTrue(t, "all subjects", func() bool { return a.Store().Stats().Subjects == total })
	}
	// A transaction of up to 100 changes is begun below the bound of unseen ones.
	if slack := 2 * (unseen + attribute.MaxChanges); total < most || total > most+slack {
		t.Errorf("there are %d subjects, with a bound of %d and a slack of %d", total, most, slack)
	}
	a := brokers[0]
	subject := a.Store().Subjects()[0]
	as[*AttributesFullError](t, a.change(room("another", "1"))[0].Err)
	a.set(room(subject, "y"))
	for _, s := range a.Store().Subjects()[:total-most+1] {
		a.set(attribute.Change{Subject: s, Replace: true})
	}
	a.set(room("another", "1"))
	a.most.bytes = a.Store().Stats().Bytes
	as[*AttributesFullError](t, a.change(room("another", "longer"))[0].Err)
	a.set(room("another", ""))
	if got := a.Stats().Refused; got == 0 {
		t.Error("refusals are not counted")
	}
}

// TestABrokerWaitsForItsWatch: a broker whose watch is behind writes a bounded number of subjects.
func TestABrokerWaitsForItsWatch(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	a.most.unseenSubjects = 10
	first := a.set(room("first", "1"))
	testutil.EventuallyTrue(t, "the watch", func() bool { return a.Store().Stats().Revision >= first.Revision })
	a.stop()
	for i := range 10 {
		a.set(room(fmt.Sprintf("s.%d", i), "1"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*awaitWatch)
	defer cancel()
	if a.awaitWatch(ctx) {
		t.Errorf("it would write more: its watch lacks %+v", a.unseen.sum)
	}
	waiting := make(chan error)
	go func() {
		_, err := a.Change(context.Background(), []attribute.Change{room("last", "1")})
		waiting <- err
	}()
	a.follow()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	a.sees("last", `{"room":"1"}`)
}

// TestAFailingEtcdDelaysNoLaterChanges: many transactions fail, so that a broker may have written
// as much as its watch may lack, or nothing. It goes on when etcd does.
func TestAFailingEtcdDelaysNoLaterChanges(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	a.most.unseenSubjects = 3
	a.set(room("first", "1"))
	lossy := &lossyKV{KV: a.c.etcd.KV}
	a.stop()
	a.c.etcd.KV = lossy
	a.follow()
	lossy.refuse(5)
	a.set(room("s", "1"))
	lossy.refuse(5)
	a.set(room("s", "2"))
	// What is found to be there needs no write. So the watch brings none.
	lossy.refuse(5)
	a.set(room("first", "1"))
	a.set(room("t", "1"))
}

// TestAChangeIsSentAgainSoon: the leader of etcd dies, and what it was asked is never answered. A
// change is sent to its successor long before requestTimeout, and a slow etcd is given that later.
func TestAChangeIsSentAgainSoon(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	a.stop()
	lossy := &lossyKV{KV: a.c.etcd.KV, silent: soonAttempts}
	a.c.etcd.KV, a.soon = lossy, soonTimeout
	a.follow()
	a.set(room("s", "1"))
	a.sees("s", `{"room":"1"}`)
	lossy.mu.Lock()
	defer lossy.mu.Unlock()
	if len(lossy.times) <= soonAttempts {
		t.Fatalf("the change was sent %d times", len(lossy.times))
	}
	for i, left := range lossy.times {
		if soon := left <= soonTimeout; soon != (i < soonAttempts) {
			t.Errorf("transaction %d was given %v", i, left)
		}
	}
}

// TestAChangeWhoseAnswerWasLostHasNotFailed: another broker changes the subject before it is sent
// again. That it was at another revision would say that it was not made.
func TestAChangeWhoseAnswerWasLostHasNotFailed(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, b := etcd.attributes(), etcd.attributes()
	a.stop()
	lossy := &lossyKV{KV: a.c.etcd.KV}
	a.c.etcd.KV = lossy
	a.follow()
	lossy.mu.Lock()
	lossy.left = 1
	lossy.lost = func() {
		b.sees("s", `{"room":"1"}`)
		b.set(room("s", "2"))
		a.sees("s", `{"room":"2"}`)
	}
	lossy.mu.Unlock()
	none := int64(0)
	change := room("s", "1")
	change.If = &none
	err := a.change(change)[0].Err
	if moved := (*attribute.MovedError)(nil); err == nil || errors.As(err, &moved) {
		t.Errorf("it was answered by %v", err)
	}
}

// TestHeldAttributesGoInBatches: a broker with many bound subjects is gone. They are deleted a
// bounded number at a time, and those that others have claimed meanwhile stay.
func TestHeldAttributesGoInBatches(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, b, main := etcd.attributes(), etcd.attributes(), etcd.open()
	const subjects, claimed = 10_000, 150
	// One of them holds half, each of the others one.
	dead, alive := make([]attribute.Holder, subjects/2+1), attribute.Holder{Broker: "b", Process: 1, Connection: 2}
	for i := range dead {
		dead[i] = attribute.Holder{Broker: "dead", Process: 1, Connection: uint64(i)}
	}
	var changes []attribute.Change
	for i := range subjects {
		change := room(fmt.Sprintf("s.%05d", i), "1")
		change.Holder = &dead[min(i, subjects/2)]
		if changes = append(changes, change); len(changes) == attribute.MaxChanges {
			a.change(changes...)
			changes = nil
		}
	}
	testutil.EventuallyTrue(t, "all subjects", func() bool { return b.Store().Stats().Subjects == subjects })
	// a does not hear of the claims before etcd tells it in answer to its deletions.
	a.stop()
	for i := range claimed {
		change := room(fmt.Sprintf("s.%05d", i*subjects/claimed), "1")
		change.Holder = &alive
		if changes = append(changes, change); len(changes) == attribute.MaxChanges || i == claimed-1 {
			b.change(changes...)
			changes = nil
		}
	}
	revision := revisionOfEtcd(t, a.c)
	ctx := context.Background()
	// It is registered again: nothing goes.
	self := Replica{"dead", main.join(t, broker("dead")).incarnation()}
	_, _, err := a.DeleteHeld(ctx, dead, &Registered{Broker: "dead"})
	as[*StaleError](t, err)
	deleted, changed := 0, 0
	for {
		d, c, err := a.DeleteHeld(ctx, dead, &Registered{Broker: "dead", Incarnation: self.Incarnation})
		if err != nil {
			t.Fatal(err)
		}
		if d+c == 0 {
			break
		}
		if d+c > attribute.MaxChanges {
			t.Fatalf("%d subjects in one batch", d+c)
		}
		deleted, changed = deleted+d, changed+c
	}
	if deleted != subjects-claimed || changed != claimed {
		t.Errorf("%d were deleted, and %d found changed", deleted, changed)
	}
	if made := revisionOfEtcd(t, a.c) - revision; made > subjects/attribute.MaxChanges+10 {
		t.Errorf("%d transactions were made", made)
	}
	testutil.EventuallyTrue(t, "the claimed ones only", func() bool {
		return b.Store().Stats().Subjects == claimed && len(b.Store().HeldBy(alive, subjects)) == claimed
	})
}

// TestUnreadableAttributesAreLeftOut: a value that a later version wrote hides no other one.
func TestUnreadableAttributesAreLeftOut(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.attributes()
	a.set(room("s", "1"))
	for key, value := range map[string]string{"s": `{"v":9}`, "other": `{`, "third": `{"v":1,"attributes":{"a":{}}}`} {
		if _, err := a.c.etcd.Put(context.Background(), a.key(key), value); err != nil {
			t.Fatal(err)
		}
	}
	a.set(room("last", "1"))
	testutil.EventuallyTrue(t, "the watch", func() bool { return a.Store().Stats().Revision >= a.Store().Get("last").Revision })
	a.sees("s", `{"room":"1"}`)
	if got := a.Store().Stats().Subjects; got != 2 {
		t.Errorf("%d subjects are known", got)
	}
	as[*InvalidError](t, a.change(room("other", "1"))[0].Err)
}
