package topic

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

type counts struct {
	appended, duplicates, deduplicated atomic.Uint64
	setAside, refetched                atomic.Uint64 // logs of unknown Topics, and copies that are fetched anew
	ids, followedIDs                   atomic.Int64  // of shards that are led here, and of all others
	refused                            publish.Refusals
}

// Topic is one of the cluster's, as this broker sees it.
type Topic struct {
	service  *Service
	id, name string
	offer    Offer // used by Follow and Close only, one after the other
	shards   []*Shard
}

// mend is a follower whose logs lack segments: these are fetched from the leader, and then the logs are opened again and
// followed as all others are. Meanwhile it is reported, and its leader counts on it for nothing.
type mend struct {
	done atomic.Pointer[error] // nil: it is under way; what it points to may be nil: they are whole
}

// publishing is a Shard as its sender, and links to other brokers' senders, see it.
type publishing Shard

// ShardLeader is one that this broker leads, with its logs open.
//
// Whoever publishes judges and appends under mu, so that conditions are judged at the end of the
// log. How far readers may read, the high watermark, is moved by the disk's committer and by the followers'
// progress; neither takes a lock of ours for that.
type ShardLeader struct {
	service    *Service
	topic      *Topic
	shard      *Shard
	data       *log.Log
	state      *log.Log
	damage     string         // what opening the logs found, for people; empty: nothing
	durability log.Durability // by which followers confirm; the worker's
	epoch      atomic.Uint64
	begun      uint64 // the epoch in which it began to lead
	inherited  uint64 // the end of data then
	leading    atomic.Pointer[replica.Leading]
	safe       [replica.Parts]replica.Watermark // up to where what was promised holds on this broker
	// high is the high watermark as readers know it: it begins when readable is set, and never goes back.
	high     replica.Watermark
	readable atomic.Bool
	failed   atomic.Pointer[error]
	// stateFailed is why nothing can be appended to the state log.
	stateFailed atomic.Pointer[error]
	over        atomic.Pointer[error] // why nothing that waits will be known to be safe
	touched     atomic.Bool           // the acker is to look at it
	inRound     bool                  // the acker's, as is unsafe
	unsafe      []*pending            // what is safe here and not yet on all replicas, in the order of its records
	ending      atomic.Bool
	// announced is whether Config.Leading knows of it: others are shown the leader only then. The
	// worker writes it.
	announced atomic.Bool

	ahead    ahead // of the data log
	confirms confirms

	watchers atomic.Pointer[[]*func()] // never changed in place; watchMu guards who replaces it
	watchMu  sync.Mutex

	records.Reader // of what readers see

	visible replica.Watermark // the first offset that readers see; never goes back
	kept    retained

	specMu sync.Mutex // who writes what is kept beside the log; comes before mu

	stateMu sync.Mutex // who appends to the state log; comes after mu

	mu        sync.Mutex
	closed    bool
	end       uint64 // of data
	lastTime  int64
	lastID    []byte // of the last message, if lastKnown
	lastKnown bool
	marked    bool             // messages with ids may be appended: the log says that there are some
	ids       *dedup.Window    // the stream's
	origins   *forward.Origins // the stream's, while this leads
	subjects  *subjects        // nil: nobody asked yet
	reading   sync.WaitGroup   // who reads the log for subjects; begun while not closed
	waiting   []*pending       // answers that rest on records under way, and nothing else
	promises  []*promise       // appends to the state log, likewise, in their order; guarded by stateMu
}

// retained is what is known of when a shard's old records are due to go.
type retained struct {
	seen   atomic.Uint64 // the high watermark when it was looked at last
	due    atomic.Int64  // when something is due by age, on the clock's Mono; 0: at once
	policy log.Retention // that was applied last; the keeper's
	paused atomic.Bool   // nothing goes by its age, as the time is in doubt
}

// confirms are the readers that wait for the in-sync replicas to confirm that this broker leads the shard.
type confirms struct {
	mu      sync.Mutex
	ended   bool
	waiting []confirm
	pending atomic.Int32 // of waiting, and of refusals
}

type confirm struct {
	round uint64
	asked int64 // on forward.Mono's clock
	done  func(error)
}

// subjects knows the last record of each subject of a shard. It is made when somebody first
// publishes on condition of one: few Topics need it, and for them it is read from the log once.
type subjects struct {
	last     map[dedup.Hash]uint64
	complete bool   // it covers all that readers see
	from     uint64 // otherwise, what it covers
	failure  string // why it never will, or empty
}

// answerKind says what an answer says.
type answerKind uint8

const (
	isKept answerKind = iota
	isDuplicate
	isRefusal
)

// answer is given when the record at its offset is as safe as the Topic asks for.
type answer struct {
	offset  uint64
	kind    answerKind
	records uint32 // that the message carried; 0: it is one itself
	more    uint32 // messages that follow with the next numbers and are kept at the next offsets
	seq     uint64 // its number
	again   bool   // it was sent before, perhaps to another leader
	err     error  // of a refusal
}

// pending are the answers that wait for one append, or for earlier ones.
type pending struct {
	shard      *ShardLeader
	back       sender.Back
	end        uint64 // of the records that were appended with it; 0: none were
	size       int    // of them in bytes, and how many they are, as ahead counts them; 0: not at all
	records    int
	round      uint64 // barrier round that the answers wait for; 0: none
	asked      int64  // when it was asked for
	durability log.Durability
	answers    []answer
	err        error
}

// acker answers publishers, on a goroutine of its own so that the disk's committer goes on: all
// answers of a round of the disk go to the hub in one call, and so to each connection in one write.
type acker struct {
	service    *Service
	unanswered atomic.Int64
	wake       chan struct{}
	done       chan struct{}

	mu      sync.Mutex
	room    *sync.Cond // unanswered shrank
	queue   []*pending
	touched []*ShardLeader // to be looked at, though nothing of them is in queue
	closing bool

	// Of who answers a round, who holds at.
	at      sync.Mutex
	spare   []*pending
	moved   []*ShardLeader
	out     publish.Replies
	back    forward.Answers
	settled sender.Settled
	head    []byte
}

// promise is an append to the state log for which somebody waits: until it is as safe as the Topic asks for,
// on all members of the in-sync set.
type promise struct {
	shard      *ShardLeader
	done       log.Completion
	first, end uint64
}
