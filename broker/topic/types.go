package topic

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/ahead"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/confirm"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/counting"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/inventory"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/republish"
	"github.com/carillon-mq/carillon/broker/retention"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
)

// Config is what a Service works with.
type Config struct {
	Self    string // id of this broker
	Name    string // for people
	Disk    *log.Disk
	Hub     publish.Hub
	Codec   publish.Codec
	Payload int               // the largest message that the broker takes, with headers
	Clock   *clock.Clock      // nil: the machine's, without votes
	Compact upkeep.Compacting // zero: as limits.go has it
	Ahead   ahead.Bound       // zero: ahead.Default
	// UpkeepAfter is when scrubbing and compression of segments begin. 0: as package upkeep has it.
	UpkeepAfter time.Duration
	// Exchange brings batches to followers and from leaders.
	Exchange *replica.Exchange
	// Report writes to etcd for which shards this broker can't vouch for its copy and, after etcd
	// was restored from a backup, how far all copies of restored shards go. It may be nil.
	Report func(ctx context.Context, generation int64, suspects []coordination.Suspect) error
	// Deleted reports whether it is proven that the Topic of an id was deleted. It is called for
	// logs of unknown Topics. Its error is that of ctx.
	Deleted func(ctx context.Context, id string) (bool, error)
	Logger  *slog.Logger
	// Attributes are those of subjects, which records are stored with; nil: no subject has any.
	Attributes *attribute.Store
	// Republish is where streams publish again what they have stored; nil: nowhere.
	Republish republish.Hub
	// MayPublish reports whether a message may be published on a user's behalf; nil: each may.
	MayPublish func(user string, on []byte) bool
	// Leading is called for each leader on this broker, after it was opened and before it closes.
	// It is called concurrently for different shards. It may be nil.
	Leading func(s *ShardLeader, open bool)
	// Abandoned is called when an atomic batch ended without a commit; see batching.Config.
	Abandoned func(topic, id string, why batching.Reason)
}

// Service is this broker's part in all Topics of the cluster.
type Service struct {
	config Config
	log    *slog.Logger
	stored *inventory.Inventory // of the logs on the disk

	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	steps   uint64 // of the clock when ids were read last; the keeper's
	closing atomic.Bool
	running sync.WaitGroup
	tasks   *work.Tasks[*Shard, struct{}]
	acker   *acking.Acker
	counts  counts
	// aheadBound bounds each ShardLeader.ahead. It never changes.
	aheadBound ahead.Bound
	upkeep     *upkeep.Upkeep
	indexes    *indexing.Indexes
	republish  *republish.Publisher
	counters   *counting.Counters
	// stamps reports whether all brokers keep the attributes that records are stored with.
	stamps atomic.Bool

	senders sender.Senders
	staging *batching.Staging

	// state is not under mu: Take reads it, and Follow may wait in the hub for Take while it holds
	// mu.
	state atomic.Pointer[coordination.State]

	mu          sync.RWMutex
	changed     chan struct{}
	incarnation int64             // of this broker in state; 0: it isn't registered
	brokers     map[string]string // names of all present and former members, by id
	byName      map[string]*Topic
	byID        map[string]*Topic
	removed     map[string]*Topic // gone from etcd, by id, until their logs here are gone, too

	openMu       sync.Mutex
	open         map[*ShardLeader]struct{}
	retries      map[*Shard]struct{} // with trouble
	entryRetries map[*Shard]struct{} // whose last change of the entry failed

	firstLife atomic.Int64 // the first incarnation in which this process was seen registered

	// reports are written whenever they have changed; see reporter.
	reports *coordination.Suspects
	// restoring means that Follow applies the first State after etcd was restored. Guarded by mu.
	restoring bool
}

// counts are the counters behind Stats and ScrubStats.
type counts struct {
	appended, duplicates, deduplicated atomic.Uint64
	refetched                          atomic.Uint64 // damaged copies
	ids, followedIDs                   atomic.Int64  // of led shards, and of all others
	refused                            publish.Refusals
}

// Topic is a Topic of the cluster as this broker sees it.
type Topic struct {
	service  *Service
	id, name string
	offer    publish.Offer // used by Follow and Close only, one after the other
	shards   []*Shard
	ids      atomic.Int64 // in the deduplication windows of those that this broker leads
}

// Shard is a shard of a Topic as this broker sees it: led here, followed here, or elsewhere.
// JetStream calls it a stream: one log with dense offsets.
type Shard struct {
	topic  *Topic
	number int
	name   string

	view    atomic.Pointer[view]
	cleared bool                        // its logs are gone, in Service.removed; guarded by Service.mu
	leading atomic.Pointer[ShardLeader] // led here, with its logs open
	// trouble is why the logs can't be opened, or are to be opened again, or nil.
	trouble atomic.Pointer[trouble]

	out        atomic.Pointer[sender.Sender] // nil until the first publish
	waiters    sender.Waiting
	work.State // in Service.tasks

	backoff work.Backoff // of retries of the logs; guarded by the service's openMu

	// These fields belong to the shard's worker.
	logs      *logs                 // nil: closed
	origins   *forward.Origins      // of the open data log; the leader's while led
	ids       dedup.Window          // likewise; has a lock of its own
	following *replica.Following    // nil: not followed
	followed  log.Durability        // of following
	repair    *repair               // nil: following copies
	mended    bool                  // a repair began since the logs were opened
	high      [replica.Parts]uint64 // the high watermarks when leading or following last ended
	rest      *replica.Rest         // of the last Leading
	own       copyOf
	tried     *trouble // trouble when the pass began

	copying atomic.Pointer[replica.Following] // following, for any goroutine
	opened  atomic.Pointer[logs]              // logs, which may be closed concurrently
	fault   atomic.Pointer[error]             // why a log can't take more batches of its leader
	known   atomic.Uint64                     // the latest epoch of a State
	// removing is 1 + the generation in which a plan moves the replica away; 0: none.
	removing  atomic.Int64
	unremoved upkeep.Unremoved // of the state log
}

// trouble is a failure of a shard's logs.
type trouble struct {
	err   error
	again time.Time // of the retry
}

// logs has the open logs of one shard.
type logs struct {
	parts replica.Logs
}

// copyOf is what this broker knows of its copy of a shard. The fields up to epoch belong to the
// worker.
type copyOf struct {
	state   copystate.State       // changed by Service.apply only
	reached [replica.Parts]uint64 // durable ends when this process last closed the logs
	epoch   uint64                // of the last record then

	follows atomic.Uint64   // state.Follows(), for noticeSet
	doubted atomic.Bool     // !state.Whole()
	grave   atomic.Bool     // state.Grave()
	events  copystate.Queue // from other goroutines than the worker
	entry   replica.OwnEntry
}

// repair is the repair of a follower's logs: segments that they lack are fetched from the leader,
// and then the logs are opened again. Until then the copy is reported, and the leader does not
// count it.
type repair struct {
	done atomic.Pointer[error] // nil: under way; points to nil: the logs are whole
	// offers reports that nothing is repaired: the leader takes what it lacks of a copy that is to
	// be set aside. unwanted is the epoch of the leader that lacks nothing of it; 0: none does.
	offers   bool
	unwanted atomic.Int64
}

// publishing is a Shard as senders and links see it: a sender.Shard.
type publishing Shard

// ShardLeader is a shard that this broker leads, with its logs open.
//
// Publishes are judged and appended under mu, so conditions hold at the end of the log. The disk's
// committer and the progress of followers move the high watermark. Neither takes mu for that.
//
// Locks are taken in this order: specMu, mu, that of appends.
type ShardLeader struct {
	service   *Service
	topic     *Topic
	shard     *Shard
	data      *log.Log
	state     *log.Log // of cursors
	damage    string   // found when the logs were opened; empty: none
	begun     uint64   // the epoch in which it began to lead
	inherited uint64   // the end of data then
	epoch     atomic.Uint64
	// durability is what followers confirm by. It belongs to the worker.
	durability log.Durability
	leading    atomic.Pointer[replica.Leading]
	safe       [replica.Parts]replica.Watermark // up to here the logs are durable
	// high is the high watermark that readers see. It begins when readable is set and never goes
	// back.
	high     replica.Watermark
	readable atomic.Bool
	visible  replica.Watermark // the first offset that readers see; never goes back

	failed atomic.Pointer[error] // why nothing can be appended to data
	over   atomic.Pointer[error] // why leadership ended; fails all pending answers
	ending atomic.Bool
	// announced reports whether Config.Leading knows the leader: requests find it only then. It is
	// written by the worker.
	announced atomic.Bool

	acks acking.Shard

	ahead    ahead.Ahead // of data beyond high
	confirms confirm.Readers

	watchers work.Watchers // of high

	removing       removing.Keeper // the records of data that were removed one by one
	index          *indexing.Index // of the subjects of data; until closeLeader
	records.Reader                 // of the records below high

	retention retention.Keeper
	republish republish.Queue // of committed messages

	specMu sync.Mutex // guards writes of the spec that is kept beside the log

	mu        sync.Mutex
	closed    bool
	end       uint64 // of data
	lastTime  int64
	lastID    []byte // of the last message, if lastKnown
	lastKnown bool
	marked    bool             // the log says that it may have message ids
	ids       *dedup.Window    // the shard's
	origins   *forward.Origins // the shard's, while it is led here
	sources   atomic.Int64     // how many senders origins had when silent ones were last removed
	subjects  *indexing.Lasts  // nil until a condition asks for the last record of a subject

	appends replica.Appends // to state

	totals *counting.Totals // of counters
}
