package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// inbox is a LiveQuery without a connection: tests say what comes to its inbox.
type inbox struct {
	*testing.T
	*LiveQuery
}

func newInbox(t *testing.T, options QueryOptions) *inbox {
	t.Helper()
	if err := options.complete(); err != nil {
		t.Fatal(err)
	}
	q := &LiveQuery{options: options, members: map[string]json.RawMessage{}, come: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	b := &inbox{t, q}
	b.reopen()
	return b
}

// reopen does what open does, for a broker that has answered.
func (b *inbox) reopen() (resume string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening++
	b.tellReopened()
	return b.resume
}

func (b *inbox) notice(kind, data string) {
	b.received(b.opening, &nats.Msg{Header: nats.Header{queryHeader: {kind}}, Data: []byte(data)})
}

func (b *inbox) message(subject, data string, more ...string) {
	h := nats.Header{subjectHeader: {subject}}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = append(h[more[i]], more[i+1])
	}
	b.received(b.opening, &nats.Msg{Header: h, Data: []byte(data), Reply: "r"})
}

// told takes all that has come, and returns it in one word each.
func (b *inbox) told() (words []string, err error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		e, err := b.Next(ended)
		if errors.Is(err, context.Canceled) {
			return words, nil
		}
		if err != nil {
			return words, err
		}
		word := e.Kind.String()
		if e.Subject != "" {
			word += ":" + e.Subject
		}
		if e.Initial {
			word += "!"
		}
		words = append(words, word)
	}
}

func (b *inbox) wants(want string) {
	b.Helper()
	got, err := b.told()
	if text := strings.Join(got, " "); err != nil || text != want {
		b.Errorf("told\n%s\nwant\n%s (%v)", text, want, err)
	}
}

func TestALiveQueryTellsMembersInOrder(t *testing.T) {
	b := newInbox(t, QueryOptions{})
	b.notice("Members", `{"members":[{"subject":"a","attributes":{"n":1}}]}`)
	b.message("a", "1")
	b.notice("Change", `{"new":[{"subject":"c","attributes":{}}],"del":["a"]}`)
	b.notice("Members", `{"members":[{"subject":"b","attributes":{}}],"done":true}`)
	b.notice("Unknown", `{`)
	b.notice("Change", `{"new":[{"subject":"a","attributes":{"n":2}},{"subject":"c","attributes":{"n":3}}],"del":["x"]}`)
	b.wants("new:a! message:a del:a new:c new:b! ready new:a")
	if got := fmt.Sprintf("%s", b.Members()); got != `map[a:{"n":2} b:{} c:{"n":3}]` {
		t.Errorf("the members are %s", got)
	}
}

// TestMessagesAreAsTheyWerePublished: the broker's header is taken out, and a publisher can't make
// its message look like one of another subject, or like a notice.
func TestMessagesAreAsTheyWerePublished(t *testing.T) {
	b := newInbox(t, QueryOptions{})
	b.message("a", "1")
	b.message("a", "2", subjectHeader, "b", queryHeader, "End", "X", "y")
	for _, want := range []nats.Header{nil, {queryHeader: {"End"}, "X": {"y"}}} {
		e, err := b.Next(t.Context())
		if err != nil || e.Subject != "a" || e.Reply != "r" || fmt.Sprint(e.Header) != fmt.Sprint(want) {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// TestAReopenedQueryTellsTheDifference: either the broker knows it, or it lists all members.
func TestAReopenedQueryTellsTheDifference(t *testing.T) {
	b := newInbox(t, QueryOptions{})
	b.notice("Members", `{"resume":"1","members":[{"subject":"a"},{"subject":"b"},{"subject":"c"}],"done":true}`)
	b.wants("new:a! new:b! new:c! ready")
	if resume := b.reopen(); resume != "1" {
		t.Errorf("it goes on from %q", resume)
	}
	b.notice("Change", `{"new":[{"subject":"d"},{"subject":"c"}],"del":["a","z"]}`)
	b.notice("Change", `{"resume":"2","done":true}`)
	b.message("d", "")
	b.wants("reopened del:a new:d ready message:d")
	if resume := b.reopen(); resume != "2" {
		t.Errorf("it goes on from %q", resume)
	}
	b.notice("Change", `{"new":[{"subject":"f"},{"subject":"c"}]}`)
	b.notice("Members", `{"members":[{"subject":"b"},{"subject":"e"}]}`)
	b.notice("Change", `{"new":[{"subject":"g"}],"del":["b"]}`)
	b.notice("Members", `{"resume":"3","members":[{"subject":"h"}],"done":true}`)
	b.notice("Change", `{"resume":"4","new":[{"subject":"i"}],"del":["g"]}`)
	b.wants("reopened new:f new:e del:b new:g new:h del:d ready del:g new:i")
	b.reopen()
	b.notice("Members", `{"done":true}`)
	b.wants("reopened del:c del:e del:f del:h del:i ready")
}

// TestALostListBeginsAnew: the connection is lost while the members are listed, and comes back
// before any of it is taken.
func TestALostListBeginsAnew(t *testing.T) {
	b := newInbox(t, QueryOptions{})
	b.notice("Members", `{"members":[{"subject":"a"}]}`)
	b.notice("Change", `{"new":[{"subject":"b"}]}`)
	if resume := b.reopen(); resume != "" {
		t.Errorf("it goes on from %q", resume)
	}
	b.notice("Members", `{"resume":"3","members":[{"subject":"b"},{"subject":"c"}],"done":true}`)
	b.wants("new:a! new:b reopened new:c! del:a ready")
	if resume := b.reopen(); resume != "3" {
		t.Errorf("it goes on from %q", resume)
	}
	if resume := b.reopen(); resume != "3" {
		t.Errorf("after an opening that brought nothing it goes on from %q", resume)
	}
}

// TestWhatIsNotTakenIsBounded: what has come until then is told, and then the reason.
func TestWhatIsNotTakenIsBounded(t *testing.T) {
	for _, options := range []QueryOptions{{MaxPending: 2}, {MaxPendingBytes: 600}} {
		b := newInbox(t, options)
		for range 5 {
			b.message("a", strings.Repeat("x", 100))
		}
		got, err := b.told()
		if !slices.Equal(got, []string{"message:a", "message:a"}) || !errors.Is(err, ErrSlowConsumer) {
			t.Errorf("%+v: told %q, and %v", options, got, err)
		}
	}
}

func TestTheEndOfALiveQueryIsTold(t *testing.T) {
	b := newInbox(t, QueryOptions{})
	b.message("a", "")
	b.notice("End", `{"error":{"code":"NotReady","text":"the broker stops"}}`)
	b.wants("message:a")
	select {
	case <-b.again:
	default:
		t.Error("it is not opened again")
	}
	b.notice("End", `{"error":{"code":"TooLarge","text":"too many"}}`)
	b.message("b", "")
	if got, err := b.told(); len(got) > 0 || func() bool { e, ok := errors.AsType[*QueryError](err); return !ok || e.Code != "TooLarge" }() {
		t.Errorf("told %q, and %v", got, err)
	}
}
