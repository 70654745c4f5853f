package session

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// listTaker is a Taker that lists what it receives.
type listTaker struct {
	calls *[]string
	name  string
}

func (l *listTaker) Take(messages []Message, _ protocol.Memory, _ bool) bool {
	if l.calls != nil {
		for i := range messages {
			*l.calls = append(*l.calls, l.name+" "+string(messages[i].Subject))
		}
	}
	return false
}

func (l *listTaker) Wait() {}

// read fills a batch with the messages of one read, of which each has the next of some Takers.
func read(b *batch, takers []Taker, messages []Message) {
	for i := range messages {
		b.forTakers, b.takers = append(b.forTakers, messages[i]), append(b.takers, takers[i%len(takers)])
	}
}

// TestEachTakerGetsItsMessagesInOrder: Takers are called in the order of their first messages, once
// for each read.
func TestEachTakerGetsItsMessagesInOrder(t *testing.T) {
	var got []string
	x, y, z := &listTaker{&got, "x"}, &listTaker{&got, "y"}, &listTaker{&got, "z"}
	b := &batch{}
	for range 2 { // nothing is left of the first read
		got = nil
		for i, to := range []Taker{y, y, x, y, z, z, x} {
			b.forTakers, b.takers = append(b.forTakers, Message{Subject: fmt.Append(nil, i)}), append(b.takers, to)
		}
		b.callTakers()
		if want := []string{"y 0", "y 1", "y 3", "x 2", "x 6", "z 4", "z 5"}; !slices.Equal(got, want) {
			t.Errorf("passed %q, want %q", got, want)
		}
	}
}

// TestManyTakersGetTheirMessagesInOrder is the same for more Takers than are searched one by one.
func TestManyTakersGetTheirMessagesInOrder(t *testing.T) {
	const takers, each = 3 * fewTakers, 5
	var got, want []string
	var all []Taker
	for i := range takers {
		all = append(all, &listTaker{&got, fmt.Sprint(i)})
		for k := range each {
			want = append(want, fmt.Sprint(i, " ", i+k*takers))
		}
	}
	var messages []Message
	for i := range takers * each {
		messages = append(messages, Message{Subject: fmt.Append(nil, i)})
	}
	b := &batch{}
	for range 2 {
		got = nil
		read(b, all, messages)
		if b.callTakers(); !slices.Equal(got, want) {
			t.Errorf("passed %q, want %q", got, want)
		}
	}
	if len(b.takings)+len(b.nextOf)+len(b.manyTakers) > 0 {
		t.Error("something is left of the read")
	}
}

// BenchmarkTakers passes 512 messages of one read to some Takers in turn.
func BenchmarkTakers(b *testing.B) {
	for _, n := range []int{1, 2, 16, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var takers []Taker
			for range n {
				takers = append(takers, &listTaker{})
			}
			messages, from := make([]Message, 512), &batch{}
			b.ReportAllocs()
			for b.Loop() {
				read(from, takers, messages)
				from.callTakers()
			}
		})
	}
}

// refuser is a ClientTaker that refuses all requests, and counts them.
type refuser struct {
	listTaker
	refused atomic.Int64
}

func (r *refuser) TakeOf(_ uint64, messages []Message, _ protocol.Memory, behind *work.Behind) {
	r.refused.Add(int64(len(messages)))
	behind.Refused(len(messages))
}

// TestWhoIsRefusedIsReadSlowly: a client sends requests between subscriptions, as fast as it can.
// They reach the Taker one by one, and all are refused: after ten of them the client is read no
// further until a pause is over. Others are read meanwhile.
func TestWhoIsRefusedIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 1)
		defer h.Close()
		taker := &refuser{}
		h.Offer(taker).Set([]string{"api"})
		flooder, bystander := piped(t, h), piped(t, h)
		var flood strings.Builder
		const requests = 95
		for n := range requests {
			fmt.Fprintf(&flood, "SUB inbox.%d %d\r\nPUB api 1\r\nx\r\n", n, n+1)
		}
		began := time.Now()
		flooder(flood.String())
		if n := taker.refused.Load(); n != 10 {
			t.Errorf("%d requests are taken before the first pause", n)
		}
		if bystander("PUB other 1\r\nx\r\n"); h.Stats().InMsgs < 11 {
			t.Error("another client is not read during the pause")
		}
		for taker.refused.Load() < requests && time.Since(began) < time.Second {
			time.Sleep(time.Millisecond) // by the bubble's clock
			synctest.Wait()
		}
		if took := time.Since(began); taker.refused.Load() != requests || took < 80*time.Millisecond {
			t.Errorf("%d requests are refused within %s", taker.refused.Load(), took)
		}
	})
}

// TestAPauseDelaysNoClose: the hub closes while a client is not read since its requests were
// refused.
func TestAPauseDelaysNoClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 1)
		taker := &refuser{}
		h.Offer(taker).Set([]string{"api"})
		sends := piped(t, h)
		sends(strings.Repeat("PUB api 1\r\nx\r\n", 250))
		if n := taker.refused.Load(); n != 250 {
			t.Errorf("%d requests are refused", n)
		}
		began := time.Now()
		if h.Close(); time.Since(began) > 0 {
			t.Errorf("it takes %s", time.Since(began))
		}
	})
}

// clientTaker is a ClientTaker in which what the first client publishes goes through a queue.
type clientTaker struct {
	listTaker
	clients map[uint64]bool
	queue   gate
}

// gate is a queue that is behind until it is opened.
type gate chan struct{}

func (g gate) Wait() { <-g }

func (c *clientTaker) TakeOf(client uint64, _ []Message, _ protocol.Memory, behind *work.Behind) {
	if c.clients[client] = true; len(c.clients) == 1 {
		behind.Add(c.queue)
	}
}

// TestAClientWaitsForItsOwnQueueOfATaker: others that publish to that Taker do not.
func TestAClientWaitsForItsOwnQueueOfATaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 1)
		defer h.Close()
		taker := &clientTaker{clients: map[uint64]bool{}, queue: make(gate)}
		h.Offer(taker).Set([]string{"topic"})
		for _, client := range []func(string) *atomic.Bool{piped(t, h), piped(t, h)} {
			for range 2 {
				client("PUB topic 1\r\nx\r\n")
			}
		}
		if n := h.Stats().InMsgs; n != 3 {
			t.Errorf("%d messages are read of a client that waits and one that does not", n)
		}
		close(taker.queue)
		if synctest.Wait(); h.Stats().InMsgs != 4 {
			t.Errorf("%d messages are read in the end", h.Stats().InMsgs)
		}
	})
}
