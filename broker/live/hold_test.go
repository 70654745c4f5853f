package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// slowMesh is links to a broker that answers when it is let go, also after the time to wait for it.
type slowMesh struct {
	t        testing.TB
	notified func()
	asked    chan struct{} // has a token for each Sync that has begun
	let      chan struct{} // takes one for each that ends
	over     chan struct{}
}

func (w *world) linkSlow() *slowMesh {
	m := &slowMesh{w.t, func() {}, make(chan struct{}, 1000), make(chan struct{}), make(chan struct{})}
	w.t.Cleanup(func() { close(m.over) }) // before that of w
	w.live.Link(m, "attributes")
	return m
}

func (m *slowMesh) Notify(coordination.Feature, []byte) (left int) {
	m.notified()
	return 0
}

func (m *slowMesh) Sync(context.Context, coordination.Feature) (late int) {
	m.asked <- struct{}{}
	select {
	case <-m.let:
	case <-m.over:
	}
	return 0
}

// begun waits for the begin of a Sync: what the watch had brought before is held.
func (m *slowMesh) begun() {
	m.t.Helper()
	select {
	case <-m.asked:
	case <-time.After(testutil.Patience):
		m.t.Fatal("nothing is held")
	}
}

// answer ends a Sync.
func (m *slowMesh) answer() {
	m.t.Helper()
	select {
	case m.let <- struct{}{}:
	case <-time.After(testutil.Patience):
		m.t.Fatal("no link is asked")
	}
}

// silentMesh is links to a broker that does not answer.
type silentMesh struct{ slowMesh }

func (silentMesh) Sync(ctx context.Context, _ coordination.Feature) (late int) {
	<-ctx.Done()
	return 1
}

// TestAMemberLeavesBehindItsMessages: the watch of etcd may bring its end before the link brings
// what was published before. Other changes do not wait, and those of a subject come in order.
func TestAMemberLeavesBehindItsMessages(t *testing.T) {
	w := newWorld(t, nil)
	mesh := w.linkSlow()
	w.set("s.1", `{"on":true}`)
	w.set("s.2", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	gone := w.set("s.1", "")
	mesh.begun()
	w.set("s.1", `{"on":true,"again":true}`)
	w.set("s.3", `{"on":true}`)
	f.until("s.3 has come", func() bool { return f.has("s.1", "s.2", "s.3") })
	if f.at >= uint64(gone) {
		t.Errorf("all changes up to %d are told, and that of %d is not", f.at, gone)
	}
	w.publish("s.1", "last")
	if subject, payload := f.next(); subject != "s.1" || payload != "last" {
		t.Errorf("%q of %q", payload, subject)
	}
	mesh.answer()
	mesh.begun() // the second change came after the first round had begun
	f.until("s.1 has left", func() bool { return f.has("s.2", "s.3") })
	w.publish("s.1", "between")
	mesh.answer()
	f.until("s.1 is back", func() bool { return f.has("s.1", "s.2", "s.3") })
	if want := []string{"+s.1", "+s.2", "+s.3", "-s.1", "+s.1"}; !slices.Equal(f.order[2:], want[2:]) || f.at != uint64(w.revision) {
		t.Errorf("the changes are %q, up to revision %d", f.order, f.at)
	}
	w.publish("s.1", "first")
	if subject, payload := f.next(); subject != "s.1" || payload != "first" {
		t.Errorf("%q of %q", payload, subject)
	}
}

// TestAChangeThatItsBrokerTellsOfIsNotHeld: the broker has sent what came before, and nothing of
// the subject is delivered that comes later.
func TestAChangeThatItsBrokerTellsOfIsNotHeld(t *testing.T) {
	w := newWorld(t, nil)
	mesh := w.linkSlow()
	for n := range 3 {
		w.set(fmt.Sprint("s.", n), `{"on":true}`)
	}
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	gone := w.set("s.0", "")
	mesh.begun()
	notice, err := json.Marshal(map[string]any{"history": history, "subject": "s.0", "revision": gone})
	testutil.Must(t, err)
	testutil.Must(t, w.live.Notice("b", notice))
	w.publish("s.0", "late")
	w.publish("s.2", "more")
	f.until("s.0 has left", func() bool { return f.has("s.1", "s.2") })
	if subject, payload := f.next(); subject != "s.2" || payload != "more" {
		t.Errorf("%q of %q", payload, subject)
	}
	gone = w.set("s.1", "") // by this broker, whose watch is ahead of the answer
	w.live.Flush()
	mesh.notified = func() {
		w.publish("s.1", "late")
		w.publish("s.2", "more")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.live.Spread(t.Context(), []coordination.Outcome{{Entry: attribute.Entry{Subject: "s.1", Revision: gone}, Written: true}})
	}()
	f.until("s.1 has left", func() bool { return f.has("s.2") })
	if subject, payload := f.next(); subject != "s.2" || payload != "more" {
		t.Errorf("%q of %q", payload, subject)
	}
	for {
		select {
		case mesh.let <- struct{}{}:
		case <-done:
			return
		}
	}
}

// TestALaterChangeStaysHeld: what a broker tells of a change says nothing of one that another
// broker has made since.
func TestALaterChangeStaysHeld(t *testing.T) {
	w := newWorld(t, nil)
	mesh := w.linkSlow()
	w.set("s.1", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	first := w.set("s.1", `{"on":true,"n":1}`)
	w.set("s.1", "")
	mesh.begun()
	notice, err := json.Marshal(map[string]any{"history": history, "subject": "s.1", "revision": first, "attributes": `{"n":1,"on":true}`})
	testutil.Must(t, err)
	testutil.Must(t, w.live.Notice("b", notice))
	w.publish("s.1", "last")
	if subject, payload := f.next(); subject != "s.1" || payload != "last" {
		t.Errorf("%q of %q", payload, subject)
	}
}

// TestAChangeIsHeldForABoundedTime: a broker may not answer.
func TestAChangeIsHeldForABoundedTime(t *testing.T) {
	w := newWorld(t, nil)
	w.live.Link(&silentMesh{}, "attributes")
	w.set("s.1", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	w.set("s.1", "")
	f.until("s.1 has left", func() bool { return f.has() })
}

// TestTooManyChangesAreNotHeld: all take effect at once.
func TestTooManyChangesAreNotHeld(t *testing.T) {
	w := newWorld(t, nil)
	w.linkSlow()
	for n := range live.MaxHeld + 1 {
		w.set(fmt.Sprint("s.", n), `{"on":true}`)
	}
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	for n := range live.MaxHeld + 1 {
		w.set(fmt.Sprint("s.", n), "")
	}
	f.until("all have left", func() bool { return f.has() })
}

// TestARestoreEndsWhatIsHeld: revisions are given again.
func TestARestoreEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t, nil)
	mesh := w.linkSlow()
	w.set("s.1", `{"on":true}`)
	w.set("s.2", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	w.set("s.1", "")
	mesh.begun()
	w.store.Distrust()
	w.store.Delete("s.2", 1)
	f.until("both have left", func() bool { return f.has() })
}

// TestAnotherHistoryEndsWhatIsHeld: revisions are counted anew, also if not all is read again.
func TestAnotherHistoryEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t, nil)
	mesh := w.linkSlow()
	w.set("s.1", `{"on":true}`)
	f := w.follow()
	f.open(`attributes.on`)
	f.untilWhole()
	w.set("s.1", "")
	mesh.begun()
	w.store.Of("8-0")
	w.set("s.2", `{"on":true}`)
	f.until("s.1 has left, and s.2 has come", func() bool { return f.has("s.2") })
}

// TestAClientMissesNoDeletionThatWasFound: a broker that finds no attributes tells at which
// revision that was, and not when they went. A token of what was told meanwhile is good for other
// brokers.
func TestAClientMissesNoDeletionThatWasFound(t *testing.T) {
	w, other := newWorld(t, nil), newWorld(t, nil)
	mesh := w.linkSlow()
	for _, w := range []*world{w, other} {
		w.set("s.1", `{"on":true}`)
		w.set("s.2", `{"on":true}`)
	}
	first, again := w.follow(), other.follow()
	first.open(`attributes.on`)
	first.untilWhole()
	w.store.DeleteAhead("s.1", w.revision+10, false)
	mesh.begun()
	w.set("s.1", "") // the watch brings the deletion, which is no news
	other.set("s.1", "")
	for _, w := range []*world{w, other} {
		w.set("s.3", `{"on":true}`)
	}
	first.until("s.3 has come", func() bool { return first.has("s.1", "s.2", "s.3") })
	again.resume(first, `attributes.on`)
	again.until("s.1 has left", func() bool { return again.has("s.2", "s.3") })
}

// TestALostRightIsNotHeld: it takes effect at once, and the change that is held tells no more.
func TestALostRightIsNotHeld(t *testing.T) {
	all := identity.User{Roles: []identity.Role{identity.Subscriber}}
	w, change := newUsersWorld(t, all)
	mesh := w.linkSlow()
	f := w.follow(nats.UserInfo("ann", "secret"))
	w.set("s.1", `{"on":true}`)
	w.set("s.2", `{"on":true}`)
	f.open(`attributes.on`)
	f.untilWhole()
	w.set("s.1", "")
	mesh.begun()
	less := all
	less.Permissions = &identity.Permissions{Subscribe: &identity.Subjects{Deny: []string{"s.1"}}}
	change(less)
	w.publish("s.1", "no")
	f.until("s.1 has left", func() bool { return f.has("s.2") })
	mesh.answer()
	w.set("s.3", `{"on":true}`)
	f.until("s.3 has come", func() bool { return f.has("s.2", "s.3") })
	if want := []string{"-s.1", "+s.3"}; !slices.Equal(f.order[2:], want) {
		t.Errorf("the changes are %q", f.order)
	}
}

// TestAClientThatKnowsAHeldChangeIsWaitedFor: it gets no message of a member that has left.
func TestAClientThatKnowsAHeldChangeIsWaitedFor(t *testing.T) {
	ahead, behind := newWorld(t, nil), newWorld(t, nil)
	mesh := behind.linkSlow()
	behind.live.Patience(time.Hour)
	for _, w := range []*world{ahead, behind} {
		w.set("a", `{"on":true}`)
		w.set("b", `{"on":true}`)
	}
	first, again, other := ahead.follow(), behind.follow(), behind.follow()
	other.open(`attributes.on`)
	other.untilWhole()
	ahead.set("a", "")
	behind.set("a", "")
	mesh.begun()
	first.open(`attributes.on`)
	first.untilWhole()
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		again.resume(first, `attributes.on`)
	}()
	testutil.EventuallyTrue(t, "the request waits", func() bool { return behind.live.Parked() == 1 })
	behind.publish("a", "no")
	mesh.answer()
	<-opened
	again.untilKnown()
	if again.first != "Change" || !again.has("b") {
		t.Errorf("the first notice is %s, the members are %v", again.first, again.members)
	}
}
