package compat

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// ledger checks the messages of one subscription: every message of each publisher arrives once and
// in order.
type ledger struct {
	mu    sync.Mutex
	next  map[uint32]uint64
	wrong string
	count atomic.Int64
}

func (l *ledger) record(data []byte) {
	publisher, seq := binary.BigEndian.Uint32(data), binary.BigEndian.Uint64(data[4:])
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = make(map[uint32]uint64)
	}
	if want := l.next[publisher]; seq != want && l.wrong == "" {
		l.wrong = fmt.Sprintf("of publisher %d message %d came where %d was to come", publisher, seq, want)
	}
	l.next[publisher] = seq + 1
	l.count.Add(1)
}

func stamp(publisher int, seq uint64, size int) []byte {
	data := make([]byte, 12+size)
	binary.BigEndian.PutUint32(data, uint32(publisher))
	binary.BigEndian.PutUint64(data[4:], seq)
	return data
}

// TestHammer: many clients publish to many, through plain subscriptions, wildcards and queue
// groups, while others come and go. Every lasting subscription gets all messages of each publisher,
// once and in order; every group gets each message once.
func TestHammer(t *testing.T) {
	n := startNode(t, nil)
	const publishers, each, subjects = 6, 4000, 3
	plain := make([]*ledger, 0, 8)
	for i := range 8 {
		l := &ledger{}
		plain = append(plain, l)
		nc := connect(t, n)
		pattern := []string{"hammer.*", "hammer.>", "*.*", ">"}[i%4]
		sub, err := nc.Subscribe(pattern, func(m *nats.Msg) { l.record(m.Data) })
		testutil.Must(t, err)
		testutil.Must(t, sub.SetPendingLimits(-1, -1))
		flush(t, nc)
	}
	var grouped sync.Map // publisher and sequence number -> times
	var groupCount atomic.Int64
	for range 4 {
		nc := connect(t, n)
		sub, err := nc.QueueSubscribe("hammer.*", "group", func(m *nats.Msg) {
			if _, twice := grouped.LoadOrStore(string(m.Data[:12]), true); twice {
				t.Errorf("a message reached the group twice: %x", m.Data[:12])
			}
			groupCount.Add(1)
		})
		testutil.Must(t, err)
		testutil.Must(t, sub.SetPendingLimits(-1, -1))
		flush(t, nc)
	}

	stop := make(chan struct{})
	var churn, work sync.WaitGroup
	for i := range 4 {
		nc := connect(t, n)
		churn.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				sub, err := nc.SubscribeSync([]string{"hammer.0", "hammer.*", ">", "other.>"}[(i+round)%4])
				if err == nil && round%3 == 0 {
					err = sub.AutoUnsubscribe(1 + rand.IntN(5))
				}
				if err == nil {
					err = nc.FlushTimeout(patience)
				}
				if err == nil && round%3 != 0 {
					err = sub.Unsubscribe()
				}
				if err != nil {
					t.Errorf("the one that comes and goes: %v", err)
					return
				}
			}
		})
	}
	for p := range publishers {
		nc := connect(t, n)
		work.Go(func() {
			for seq := range uint64(each) {
				// Mostly small, sometimes large, so that copied and referenced messages mix.
				size := rand.IntN(200)
				if seq%100 == 0 {
					size = rand.IntN(64 << 10)
				}
				if err := nc.Publish(fmt.Sprintf("hammer.%d", seq%subjects), stamp(p, seq, size)); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
			if err := nc.FlushTimeout(patience); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
	work.Wait()
	close(stop)
	churn.Wait()
	for i, l := range plain {
		testutil.EventuallyTrue(t, fmt.Sprintf("subscriber %d has all %d messages", i, publishers*each), func() bool { return l.count.Load() >= publishers*each })
		if l.wrong != "" || l.count.Load() != publishers*each {
			t.Errorf("subscriber %d has %d messages, want %d; %s", i, l.count.Load(), publishers*each, l.wrong)
		}
	}
	testutil.EventuallyTrue(t, "the group has all messages", func() bool { return groupCount.Load() >= publishers*each })
	if groupCount.Load() != publishers*each {
		t.Errorf("the group has %d messages, want %d", groupCount.Load(), publishers*each)
	}
	if s := n.Stats(); s.SlowConsumers() != 0 {
		t.Errorf("somebody was closed: %+v", s.Ended)
	}
}

// TestManyRequests: each of many concurrent requests gets its own answer.
func TestManyRequests(t *testing.T) {
	n := startNode(t, nil)
	for range 3 {
		nc := connect(t, n)
		_, err := nc.QueueSubscribe("double", "servers", func(m *nats.Msg) { _ = m.Respond(append(m.Data, m.Data...)) })
		testutil.Must(t, err)
		flush(t, nc)
	}
	var work sync.WaitGroup
	for c := range 6 {
		nc := connect(t, n)
		for w := range 4 {
			work.Go(func() {
				for i := range 200 {
					text := fmt.Sprintf("%d.%d.%d ", c, w, i)
					m, err := nc.Request("double", []byte(text), patience)
					if err != nil || string(m.Data) != text+text {
						t.Errorf("request %s: %v, %v", text, m, err)
						return
					}
				}
			})
		}
	}
	work.Wait()
}

// TestMaximumUnderLoad: a subscriber that requests its messages one at a time, by setting a maximum
// repeatedly, gets exactly as many as it requested.
func TestMaximumUnderLoad(t *testing.T) {
	n := startNode(t, nil)
	stop := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(stop)
	for range 3 {
		pub := connect(t, n)
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 50 {
					_ = pub.Publish("stream", nil)
				}
				_ = pub.FlushTimeout(patience)
			}
		})
	}
	nc := connect(t, n)
	for round := range 100 {
		var got atomic.Int64
		sub, err := nc.Subscribe("stream", func(*nats.Msg) { got.Add(1) })
		testutil.Must(t, err)
		limit := 1 + round%7
		testutil.Must(t, sub.AutoUnsubscribe(limit))
		testutil.EventuallyTrue(t, "the subscription has ended", func() bool { return !sub.IsValid() })
		flush(t, nc)
		testutil.EventuallyTrue(t, "its messages were handled", func() bool { return got.Load() >= int64(limit) })
		if got.Load() != int64(limit) {
			t.Fatalf("round %d: %d messages, want %d", round, got.Load(), limit)
		}
	}
	// The client drops messages beyond the limit silently, so the broker is asked.
	testutil.EventuallyTrue(t, "the broker holds no subscription", func() bool { return n.Stats().Subscriptions == 0 })
}
