package replica

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/work"
)

// ID names a shard.
type ID struct {
	Topic string // id of the Topic
	Shard int
}

// Config is what an Exchange works with.
type Config struct {
	Self string // id of this broker
	// Dial connects to another broker for replication. The connection is authenticated.
	Dial  func(ctx context.Context, broker string) (net.Conn, error)
	Store Store
	// Now is a monotonic clock, from any moment on. nil: that of the process.
	Now func() time.Duration
	// Clock exchanges votes with the clocks of other brokers. nil: there is none.
	Clock  *clock.Clock
	Logger *slog.Logger
}

// Store is where in-sync sets are kept; *coordination.Client is one.
type Store interface {
	SwapInSync(ctx context.Context, self coordination.Replica, before *coordination.Shard,
		inSync []coordination.Replica) (*coordination.Shard, error)
	Vouch(ctx context.Context, self coordination.Replica, before *coordination.Shard,
		reach coordination.Reach, leads bool) (*coordination.Shard, error)
	Withdraw(ctx context.Context, self coordination.Replica,
		before *coordination.Shard) (*coordination.Shard, error)
	Resign(ctx context.Context, self coordination.Replica,
		before *coordination.Shard) (*coordination.Shard, error)
	ReadShards(ctx context.Context, topicID string) ([]*coordination.Shard, int64, error)
}

// LeadConfig describes a shard that is led here in one epoch.
type LeadConfig struct {
	ID
	Shard      *coordination.Shard // names this broker its leader
	MinInSync  int
	Durability log.Durability
	Logs       [Parts]*log.Log
	High       [Parts]uint64 // up to where records were known to be safe
	// Moved is called after a follower's progress, or a change of the set, moved a watermark. It
	// must not block, nor End this.
	Moved func()
	// Unreadable is called with the error when a log could not be read for a follower. It may be
	// nil, must not block, nor End this.
	Unreadable func(err error)
}

// FollowConfig describes a shard that is followed here.
type FollowConfig struct {
	ID
	Shard      *coordination.Shard // names another broker its leader
	Durability log.Durability
	Logs       [Parts]*log.Log
	// High is the end of the records known to be safe on all members, from following before.
	High [Parts]uint64
	// Failed is called once, when a log accepts no more appends. It must not block, nor End this.
	Failed func(error)
	// Contradicted is called once an epoch, if the leader's verdict would drop records that are
	// known to be safe on all members, or empty a log that has some below where it is to be
	// truncated. Then nothing is dropped and nothing is copied any more. It must not block, nor End
	// this. If it is nil, records that the leader lacks are set aside.
	Contradicted func(why string)
	// InDoubt reports whether the copy is in doubt, so that it does not count: then such records
	// are set aside. It must not block. If it is nil, the copy is not in doubt.
	InDoubt func() bool
	// RepairEnded must be set if the logs lack segments (log.Log.Lacks), and only then. The
	// segments are fetched, and nothing is copied. RepairEnded is called once: with nil when the
	// logs are complete, or with the reason why they cannot be completed. It must not block, nor
	// End this.
	RepairEnded func(error)
	// Unwanted is set if the copy is to be set aside as a whole. Then nothing is fetched or copied:
	// the leader takes what it lacks of the copy (package comment of offer.go), and Unwanted is
	// called once when the leader of an epoch wants nothing of it. It must not block, nor End this.
	Unwanted func(epoch int64)
	// Watch is called with every change of the data log; nil: there is none. It is called by one
	// goroutine at a time, and not after End.
	Watch Watcher
}

// Watcher receives the changes of a follower's log, in order.
type Watcher interface {
	Appended(b log.Batch)
	Truncated(end uint64) // it ends there now
	Reset()               // it is empty, and may begin anywhere
}

// Exchange sends what leaders append to their followers, and acks back.
//
// Per leader broker there is one connection, which the follower dials and all its shards share. The
// leader's end is a followerConn, the follower's a leaderConn. A followerConn has a queue of shards
// with something to send, and one goroutine that serves it. So a shard has neither a goroutine nor
// a timer, and an idle one costs a few hundred bytes. Rejected: followers that fetch, as in Kafka.
// Either an ack waits for the next fetch, or ten thousand idle shards are fetched all the time.
//
// Locks, in this order: Leading.mu or Following.mu; Exchange.mu; those of connections. None is held
// during I/O.
type Exchange struct {
	config  Config
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup
	disk    *work.Jobs // flushes, truncations, resets, trims
	swaps   *work.Jobs
	// mends are of leaders' own copies, looks read these as a whole, and lookPace bounds how fast.
	mends    *work.Jobs
	looks    *work.Jobs
	lookPace *log.Pace
	counters

	mu            sync.Mutex
	closed        bool
	self          coordination.Replica // incarnation 0: not known yet
	registered    incarnations
	leads         map[ID]*Leading // with followers
	follows       map[ID]*Following
	followerConns map[string]*followerConn // by follower
	dialers       map[string]*leaderDialer // by leader
	moved         []*Leading               // with a pending call of Moved, by the sweeper
	unsettled     []*Leading               // with a set that may change soon
	trims         []*Following
	lastLogged    map[string]time.Duration // time of the last warning, by key

	dueMu sync.Mutex
	due   []*Following // with something to ack
	spare []*Following

	wake     chan struct{} // of the sweeper
	sweeping []*Leading    // its own
}

// incarnations are those of the registered brokers, by id. A value never changes.
type incarnations map[string]int64

// alive reports whether a broker is registered in that incarnation. Incarnation 0, of a member that
// withdrew, never is.
func (a incarnations) alive(r coordination.Replica) bool {
	return r.Incarnation != 0 && a[r.Broker] == r.Incarnation
}

// NewExchange starts an Exchange. Close ends it.
func NewExchange(c Config) *Exchange {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		began := time.Now()
		c.Now = func() time.Duration { return time.Since(began) }
	}
	x := &Exchange{
		config: c, log: c.Logger.With("component", "replication"),
		self: coordination.Replica{Broker: c.Self},
		disk: work.NewJobs(diskWorkers, 0, 0), swaps: work.NewJobs(swapWorkers, 0, 0),
		mends: work.NewJobs(mendWorkers, mendJobs, mendBytes), looks: work.NewJobs(1, mendJobs, 0), lookPace: log.NewPace(lookRate),
		leads: make(map[ID]*Leading), follows: make(map[ID]*Following), followerConns: make(map[string]*followerConn), dialers: make(map[string]*leaderDialer),
		lastLogged: make(map[string]time.Duration), wake: make(chan struct{}, 1),
	}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.workers.Go(x.sweep)
	return x
}

// Close ends all connections and waits for everything that was started.
func (x *Exchange) Close() {
	x.mu.Lock()
	x.closed = true
	var ends []*connection
	for _, o := range x.followerConns {
		ends = append(ends, &o.connection)
	}
	for _, fd := range x.dialers {
		if fd.conn != nil {
			ends = append(ends, &fd.conn.connection)
		}
	}
	x.mu.Unlock()
	x.cancel()
	for _, c := range ends {
		c.fail(errClosing)
	}
	x.disk.Close()
	x.mends.Close()
	x.looks.Close()
	x.swaps.Close()
	x.workers.Wait()
}

// Observe applies the registered brokers and their incarnations, including this broker's.
func (x *Exchange) Observe(state *coordination.State) {
	x.mu.Lock()
	if x.closed || x.registered.same(state.Brokers) {
		x.mu.Unlock()
		return
	}
	before := x.self
	x.registered = make(incarnations, len(state.Brokers))
	for _, b := range state.Brokers {
		x.registered[b.ID] = b.Incarnation
	}
	// Without a registration this broker keeps its last incarnation (R7).
	if now := x.registered[x.config.Self]; now != 0 {
		x.self.Incarnation = now
	}
	self, registered := x.self, x.registered
	leads := slices.Collect(maps.Values(x.leads))
	var follows []*Following
	if self != before {
		follows = slices.Collect(maps.Values(x.follows))
	}
	for _, fd := range x.dialers {
		fd.dialNow() // the leader may be back
	}
	x.mu.Unlock()
	for _, l := range leads {
		l.observe(self, registered)
	}
	for _, f := range follows {
		f.askAgain()
	}
}

func (a incarnations) same(brokers []coordination.Broker) bool {
	return len(a) == len(brokers) && a != nil &&
		!slices.ContainsFunc(brokers, func(b coordination.Broker) bool {
			return a[b.ID] != b.Incarnation
		})
}

// registeredSelf returns this broker in its registered incarnation.
func (x *Exchange) registeredSelf() coordination.Replica {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.self
}

// leading returns this broker's leader of a shard, or nil, and the newest epoch of the shard that
// is known here.
func (x *Exchange) leading(id ID) (l *Leading, epoch int64) {
	x.mu.Lock()
	l, f := x.leads[id], x.follows[id]
	x.mu.Unlock()
	if l != nil {
		epoch = l.epoch
	}
	if f != nil {
		epoch = max(epoch, f.epochNow())
	}
	return l, epoch
}

// Committed sends the acks that completions made due. It is called after each round of the disk's
// committer.
func (x *Exchange) Committed() {
	x.dueMu.Lock()
	due := x.due
	x.due, x.spare = x.spare[:0], nil
	x.dueMu.Unlock()
	var last *leaderConn // most acks are for few leaders, and an idle writer is woken once
	for _, f := range due {
		if in := f.ackDue(); in != nil && in != last {
			if last != nil {
				last.signal()
			}
			last = in
		}
	}
	if last != nil {
		last.signal()
	}
	clear(due)
	x.dueMu.Lock()
	x.spare = due[:0]
	x.dueMu.Unlock()
}

// warnThrottled logs a warning. If it logged one with the same key within logEvery, it logs this
// one at debug level.
func (x *Exchange) warnThrottled(key, text string, args ...any) {
	now := x.config.Now()
	x.mu.Lock()
	last, known := x.lastLogged[key]
	quiet := known && now-last < logEvery
	if !quiet {
		if len(x.lastLogged) >= maxLogKeys {
			clear(x.lastLogged)
		}
		x.lastLogged[key] = now
	}
	x.mu.Unlock()
	level := slog.LevelWarn
	if quiet {
		level = slog.LevelDebug
	}
	x.log.Log(context.Background(), level, text, args...)
}
