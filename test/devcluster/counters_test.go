//go:build linux

package devcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// increments are those of some clients, which share two counters.
type increments struct {
	mu      sync.Mutex
	kept    map[uint64]string // totals, by sequence
	sums    [2]int            // of what was acknowledged, by counter
	unknown [2]int            // of what had no answer
}

// publish publishes increments until ctx ends.
func (s *increments) publish(ctx context.Context, js jetstream.JetStream) {
	for i := 0; ctx.Err() == nil; i++ {
		counter, by := i%2, 1+i%5
		m := nats.NewMsg(fmt.Sprint("counters.", counter))
		m.Header.Set("Nats-Incr", fmt.Sprint(by))
		r, err := js.Conn().RequestMsg(m, 2*time.Second) // it is lost with its broker
		var ack struct {
			Error *jetstream.APIError
			Seq   uint64
			Val   string
		}
		if err == nil {
			err = json.Unmarshal(r.Data, &ack)
		}
		s.mu.Lock()
		if err == nil && ack.Error == nil {
			s.kept[ack.Seq] = ack.Val
			s.sums[counter] += by
		} else {
			s.unknown[counter] += by
		}
		s.mu.Unlock()
	}
}

func (s *increments) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// TestCountersAreExactWhileTheirLeadersDie: clients of all brokers increment the same counters
// while the leader is killed again and again. Each message has the total of the one before and its
// own increment, each ack says what is stored, and each increment that was acknowledged counts
// once.
func TestCountersAreExactWhileTheirLeadersDie(t *testing.T) {
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "counters", Subjects: []string{"counters.*"}, Replicas: 3, AllowMsgCounter: true})
	testutil.Must(t, err)
	c.whole(js, "counters")
	s := &increments{kept: map[uint64]string{}}
	publishing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for broker := range c.urls {
		for range 5 {
			js := c.connectTo(broker)
			running.Go(func() { s.publish(publishing, js) })
		}
	}
	c.killLeaders(js, "counters", "increments are acknowledged", 300, s.count)
	stop()
	running.Wait()

	is, err := stream.Info(ctx)
	testutil.Must(t, err)
	reader, err := js.OrderedConsumer(ctx, "counters", jetstream.OrderedConsumerConfig{})
	testutil.Must(t, err)
	var totals [2]big.Int
	for seq := uint64(0); seq < is.State.LastSeq; {
		m, err := reader.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		at, err := m.Metadata()
		testutil.Must(t, err)
		if seq++; at.Sequence.Stream != seq {
			t.Fatalf("message %d follows %d", at.Sequence.Stream, seq-1)
		}
		total := &totals[m.Subject()[len("counters.")]-'0']
		by, _ := new(big.Int).SetString(m.Headers().Get("Nats-Incr"), 10)
		if total.Add(total, by); string(m.Data()) != fmt.Sprintf(`{"val":"%s"}`, total) {
			t.Fatalf("message %d has %s, want %s", seq, m.Data(), total)
		}
		if told, acked := s.kept[seq]; acked && told != total.String() {
			t.Fatalf("the ack of message %d says %q, and it has %s", seq, told, total)
		}
		delete(s.kept, seq)
	}
	if len(s.kept) > 0 {
		t.Errorf("acknowledged messages are missing: %v", s.kept)
	}
	for counter, least := range s.sums {
		if got := totals[counter].Int64(); got < int64(least) || got > int64(least+s.unknown[counter]) {
			t.Errorf("counter %d has %d; %d were acknowledged, and %d had no answer", counter, got, least, s.unknown[counter])
		}
	}
	t.Logf("%d increments; acknowledged %v, without an answer %v", is.State.LastSeq, s.sums, s.unknown)
}
