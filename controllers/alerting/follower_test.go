package alerting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// TestAlertsOfARunningBrokerAreTold: those that came before are not, those of another View and
// trigger neither. One whose event can't be written is counted. What can't be read is passed over,
// and what is too much, and both are counted. A connection that fails loses none.
func TestAlertsOfARunningBrokerAreTold(t *testing.T) {
	const flood = 5000 // alerts between two turns
	local, _ := brokers.Coordinator(t)
	address, _ := brokers.Run(t, "small", broker.Config{Name: "main-0", Cluster: "test/alerting", Data: t.TempDir(), Endpoints: local.Endpoints()})
	nc, err := nats.Connect(address, nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	js, err := nc.JetStream(nats.MaxWait(testutil.Patience), nats.PublishAsyncMaxPending(flood))
	testutil.Must(t, err)
	testutil.Eventually(t, "the Topic is made", func() error {
		_, err := js.AddStream(&nats.StreamConfig{Name: "alerts", Subjects: []string{"alerts.>"}})
		return err
	})
	serial := 0
	alert := func(subject, trigger, state string) {
		serial++
		_, err := js.Publish(subject, fmt.Appendf(nil, `{"trigger":%q,"serial":%d,"state":%q,"key":["a"],"values":{"n":1}}`, trigger, serial, state))
		testutil.Must(t, err)
	}
	var told []Event
	fails := false
	f := newFollower(t, func(e Event) error {
		if fails {
			return errors.New("the API server is away")
		}
		told = append(told, e)
		return nil
	})
	now := time.Now()
	f.now = func() time.Time { return now }
	all := rooms(Source{Trigger: "gone", Topic: "nowhere"}, Source{Trigger: "hot", Topic: "alerts"})
	hot := all[0].sources[1]
	to := access{servers: []string{address}}
	turn := func() {
		t.Helper()
		now = now.Add(time.Hour)       // all may be told
		all = rooms(all[0].sources...) // each turn has the manifests as they are then
		testutil.Eventually(t, "the turn reads the Topic", func() error {
			if err := f.turn(t.Context(), all, to.connect); err != nil {
				return err
			}
			if p := *f.views["1"].places[hot]; !p.begun || !p.trouble.since.IsZero() {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
	}
	want := func(what string, notes ...string) {
		t.Helper()
		ok := len(told) == len(notes)
		for i := 0; ok && i < len(notes); i++ {
			ok = strings.Contains(told[i].Reason+": "+told[i].Note, notes[i])
		}
		if !ok {
			t.Errorf("%s: told is %+v, want %q", what, told, notes)
		}
		told = nil
	}
	alert("alerts.rooms.hot.a", "hot", raised) // too old
	turn()
	want("an alert from before")

	alert("alerts.rooms.hot.a", "hot", raised)
	alert("alerts.halls.hot.a", "hot", raised)
	alert("alerts.rooms.cold.a", "cold", raised)
	alert("alerts.rooms.hot.a", "cold", raised)
	alert("alerts.rooms.hot.a", "hot", "fails")
	alert("alerts.rooms.hot", "hot", cleared)
	turn()
	want("alerts of others", "AlertRaised: trigger hot raised an alert of key \"a\" (number 2)", "AlertCleared: trigger hot cleared an alert of key \"a\" (number 7)")
	turn()
	want("the same once more")
	if why, known := f.unread(&all[0]); !known || !strings.Contains(why, "shard 0 of topic nowhere") || !strings.Contains(why, "NotFound") {
		t.Errorf("of a missing Topic people are told %q, %v", why, known)
	}

	alert("alerts.rooms.hot.a", "hot", raised)
	if err := f.turn(t.Context(), all, func(context.Context) (*connection, error) { return nil, errors.New("it is away") }); err == nil {
		t.Error("a turn without a connection is a success")
	}
	turn()
	want("a connection that failed", "(number 8)")

	fails = true
	alert("alerts.rooms.hot.a", "hot", raised)
	turn()
	fails = false
	turn()
	want("an event that failed", "MoreAlerts: 1 more alerts without an event of their own: 1 raised, 0 cleared; at last trigger hot raised an alert of key \"a\" (number 9)")

	// Other sources of the View change nothing for this one.
	alert("alerts.rooms.hot.a", "hot", raised)
	all = rooms(hot, Source{Trigger: "cold", Topic: "alerts"})
	turn()
	want("another trigger with events", "(number 10)")
	if why, known := f.unread(&all[0]); !known || why != "" {
		t.Errorf("of what can be read people are told %q, %v", why, known)
	}

	// A record that fits no answer, and one that fits, but is larger than what is passed on.
	for _, size := range []int{8 << 20, maxMessage + 1} {
		_, err = js.Publish("alerts.rooms.hot.large", make([]byte, size))
		testutil.Must(t, err)
		alert("alerts.rooms.hot.a", "hot", raised)
		if err := f.turn(t.Context(), all, to.connect); err != nil && !errors.Is(err, errMessage) {
			t.Errorf("a record of %d bytes: %v", size, err)
		}
		turn()
		if len(told) == 0 || !slices.ContainsFunc(told, func(e Event) bool { return strings.Contains(e.Note, "passed over unread") }) {
			t.Errorf("a record of %d bytes: told is %+v", size, told)
		}
		told = nil
		alert("alerts.rooms.hot.a", "hot", raised)
		turn()
		want("an alert after a large record", fmt.Sprintf("(number %d)", serial))
	}

	// A flood: a turn reads a part, and the next one goes on with what comes after it.
	for range flood {
		serial++
		_, err := js.PublishAsync("alerts.rooms.hot.a", fmt.Appendf(nil, `{"trigger":"hot","serial":%d,"state":"raised","key":["a"],"values":{"n":1}}`, serial))
		testutil.Must(t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(testutil.Patience):
		t.Fatal("the flood is not published")
	}
	turn()
	v := f.views["1"]
	read := len(told) + v.limiter.raised
	if passed := int(v.limiter.passed); read+passed != flood || passed == 0 || read < viewBurst || read*100 > sourceReads*readBytes*3/2 {
		t.Errorf("of %d alerts, %d are read and %d passed over", flood, read, passed)
	}
	told = nil
	turn()
	want("a flood", fmt.Sprintf("MoreAlerts: %d messages of the Topics", flood-read))
	alert("alerts.rooms.hot.a", "hot", raised)
	turn()
	want("an alert after a flood", fmt.Sprintf("(number %d)", serial))
}

// TestWhatIsRememberedOfAView: a place holds for one Topic, and what is in the next one of that
// name is all new. The bound of events holds for a View that its Broker has go and come.
func TestWhatIsRememberedOfAView(t *testing.T) {
	now := time.Now()
	f := newFollower(t, func(Event) error { return nil })
	f.now = func() time.Time { return now }
	first, second := Source{Trigger: "hot", Topic: "alerts", ID: "1"}, Source{Trigger: "hot", Topic: "alerts", ID: "2"}
	at := func() *place { return f.views["1"].places[first.key()] }
	f.take(rooms(first))
	if p := at(); p.begun {
		t.Errorf("at first it is %+v", p)
	}
	at().begun, at().offset = true, 100
	f.take(rooms(first))
	if p := at(); !p.begun || p.offset != 100 {
		t.Errorf("of the same Topic it is %+v", p)
	}
	f.take(rooms(second))
	if p := at(); !p.begun || p.offset != 0 {
		t.Errorf("of a Topic made again it is %+v", p)
	}

	events := 0
	for range 100 {
		if _, ok := f.views["1"].limiter.tell(Alert{State: raised}, now); ok {
			events++
		}
		f.take(nil)
		f.take(rooms(first))
	}
	if events != viewBurst {
		t.Errorf("a View that goes and comes has %d events at once, want %d", events, viewBurst)
	}
	if at().begun {
		t.Error("a place is remembered of a View that was not wanted")
	}
	f.take(nil)
	now = now.Add(time.Hour)
	if f.take(nil); len(f.views) != 0 {
		t.Error("a View is never forgotten")
	}
}

// TestTurnsRestWhileNothingComes: an operator at rest takes next to no processor time.
func TestTurnsRestWhileNothingComes(t *testing.T) {
	f := follower{came: true}
	pause := f.pause(lastRetry)
	if pause != turnEvery {
		t.Errorf("while alerts come, the next turn is after %s", pause)
	}
	f.came = false
	for _, want := range []time.Duration{2 * turnEvery, restEvery, restEvery} {
		if pause = f.pause(pause); pause != want {
			t.Errorf("while none come, the next turn is after %s, want %s", pause, want)
		}
	}
	if pause = f.pause(0); pause != turnEvery {
		t.Errorf("after the first turn, the next one is after %s", pause)
	}
}
