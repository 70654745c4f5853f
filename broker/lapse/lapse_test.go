package lapse

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// held is attributes whose deletions the test sees.
type held struct {
	store *attribute.Store
	asked []string
	fail  error
}

func (h *held) Store() *attribute.Store { return h.store }

func (h *held) DeleteHeld(_ context.Context, of []attribute.Holder, when *coordination.Registered) (deleted, changed int, err error) {
	condition := "whatever"
	if when != nil {
		condition = fmt.Sprintf("%s in %d of generation %d", when.Broker, when.Incarnation, when.Generation)
	}
	h.asked = append(h.asked, condition)
	if h.fail != nil {
		return 0, 0, h.fail
	}
	for _, holder := range of {
		for _, e := range h.store.HeldBy(holder, max(batch-deleted, 0)) {
			h.store.Delete(e.Subject, 1000)
			deleted++
		}
	}
	return deleted, 0, nil
}

const batch = 2 // of held

func (h *held) bind(subject string, to attribute.Holder) {
	h.store.Put(attribute.Entry{Subject: subject, Revision: h.store.Stats().Revision + int64(h.store.Stats().Subjects) + 1, Text: `{"a":1}`, Holder: to})
}

func TestAttributesLapseWithTheirConnection(t *testing.T) {
	started := time.UnixMilli(5000)
	state := coordination.NewState(1, []coordination.Broker{
		{ID: "b", Incarnation: 7, Started: started}, {ID: "c", Incarnation: 8, Started: started},
	}, nil, nil, nil)
	state.Generation = 3
	all := &held{store: attribute.NewStore()}
	mine := func(connection uint64) attribute.Holder {
		return attribute.Holder{Broker: "a", Process: 1, Connection: connection}
	}
	all.bind("here", mine(1))
	for i := range 5 {
		all.bind(fmt.Sprintf("gone.%d", i), mine(2))
	}
	all.bind("before", attribute.Holder{Broker: "a", Process: 0, Connection: 1}) // of an earlier process of a
	all.bind("other", attribute.Holder{Broker: "b", Process: 5000, Connection: 1})
	all.bind("restarted", attribute.Holder{Broker: "c", Process: 4999, Connection: 1})
	all.bind("away", attribute.Holder{Broker: "d", Process: 5000, Connection: 1})
	controls := false
	w := watch{since: map[attribute.Holder]time.Time{}, Config: Config{
		Self: "a", Process: 1, Attributes: all, Connected: func(client uint64) bool { return client == 1 },
		State: func() *coordination.State { return state }, Controls: func() bool { return controls }, Logger: slog.New(slog.DiscardHandler),
	}}
	now := time.UnixMilli(0)
	round := func(after time.Duration) (due int) {
		now = now.Add(after)
		these := w.due(now)
		w.deleteAll(context.Background(), these)
		return len(these)
	}
	round(0)
	if due := round(Grace - time.Millisecond); due != 0 {
		t.Fatalf("%d lapse before their time", due)
	}
	if round(time.Millisecond); all.store.Stats().Subjects != 5 || all.store.Get("here").Text == "" {
		t.Errorf("without the controller's part, %v are left", all.store.Subjects())
	}
	controls = true
	round(0)
	all.fail = errors.New("etcd is away")
	round(Grace)
	all.fail, all.asked = nil, nil
	round(0)
	for _, subject := range []string{"here", "other"} {
		if all.store.Get(subject).Text == "" {
			t.Errorf("%s has lapsed", subject)
		}
	}
	if left := all.store.Subjects(); len(left) != 2 {
		t.Errorf("%v are left", left)
	}
	for _, want := range []string{"c in 8 of generation 3", "d in 0 of generation 3", "a in 0 of generation 3"} {
		found := false
		for _, asked := range all.asked {
			found = found || asked == want
		}
		if !found {
			t.Errorf("nothing was deleted on the condition %s: %q", want, all.asked)
		}
	}
}

// TestConnectionsOfABrokerShareBatches: each of them holds one subject.
func TestConnectionsOfABrokerShareBatches(t *testing.T) {
	all := &held{store: attribute.NewStore()}
	for i := range 3 * attribute.MaxChanges {
		all.bind(fmt.Sprintf("s.%d", i), attribute.Holder{Broker: "a", Process: 1, Connection: uint64(i)})
	}
	w := watch{since: map[attribute.Holder]time.Time{}, Config: Config{
		Self: "a", Process: 1, Attributes: all, Connected: func(uint64) bool { return false }, Logger: slog.New(slog.DiscardHandler),
	}}
	w.due(time.UnixMilli(0))
	due := w.due(time.UnixMilli(0).Add(Grace))
	w.Config.Attributes = &counted{held: all}
	w.deleteAll(context.Background(), due)
	if calls := w.Config.Attributes.(*counted).calls; all.store.Stats().Subjects != 0 || calls > 2*3 {
		t.Errorf("%d are left after %d batches", all.store.Stats().Subjects, calls)
	}
}

// counted is held with batches as large as those of etcd.
type counted struct {
	*held
	calls int
}

func (c *counted) DeleteHeld(_ context.Context, of []attribute.Holder, _ *coordination.Registered) (deleted, changed int, err error) {
	c.calls++
	for _, holder := range of {
		for _, e := range c.store.HeldBy(holder, attribute.MaxChanges-deleted) {
			c.store.Delete(e.Subject, 1000)
			deleted++
		}
	}
	return deleted, 0, nil
}

// TestAConnectionThatReturnsKeepsItsAttributes: a process that is registered again within Grace is
// not gone, and the time begins anew.
func TestAConnectionThatReturnsKeepsItsAttributes(t *testing.T) {
	all := &held{store: attribute.NewStore()}
	all.bind("s", attribute.Holder{Broker: "b", Process: 5000, Connection: 1})
	with := coordination.NewState(1, []coordination.Broker{{ID: "b", Incarnation: 7, Started: time.UnixMilli(5000)}}, nil, nil, nil)
	without := coordination.NewState(2, nil, nil, nil, nil)
	state := without
	w := watch{since: map[attribute.Holder]time.Time{}, Config: Config{
		Self: "a", Process: 1, Attributes: all, State: func() *coordination.State { return state }, Controls: func() bool { return true }, Logger: slog.New(slog.DiscardHandler),
	}}
	at := func(seconds int) int { return len(w.due(time.Unix(int64(seconds), 0))) }
	at(0)
	state = with
	at(9)
	state = without
	if due := at(11); due != 0 {
		t.Error("the time did not begin anew")
	}
	if due := at(21); due != 1 {
		t.Errorf("%d are due after Grace", due)
	}
	state = nil
	if due := at(40); due != 0 {
		t.Error("without a State something is due")
	}
}
