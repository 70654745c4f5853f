package sender

import (
	"container/list"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// Carrier is the way to another broker's Topics.
type Carrier interface {
	// Carry queues a frame, of parts that stand one behind the other. It copies them and never
	// blocks. behind asks publishers to Wait.
	Carry(parts ...[]byte) (behind bool)
	// Wait blocks while the way is behind; it returns when it is cut.
	Wait()
}

// ID is how a shard is known.
type ID struct {
	TopicID string
	Topic   string // its name
	Name    string // of the shard
	Number  int
}

// View is what the cluster's state says of a shard. It never changes.
type View interface {
	Gone() bool     // it is deleted, or being deleted
	Served() bool   // it is placed, and brokers can serve it
	Leader() string // id of a broker; empty: none
	Leads() bool    // this broker leads it
	Epoch() uint64
	Replicas() int
	NoAck() bool
	Keeps(subject []byte) bool // a message with that subject is to be kept
	Batches() *batching.Topic  // nil: it takes no batches
}

// Shard is what a sender needs of its shard, and a Link of the shard that another broker forwards
// to.
type Shard interface {
	View() View
	// Sender returns the shard's sender; the first call makes it. Used returns nil instead.
	Sender() *Sender
	Used() *Sender
	// Why says for people why nothing can be published; empty: it can. Refusal is the same as an
	// error, and never nil.
	Why() string
	Refusal() error
	// Arrive judges messages as the shard's leader. It keeps none of them when it returns.
	Arrive(from *Link, a *Arrival)
}

// Hub sends answers to publishers.
type Hub interface {
	Send(messages []protocol.Message) work.Behind
}

// Config is what Senders work with.
type Config struct {
	Self, Name string // id of this broker, and its name for people
	Codec      publish.Codec
	Hub        Hub
	Refused    *publish.Refusals // counts what is refused
	Closing    func() bool       // this broker is stopping
	// Shard returns the shard of that number of a Topic, by the Topic's id; nil: there is none.
	Shard func(topicID []byte, number int) Shard
}

// Stats are counters and gauges of Senders.
type Stats struct {
	Resent, Failed, Full uint64
	Bytes, Messages      int64 // that are held
}

var replies = sync.Pool{New: func() any { return &publish.Replies{} }}

// send sends answers and takes their memory back.
func (fw *Senders) send(out *publish.Replies) {
	if len(out.Messages) > 0 {
		fw.config.Hub.Send(out.Messages)
	}
	out.Reset()
	replies.Put(out)
}

// Senders is this broker's part as one that publishers are connected to, whichever brokers lead the
// shards that they publish to.
type Senders struct {
	config   Config
	source   uint64 // this process, for leaders
	self     *Link  // to the shards that are led here
	wake     chan struct{}
	room     *room        // of main senders
	laneRoom *room        // of all lanes
	fast     fastCodec    // nil: there are no fast batches
	fasts    atomic.Int64 // open fast batches
	closed   atomic.Bool

	resent, failed, refused atomic.Uint64

	mu    sync.Mutex
	links map[string]*Link // by broker
	// active has each *Sender with messages in its outbox, in the order in which these came.
	active list.List
}

// Init prepares the senders. It precedes all other calls.
func (fw *Senders) Init(config Config) {
	fw.config, fw.source, fw.wake = config, rand.Uint64()|1, make(chan struct{}, 1)
	fw.fast, _ = config.Codec.(fastCodec)
	fw.room = newRoom(share{amount{OutboxBytes, OutboxMessages}, amount{leastBytes, leastMessages}}, &fw.closed)
	fw.laneRoom = newRoom(share{amount{lanesBytes, lanesMessages}, amount{leastLaneBytes, leastLaneMessages}}, &fw.closed)
	fw.links = map[string]*Link{}
	fw.self = &Link{senders: fw, broker: config.Self}
	fw.self.out = &loopback{link: fw.self}
}

// Poke has Run look at all senders soon.
func (fw *Senders) Poke() {
	select {
	case fw.wake <- struct{}{}:
	default:
	}
}

// link is the way to a broker, or nil.
func (fw *Senders) link(broker string) *Link {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return fw.links[broker]
}

// Run sees, until ctx ends, to what no publisher and no answer does: other leaders and links, rests
// that end, and messages that are too old.
func (fw *Senders) Run(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	var active []*Sender
	for {
		select {
		case <-ctx.Done():
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
			timer.Reset(tick)
		} else {
			timer.Stop()
		}
	}
}

// appendActive adds the active senders to dst. mu is held.
func (fw *Senders) appendActive(dst []*Sender) []*Sender {
	for e := fw.active.Front(); e != nil; e = e.Next() {
		dst = append(dst, e.Value.(*Sender))
	}
	return dst
}

// Close fails what is held, and lets publishers go on that wait.
func (fw *Senders) Close() {
	fw.closed.Store(true)
	fw.mu.Lock()
	active := fw.appendActive(nil)
	fw.mu.Unlock()
	fw.room.letGo()
	fw.laneRoom.letGo()
	for _, f := range active {
		f.fail(math.MaxInt64, &publish.LeadershipLostError{Topic: f.id.Topic, Why: "broker " + fw.config.Name + " is stopping"})
	}
}

// Stats returns the counters and gauges.
func (fw *Senders) Stats() Stats {
	main, lanes := fw.room.held.load(), fw.laneRoom.held.load()
	return Stats{fw.resent.Load(), fw.failed.Load(), fw.refused.Load(), main.bytes + lanes.bytes, main.messages + lanes.messages}
}

// Hold counts bytes as held by the outbox of a main sender to a broker although no message is,
// until release is called. Tests fill the room with it.
func (fw *Senders) Hold(broker string, bytes int64) (release func()) {
	f := fw.New(ID{}, nil)
	f.room.join(f, broker)
	f.room.add(f, amount{bytes, 0})
	return func() {
		f.room.add(f, amount{-bytes, 0})
		f.room.leave(f)
	}
}

// Source is the number of this process, by which leaders know its messages.
func (fw *Senders) Source() uint64 { return fw.source }
