//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

const shards = 4

// kept is the position at which a message was acknowledged.
type kept struct {
	stream string
	seq    uint64
}

// writer publishes to one subject at one broker, each message after the answer to the one before,
// without message ids.
type writer struct {
	subject string
	home    int
	link    *link

	mu     sync.Mutex
	acked  map[int]kept
	errors []refused
	next   int
}

type refused struct {
	at  time.Time
	err error
}

// link is a connection whose end cancels pending requests: a broker that is killed never answers
// what it received.
type link struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
}

// up returns a context that ends when the connection is next lost.
func (l *link) up() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancel(context.Background())
	}
	return l.ctx
}

func (l *link) lost(*nats.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		l.cancel()
		l.ctx = nil
	}
}

func (w *writer) run(ctx context.Context, js jetstream.JetStream) {
	for ctx.Err() == nil {
		w.mu.Lock()
		n := w.next
		w.next++
		w.mu.Unlock()
		asked, cancel := context.WithTimeout(w.link.up(), answerTime)
		began := time.Now()
		ack, err := js.Publish(asked, w.subject, []byte(fmt.Sprintf("%s %d", w.subject, n)), jetstream.WithRetryAttempts(0))
		cancel()
		w.mu.Lock()
		if err == nil {
			w.acked[n] = kept{ack.Stream, ack.Sequence}
		} else {
			w.errors = append(w.errors, refused{began, err})
		}
		w.mu.Unlock()
		time.Sleep(pace)
	}
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// TestShardLeadersAreKilledOneAfterTheOther: leaders of the shards of a Topic are killed one after
// the other. No acknowledged message is lost, none is stored twice, the order of each subject
// holds, and publishers on the other brokers get an answer to every message: their brokers resend
// messages in flight to the next leader.
func TestShardLeadersAreKilledOneAfterTheOther(t *testing.T) {
	shardsChangeLeaders(t, syscall.SIGKILL)
}

// TestShardLeadersAreStoppedOneAfterTheOther: leaders are told to stop, as in a rolling change.
// Publishers that are connected to them get an answer to every message, too: the next leader
// acknowledges the last ones before the connections are closed.
func TestShardLeadersAreStoppedOneAfterTheOther(t *testing.T) {
	shardsChangeLeaders(t, syscall.SIGTERM)
}

func shardsChangeLeaders(t *testing.T, by syscall.Signal) {
	c := startCluster(t)
	js := c.connect()
	made, err := exec.Command(program, "topic", "create", "orders", "--shards", strconv.Itoa(shards), "--replicas", "3", "--subjects", "orders.>", "--server", c.urls[0]).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	var writers []*writer
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for home, url := range c.urls {
		link := &link{}
		nc, err := checker.Connect(url, "devcluster, writer", nats.IgnoreDiscoveredServers(), nats.DisconnectErrHandler(link.lost))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		at, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			w := &writer{subject: fmt.Sprintf("orders.%d", len(writers)), home: home, link: link, acked: map[int]kept{}}
			writers = append(writers, w)
			work.Go(func() { w.run(ctx, at) })
		}
	}
	goOn := func() {
		for _, w := range writers {
			before := w.count()
			testutil.Eventually(t, w.subject+" is published to", func() error {
				if n := w.count() - before; n < 20 {
					return fmt.Errorf("%d messages were acknowledged", n)
				}
				return nil
			})
		}
	}
	type kill struct {
		broker      int
		from, until time.Time
	}
	var killed []kill
	for i := range tries(3, 20) {
		leader := 0
		for n := range shards {
			if l := c.whole(js, fmt.Sprintf("orders--%d", n)); n == i%shards {
				leader = l
			}
		}
		goOn()
		began := time.Now()
		c.signal(by, leader)
		goOn()
		killed = append(killed, kill{leader, began.Add(-answerTime), time.Now()})
	}
	stop()
	work.Wait()
	for _, w := range writers {
		for _, e := range w.errors {
			if strings.Contains(e.err.Error(), "it isn't known whether") {
				t.Errorf("%s, at broker %d: sent at %v: %v", w.subject, w.home, e.at.Format(time.TimeOnly), e.err)
				continue
			}
			if !slices.ContainsFunc(killed, func(k kill) bool { return k.broker == w.home && e.at.After(k.from) && e.at.Before(k.until) }) {
				t.Errorf("%s, at broker %d, which was not killed then: sent at %v: %v", w.subject, w.home, e.at.Format(time.TimeOnly), e.err)
			}
		}
	}
	there := map[string]kept{}
	last := map[string]int{}
	for n := range shards {
		stream := fmt.Sprintf("orders--%d", n)
		c.whole(js, stream)
		c.readAll(js, stream, func(payload string, seq uint64) {
			if before, twice := there[payload]; twice {
				t.Errorf("%q stands at %v and at %s %d", payload, before, stream, seq)
			}
			there[payload] = kept{stream, seq}
			subject, number, _ := strings.Cut(payload, " ")
			if at, err := strconv.Atoi(number); err != nil || at < last[subject] {
				t.Errorf("%q stands behind %d of that subject: %v", payload, last[subject], err)
			} else {
				last[subject] = at
			}
		})
	}
	acked := 0
	for _, w := range writers {
		acked += len(w.acked)
		for n, where := range w.acked {
			if payload := fmt.Sprintf("%s %d", w.subject, n); there[payload] != where {
				t.Errorf("%q was acknowledged at %v, and is at %v", payload, where, there[payload])
			}
		}
	}
	t.Logf("%d leaders ended by %v; %d messages acknowledged, %d there", len(killed), by, acked, len(there))
}

// readAll reads a stream from its first to its last message.
func (c *cluster) readAll(js jetstream.JetStream, stream string, each func(payload string, seq uint64)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		c.t.Fatal(err)
	}
	end := s.CachedInfo().State.LastSeq
	reader, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		c.t.Fatal(err)
	}
	messages, err := reader.Messages()
	if err != nil {
		c.t.Fatal(err)
	}
	defer messages.Stop()
	for seq := uint64(0); seq < end; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			c.t.Fatalf("read %s behind %d of %d: %v", stream, seq, end, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			c.t.Fatal(err)
		}
		seq = meta.Sequence.Stream
		each(string(m.Data()), seq)
	}
}
