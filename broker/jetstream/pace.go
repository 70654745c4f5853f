package jetstream

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Calls that write definitions to etcd have a rate, so that no client keeps etcd busy for ever:
//
//  1. The client's own broker counts them, before it forwards a call, by the client's user, or
//     by its network if there are no users. What streams republish to the API counts together.
//  2. A creation, update or deletion of a stream takes one token, and one for each paceBytes of
//     its request. So does a change that the command line asks for (Pace).
//  3. A creation or change of a consumer that is in etcd takes paceConsumer, and one for each
//     paceBytes: a durable one, one that this broker's State has, or one of a Topic with several
//     shards. A deletion takes paceConsumer if the State has the consumer. Others take nothing for
//     themselves.
//  4. A call beyond the burst waits for its tokens, for pacePatience at most. So a client that
//     waits for each answer is slowed down. A call that would wait for longer is refused.
//  5. The rate is that of a broker: a client of three brokers has three times as much.
type pace struct {
	server  *Server
	take    func(*pacedCall) // takes a call whose time has come
	buckets *work.Buckets
	ready   chan struct{} // the earliest call has changed; of size 1

	mu     sync.Mutex
	calls  pacedCalls
	bytes  int
	number uint64

	paced, refused atomic.Uint64
}

// pacedCall is a call that waits for its tokens, with memory of its own.
type pacedCall struct {
	message protocol.Message
	client  uint64
	came    time.Time
	due     time.Time
	number  uint64 // in the order in which they came
}

func newPace(s *Server) *pace {
	return &pace{
		server: s, ready: make(chan struct{}, 1), buckets: work.NewBuckets(paceBurst, paceRate, pacePatience, paceClients),
		take: func(c *pacedCall) {
			r, _ := jsapi.ParseSubject(c.message.Subject)
			s.takePaced(c.client, r, &c.message, false, c.came)
		},
	}
}

// of returns how many tokens a call takes.
func (p *pace) of(r *jsapi.Request, m *protocol.Message) float64 {
	weight := float64(len(m.Data) / paceBytes)
	switch r.Call {
	case jsapi.StreamCreate, jsapi.StreamUpdate, jsapi.StreamDelete:
		return 1 + weight
	case jsapi.ConsumerDurable:
		return paceConsumer + weight
	case jsapi.ConsumerCreate:
		name, durable := createdBy(m)
		if len(r.Consumer) > 0 {
			name = string(r.Consumer)
		}
		if durable || p.server.shardedTopic(string(r.Stream)) != nil || p.inEtcd(r.Stream, name) {
			return paceConsumer + weight
		}
		return weight
	case jsapi.ConsumerDelete, jsapi.ConsumerPause, jsapi.ConsumerReset:
		if p.inEtcd(r.Stream, string(r.Consumer)) {
			return paceConsumer
		}
	}
	return 0
}

// inEtcd reports whether this broker's State has a consumer.
func (p *pace) inEtcd(stream []byte, consumer string) bool {
	return p.server.state().Subscription(p.server.topicID(stream), consumer) != nil
}

// createdBy returns the name that a request to create or change a consumer gives it, and whether
// that is a durable one. A change need not repeat that.
func createdBy(m *protocol.Message) (name string, durable bool) {
	var request struct {
		Config struct {
			Name    string `json:"name"`
			Durable string `json:"durable_name"`
		} `json:"config"`
	}
	_, payload := protocol.SplitData(m.Data, m.Header)
	// What is wrong with the request is for whoever serves it. The fields before that count.
	_ = json.Unmarshal(payload, &request)
	return request.Config.Name, request.Config.Durable != ""
}

// Pace takes a token of an account's rate, and more for a request of many bytes. It returns how
// long to wait for them. ok is false if that is too long; then nothing was taken.
func (s *Server) Pace(account string, bytes int) (wait time.Duration, ok bool) {
	wait, ok = s.pace.buckets.Take(account, 1+float64(bytes/paceBytes), time.Now())
	switch {
	case !ok:
		s.pace.refused.Add(1)
	case wait > 0:
		s.pace.paced.Add(1)
	}
	return wait, ok
}

// passes reports whether a client's call goes on now. Otherwise it was kept for later, or refused.
func (p *pace) passes(client uint64, r jsapi.Request, m *protocol.Message) bool {
	tokens := p.of(&r, m)
	if tokens == 0 {
		return true
	}
	now := time.Now()
	wait, ok := p.buckets.Take(p.server.accountOf(client), tokens, now)
	if ok && wait == 0 {
		return true
	}
	if ok && p.keep(client, m, now, now.Add(wait)) {
		p.paced.Add(1)
		return false
	}
	p.refused.Add(1)
	c := &call{Request: r, reply: bytes.Clone(m.Reply), message: protocol.Message{Subject: bytes.Clone(m.Subject)}}
	p.server.refuse(c, withReason(jsapi.ErrInsufficientResources, fmt.Errorf(
		"this client creates, updates and deletes streams faster than %d a second for too long, where %d consumers or %d KiB of settings count as one (wait for the answers, or try again in a moment)", paceRate, int(1/paceConsumer), paceBytes>>10)))
	return false
}

// keep keeps a copy of the call. It reports false if there is no room.
func (p *pace) keep(client uint64, m *protocol.Message, came, due time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := sizeOfPaced(m)
	if len(p.calls) >= slowWaiting || p.bytes+size > waitingBytes {
		return false
	}
	p.number++
	p.bytes += size
	heap.Push(&p.calls, &pacedCall{client: client, came: came, due: due, number: p.number, message: protocol.Message{
		Subject: bytes.Clone(m.Subject), Reply: bytes.Clone(m.Reply), Header: m.Header, Data: bytes.Clone(m.Data),
	}})
	if p.calls[0].number == p.number {
		select {
		case p.ready <- struct{}{}:
		default:
		}
	}
	return true
}

func sizeOfPaced(m *protocol.Message) int { return 128 + len(m.Subject) + len(m.Reply) + len(m.Data) }

// next returns the calls whose time has come, and how long it is until that of the next one.
func (p *pace) next(now time.Time) (due []*pacedCall, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.calls) > 0 {
		if wait = p.calls[0].due.Sub(now); wait > 0 {
			return due, wait
		}
		c := heap.Pop(&p.calls).(*pacedCall)
		p.bytes -= sizeOfPaced(&c.message)
		due = append(due, c)
	}
	return due, time.Hour // nothing waits: ready ends that
}

// run takes calls again when their time has come, until the server closes. Those that wait then are
// not answered, as others that come while a broker ends.
func (p *pace) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, wait := p.next(time.Now())
		for _, c := range due {
			p.take(c)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.ready:
		case <-p.server.ctx.Done():
			return
		}
	}
}

// pacedCalls is a heap, the earliest first.
type pacedCalls []*pacedCall

func (h pacedCalls) Len() int { return len(h) }

func (h pacedCalls) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].number < h[j].number
}

func (h pacedCalls) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *pacedCalls) Push(x any) { *h = append(*h, x.(*pacedCall)) }

func (h *pacedCalls) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
