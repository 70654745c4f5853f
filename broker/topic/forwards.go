package topic

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/publish"
)

// Carrier is the way to another broker's Topics.
type Carrier interface {
	// Carry queues a frame, of parts that stand one behind the other. It copies them and never blocks. behind asks publishers to Wait.
	Carry(parts ...[]byte) (behind bool)
	// Wait blocks while the way is behind; it returns when it is cut.
	Wait()
}

// forwards is this broker's part as one that publishers are connected to, whichever brokers lead the
// shards that they publish to.
type forwards struct {
	service  *Service
	source   uint64 // this process, for leaders
	self     *Link  // to the shards that are led here
	wake     chan struct{}
	bytes    atomic.Int64
	messages atomic.Int64
	waiting  atomic.Int32 // publishers that wait for room

	resent, deduplicated, failed, refused atomic.Uint64

	mu     sync.Mutex
	room   *sync.Cond
	links  map[string]*Link // by broker
	active list.List        // of *sender whose outbox is not empty, in the order in which they began to hold messages
	closed bool
}

func (fw *forwards) init(s *Service) {
	fw.service, fw.source, fw.wake = s, rand.Uint64()|1, make(chan struct{}, 1)
	fw.room = sync.NewCond(&fw.mu)
	fw.links = map[string]*Link{}
	fw.self = &Link{service: s, broker: s.config.Self}
	fw.self.out = &loopback{link: fw.self}
	s.running.Go(fw.run)
}

func (fw *forwards) poke() {
	select {
	case fw.wake <- struct{}{}:
	default:
	}
}

// link is the way to a broker, or nil.
func (fw *forwards) link(broker string) *Link {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return fw.links[broker]
}

// run sees to what no publisher and no answer does: other leaders and links, rests that end, and messages that are too old.
func (fw *forwards) run() {
	timer := time.NewTimer(outboxTick)
	defer timer.Stop()
	var active []*sender
	for {
		select {
		case <-fw.service.ctx.Done():
			return
		case <-fw.wake:
		case <-timer.C:
		}
		fw.mu.Lock()
		active = fw.appendActive(active[:0])
		fw.mu.Unlock()
		now := time.Now()
		for _, f := range active {
			f.look(now)
		}
		clear(active)
		if len(active) > 0 {
			timer.Reset(outboxTick)
		} else {
			timer.Stop()
		}
	}
}

// appendActive adds the active senders to dst. mu is held.
func (fw *forwards) appendActive(dst []*sender) []*sender {
	for e := fw.active.Front(); e != nil; e = e.Next() {
		dst = append(dst, e.Value.(*sender))
	}
	return dst
}

// wait blocks while too much is forwarded and not answered.
func (fw *forwards) wait() {
	if !fw.full() {
		return
	}
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.waiting.Add(1)
	defer fw.waiting.Add(-1)
	for fw.full() && !fw.closed {
		fw.room.Wait()
	}
}

// waitLink blocks while the way to the shard's leader is behind.
func (p *Shard) waitLink() {
	f := p.out.Load()
	if f == nil {
		return
	}
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	if to != nil {
		to.out.Wait()
	}
}

func (fw *forwards) full() bool {
	return fw.bytes.Load() > outboxBytes || fw.messages.Load() > outboxMessages
}

func (fw *forwards) close() {
	fw.mu.Lock()
	fw.closed = true
	active := fw.appendActive(nil)
	fw.room.Broadcast()
	fw.mu.Unlock()
	for _, f := range active {
		f.fail(math.MaxInt64, &publish.LeadershipLostError{Topic: f.shard.topic.name, Why: "broker " + fw.service.config.Name + " is stopping"})
	}
}
