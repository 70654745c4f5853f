//go:build linux

package devcluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// liveClient knows the members of a live query, and goes on with it at other brokers.
type liveClient struct {
	t       *testing.T
	nc      *nats.Conn
	sub     *nats.Subscription
	members map[string]bool
	resume  string
	kinds   map[string]int // of the first notices
	fresh   bool           // no notice has come since it was opened
	done    bool           // all is known that was when it was opened
}

// open opens the query at a broker.
func (l *liveClient) open(url string) {
	l.t.Helper()
	testutil.Eventually(l.t, "the query is opened", func() (err error) {
		if l.nc != nil {
			l.nc.Close()
		}
		if l.nc, err = nats.Connect(url, nats.NoReconnect(), nats.Timeout(answerTime)); err != nil {
			return err
		}
		if l.sub, err = l.nc.SubscribeSync(nats.NewInbox()); err != nil {
			return err
		}
		if err = l.sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
		l.fresh, l.done = true, false
		var answer struct{ Error *struct{ Text string } }
		request := map[string]string{"where": "attributes.on", "subjects": "s.*", "inbox": l.sub.Subject}
		if l.resume != "" {
			request["resume"] = l.resume
		}
		if err = ask(l.nc, "$CARILLON.API.QUERY.OPEN", request, &answer); err == nil && answer.Error != nil {
			err = fmt.Errorf("refused: %s", answer.Error.Text)
		}
		return err
	})
}

// next takes a message, and returns false at the end of the connection.
func (l *liveClient) next() bool {
	l.t.Helper()
	m, err := l.sub.NextMsg(patience)
	if err != nil {
		if l.nc.IsClosed() {
			return false
		}
		l.t.Fatal(err)
	}
	kind := m.Header.Get("Carillon-Query")
	if kind == "" {
		if subject := m.Header.Get("Carillon-Subject"); !l.members[subject] {
			l.t.Fatalf("a message of %s, which is no member", subject)
		}
		return true
	}
	type member struct{ Subject string }
	var notice struct {
		Members, New []member
		Del          []string
		Resume       string
		Done         bool
		Error        any
	}
	testutil.Must(l.t, json.Unmarshal(m.Data, &notice))
	if notice.Error != nil {
		l.t.Fatalf("the query ends: %s", m.Data)
	}
	if l.fresh {
		if l.fresh = false; kind == "Members" {
			l.members = map[string]bool{}
		}
		l.kinds[kind]++
	}
	for _, gone := range notice.Del {
		delete(l.members, gone)
	}
	for _, came := range append(notice.Members, notice.New...) {
		l.members[came.Subject] = true
	}
	l.done = l.done || notice.Done
	if notice.Resume != "" {
		l.resume = notice.Resume
	}
	return true
}

func ask(nc *nats.Conn, subject string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	m, err := nc.Request(subject, body, answerTime)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}

// TestALiveQueryOutlivesItsBrokers: its broker is killed again and again while attributes change.
// The client goes on at another one, with the token that it was given last. In the end it knows the
// members, and at no time it got a message of a subject that it took for none.
func TestALiveQueryOutlivesItsBrokers(t *testing.T) {
	c := startCluster(t)
	nc, err := nats.Connect(c.urls[0], nats.Timeout(answerTime))
	testutil.Must(t, err)
	defer nc.Close()
	const subjects = 300
	on := map[string]bool{}
	set := func(subject string, to bool) {
		t.Helper()
		testutil.Eventually(t, "attributes are changed", func() error { // while etcd has no leader, they are not
			var answer struct{ Error *struct{ Text string } }
			err := ask(nc, "$CARILLON.API.ATTRIBUTES.SET", map[string]any{"subject": subject, "set": map[string]bool{"on": to}}, &answer)
			if err == nil && answer.Error != nil {
				err = fmt.Errorf("refused: %s", answer.Error.Text)
			}
			return err
		})
		on[subject] = to
		testutil.Must(t, nc.Publish(subject, nil))
	}
	change := func(times int) {
		t.Helper()
		for range times {
			subject := fmt.Sprint("s.", rand.IntN(subjects))
			set(subject, !on[subject])
		}
	}
	change(2 * subjects)
	l := &liveClient{t: t, kinds: map[string]int{}, members: map[string]bool{}}
	for i := range tries(6, 40) {
		broker := 1 + i%2
		l.open(c.urls[broker])
		marker := fmt.Sprint("s.marker-", i)
		change(50)
		set(marker, true)
		for !l.members[marker] {
			if !l.next() {
				t.Fatal("the connection has ended")
			}
		}
		change(50) // the client reads some of these, or none
		c.kill(broker)
		for l.next() {
		}
		change(50)
	}
	set("s.end", true)
	l.open(c.urls[1+tries(6, 40)%2])
	for !l.done || !l.members["s.end"] {
		if !l.next() {
			t.Fatal("the connection has ended")
		}
	}
	maps.DeleteFunc(on, func(_ string, is bool) bool { return !is })
	if want, got := slices.Sorted(maps.Keys(on)), slices.Sorted(maps.Keys(l.members)); !slices.Equal(want, got) {
		t.Errorf("the members are %q, want %q", got, want)
	}
	if l.kinds["Change"] == 0 {
		t.Errorf("it never got a difference, but %v", l.kinds)
	}
	t.Logf("first notices: %v", l.kinds)
}
