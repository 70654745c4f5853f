//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// pushed is what the subscribers of a push consumer received.
type pushed struct {
	mu     sync.Mutex
	times  map[string]int
	acked  map[string]time.Time // when acks were answered
	wrong  []string
	last   uint64 // sequence of the last message, of a consumer with one subscriber
	beats  int    // heartbeats in a row that had that sequence
	missed string // the last heartbeat, if it had another
	acks   sync.WaitGroup
}

func (p *pushed) take(m *nats.Msg) {
	if of := m.Header.Get("Nats-Last-Consumer"); of != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.beats++
		if p.missed = ""; of != strconv.FormatUint(p.last, 10) {
			p.beats, p.missed = 0, fmt.Sprintf("a heartbeat has sequence %s, and the last message has %d", of, p.last)
		}
		return
	}
	if m.Header.Get("Status") != "" {
		_ = m.Respond(nil) // a flow control request
		return
	}
	about, err := m.Metadata()
	p.mu.Lock()
	data := string(m.Data)
	defer p.mu.Unlock()
	if err != nil {
		p.wrong = append(p.wrong, err.Error())
		return
	}
	// Another copy may have been under way when the ack was answered.
	if at := p.acked[data]; !at.IsZero() && time.Since(at) > pushedAckWait/2 {
		p.wrong = append(p.wrong, fmt.Sprintf("%s came %v after its ack was answered", data, time.Since(at)))
	}
	p.last, p.beats = about.Sequence.Consumer, 0
	p.times[data]++
	p.acks.Go(func() {
		if m.AckSync(nats.AckWait(pushedAckWait/2)) == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.acked[data] = time.Now()
		}
	})
}

// pushedAckWait is long enough that a message that comes again was not under way before.
const pushedAckWait = 4 * time.Second

// has reports an error unless all messages from 1 to n were received.
func (p *pushed) has(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range n {
		if p.times[fmt.Sprint(i+1)] == 0 {
			return fmt.Errorf("message %d of %d was not received", i+1, n)
		}
	}
	return nil
}

// TestPushConsumersOfSeveralShardsOutliveTheirLeaders: the subscribers of push consumers receive
// all messages of all shards, while the leader through which they are delivered is killed, and
// those of the other shards are. What was acknowledged does not come again. Afterwards heartbeats
// agree with what was delivered.
func TestPushConsumersOfSeveralShardsOutliveTheirLeaders(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	made, err := exec.Command(program, "topic", "create", "orders", "--shards", "3", "--replicas", "3", "--subjects", "orders.>", "--server", c.urls[0]).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	for n := range 3 {
		c.whole(js, fmt.Sprintf("orders--%d", n))
	}
	consumers := map[string]*pushed{}
	for name, config := range map[string]nats.ConsumerConfig{
		"alone":  {Heartbeat: 200 * time.Millisecond, FlowControl: true},
		"shared": {DeliverGroup: "workers"},
	} {
		got := &pushed{times: map[string]int{}, acked: map[string]time.Time{}}
		consumers[name] = got
		t.Cleanup(got.acks.Wait) // after the connections are closed
		config.Durable, config.DeliverSubject, config.AckPolicy, config.AckWait = name, "to."+name, nats.AckExplicitPolicy, pushedAckWait
		old, err := js.Conn().JetStream(nats.MaxWait(answerTime))
		testutil.Must(t, err)
		_, err = old.AddConsumer("orders", &config)
		testutil.Must(t, err)
		if config.DeliverGroup == "" {
			_, err := c.connect().Conn().Subscribe(config.DeliverSubject, got.take)
			testutil.Must(t, err)
			continue
		}
		for broker := range c.urls {
			_, err := c.connectTo(broker).Conn().QueueSubscribe(config.DeliverSubject, config.DeliverGroup, got.take)
			testutil.Must(t, err)
		}
	}
	published := 0
	publish := func() {
		t.Helper()
		for range 100 {
			published++
			m := &nats.Msg{Subject: fmt.Sprintf("orders.%d", published%12), Data: fmt.Append(nil, published)}
			testutil.Eventually(t, "a message is stored", func() error {
				within, cancel := context.WithTimeout(ctx, 2*time.Second) // it is lost with its broker
				defer cancel()
				_, err := js.PublishMsg(within, m, jetstream.WithMsgID(string(m.Data)))
				return err
			})
		}
	}
	allCame := func() {
		t.Helper()
		for name, got := range consumers {
			testutil.Eventually(t, "all messages are received by the consumer "+name, func() error { return got.has(published) })
		}
	}
	for i := range tries(4, 20) {
		publish()
		shard := 0 // every other time the relay's
		if i%2 == 1 {
			shard = 1 + i/2%2
		}
		c.kill(c.whole(js, fmt.Sprintf("orders--%d", shard)))
		publish()
		allCame()
	}
	for n := range 3 {
		c.whole(js, fmt.Sprintf("orders--%d", n))
	}
	publish()
	allCame()
	alone := consumers["alone"]
	testutil.Eventually(t, "heartbeats have the sequence of the last message", func() error {
		alone.mu.Lock()
		defer alone.mu.Unlock()
		if alone.beats < 3 {
			return fmt.Errorf("%d in a row do; %s", alone.beats, alone.missed)
		}
		return nil
	})
	for name, got := range consumers {
		got.mu.Lock()
		for _, what := range got.wrong {
			t.Errorf("%s: %s", name, what)
		}
		more := 0
		for _, n := range got.times {
			more += n - 1
		}
		t.Logf("%s received %d messages, %d of them again", name, published, more)
		got.mu.Unlock()
	}
}
