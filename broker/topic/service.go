package topic

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
)

// Config is what a Service works with.
type Config struct {
	Self    string // id of this broker
	Name    string // for people
	Disk    *log.Disk
	Hub     Hub
	Codec   publish.Codec
	Payload int               // the largest message that the broker takes, with headers
	Clock   *clock.Clock      // nil: the machine's, which nobody observes
	Compact upkeep.Compacting // zero: as limits.go has it
	Ahead   AheadBound        // zero: as limits.go has it
	// Exchange brings batches to the followers of what is led here, and from the leaders of what is followed.
	Exchange *replica.Exchange
	// Report tells the others of which shards this broker can't vouch for its copy, and returns when they know. It may be nil.
	// It also tells, after etcd was restored from a backup, how far all copies of a restored shard go.
	Report func(ctx context.Context, generation int64, suspects []coordination.Suspect) error
	Logger *slog.Logger
	// Leading is told of each shard led here, after it was opened and before it closes, by several
	// goroutines for different shards. It may be nil.
	Leading func(s *ShardLeader, open bool)
}

// Service is this broker's part in all Topics of the cluster.
type Service struct {
	config Config
	log    *slog.Logger
	found  []log.Stored // what stood on the disk at the start

	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	steps   uint64 // of the clock, after which ids were read last; the keeper's
	closing atomic.Bool
	running sync.WaitGroup
	tasks   *work.Tasks[*Shard, struct{}]
	acker   *acker
	counts  counts
	// aheadBound is how much may stand beyond the watermark of a shard that is led here. It never changes.
	aheadBound AheadBound
	upkeep     *upkeep.Upkeep

	senders sender.Senders

	state atomic.Pointer[coordination.State] // not under mu, since Take asks for it while a hub may wait for Take

	mu          sync.RWMutex
	changed     chan struct{}
	incarnation int64             // of this broker in state; 0: it isn't registered
	brokers     map[string]string // names of those that ever were members, by id
	byName      map[string]*Topic
	byID        map[string]*Topic

	openMu  sync.Mutex
	was     map[string]bool // logs that stood on the disk at the start, or were made since
	open    map[*ShardLeader]struct{}
	retries map[*Shard]struct{} // that are in trouble
	unsaid  map[*Shard]struct{} // whose last word has no answer

	firstLife atomic.Int64 // the first incarnation in which this process was seen registered

	// reports are written whenever they have changed; see reporter.
	reports *coordination.Suspects
	// restoring: the State that is taken over is the first one after etcd was restored. Guarded by mu.
	restoring bool
}

// Open looks at what stands on the disk and begins with no Topics; Follow brings them. Close ends it.
func Open(config Config) (*Service, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Clock == nil {
		config.Clock = clock.New(clock.Config{Logger: config.Logger})
	}
	if config.Compact == (upkeep.Compacting{}) {
		config.Compact = upkeep.Compacting{Every: compactEvery, Age: compactAge, Share: compactShare, Least: compactLeast}
	}
	found, err := config.Disk.List()
	if err != nil {
		return nil, err
	}
	s := &Service{config: config, log: config.Logger, found: found, was: map[string]bool{},
		changed: make(chan struct{}), brokers: map[string]string{}, byName: map[string]*Topic{}, byID: map[string]*Topic{},
		open: map[*ShardLeader]struct{}{}, retries: map[*Shard]struct{}{}, unsaid: map[*Shard]struct{}{}, reports: coordination.NewSuspects()}
	if s.aheadBound = config.Ahead; s.aheadBound == (AheadBound{}) {
		s.aheadBound = AheadBound{Bytes: aheadBytes, Records: aheadRecords, Time: aheadTime}
	}
	for _, stored := range found {
		s.was[stored.Name] = true
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.acker = newAcker(s)
	s.newSenders()
	s.upkeep = upkeep.New(upkeep.Config{Disk: config.Disk, Clock: config.Clock, Compact: config.Compact, Shards: s.upkeepShards, Logger: s.log})
	s.tasks = work.NewTasks(openers, func(_ *struct{}, p *Shard, lane work.Lane) (more bool) {
		s.work(p, lane == work.Later)
		return false
	})
	s.running.Go(s.keeper)
	s.running.Go(s.reporter)
	s.running.Go(func() { s.upkeep.Run(s.ctx) })
	return s, nil
}

// Follow takes over what the cluster's State is now. Opening and closing logs follows in the background.
func (s *Service) Follow(state *coordination.State, changes coordination.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return
	}
	before := s.state.Swap(state)
	first := before == nil
	entered := !first && before.Generation != state.Generation
	defer s.senders.Poke()
	close(s.changed)
	s.changed = make(chan struct{})
	for _, b := range state.Brokers {
		s.brokers[b.ID] = b.Name
	}
	me, _ := state.Broker(s.config.Self)
	reborn := me.Incarnation != s.incarnation
	s.incarnation = me.Incarnation
	s.firstLife.CompareAndSwap(0, me.Incarnation)
	s.restoring = changes.Restored
	if first || reborn || entered {
		for t := range state.Topics() {
			s.meet(t)
		}
	}
	defer s.enter(state)
	if first {
		s.running.Go(func() { s.setAsideStrangers(state) })
		return
	}
	if !reborn && (changes.Brokers || changes.Drains || changes.Reports) {
		s.lookAtEntries()
	}
	for _, c := range changes.Topics {
		for _, t := range []*coordination.Topic{c.Before, c.After} {
			if t != nil {
				s.look(t.ID)
			}
		}
	}
	for _, c := range changes.Shards {
		for _, shard := range []*coordination.Shard{c.Before, c.After} {
			if shard != nil {
				s.look(shard.Topic)
			}
		}
	}
}

// lookAtEntries has the copies looked at for which the in-sync set doesn't name this life, or which are in doubt: if
// their leader is gone they are to be vouched for, or compared. mu is held.
func (s *Service) lookAtEntries() {
	for _, t := range s.byID {
		for _, p := range t.shards {
			v := p.view.Load()
			if !v.member {
				continue
			}
			if m, in := v.shard.Member(s.config.Self); in && m.Incarnation != s.incarnation || p.own.doubted.Load() {
				s.wake(p)
			}
		}
	}
}

// look brings what is known of a Topic up to the State. mu is held.
func (s *Service) look(id string) {
	if desired := s.state.Load().TopicByID(id); desired != nil {
		s.meet(desired)
	} else if t := s.byID[id]; t != nil {
		s.part(t)
	}
}

// meet takes over what is asked for of a Topic that there is. mu is held.
func (s *Service) meet(desired *coordination.Topic) {
	t := s.byID[desired.ID]
	if t == nil {
		if other := s.byName[desired.Name]; other != nil {
			s.part(other) // one of the same name and another id: that one was deleted
		}
		t = newTopic(s, desired)
		s.byID[t.id], s.byName[t.name] = t, t
	}
	var before, after *view
	state := s.state.Load()
	for n, p := range t.shards {
		was := p.view.Load()
		v := see(s.config.Self, desired, n, state, was, s.config.Payload)
		p.view.Store(v)
		s.noticeSet(p, v)
		if v.member {
			p.removing.Store(slices.Contains(v.shard.Removing, s.config.Self))
		}
		if n == 0 {
			before, after = was, v
		}
		if v.restored {
			p.removing.Store(false) // the copy may be the only one that has everything
		}
		if v.epoch > p.known.Load() {
			p.known.Store(v.epoch)
		}
		if v.member || v.lead || v.gone || v.restored || was != nil && (was.member || was.lead || was.restored) {
			s.wake(p)
		}
	}
	switch {
	case after.gone && t.offer != nil:
		t.offer.Close()
		t.offer = nil
	case !after.gone:
		isNew := t.offer == nil
		if isNew {
			t.offer = s.config.Hub.Offer((*taker)(t))
		}
		if isNew || !slices.Equal(before.desired.Spec.Subjects, desired.Spec.Subjects) {
			t.offer.Set(desired.Spec.Subjects)
		}
	}
}

// part lets go of a Topic that was deleted. mu is held.
func (s *Service) part(t *Topic) {
	if t.offer != nil {
		t.offer.Close()
		t.offer = nil
	}
	delete(s.byID, t.id)
	if s.byName[t.name] == t {
		delete(s.byName, t.name)
	}
	for _, p := range t.shards {
		v := *p.view.Load()
		v.gone, v.lead, v.follow, v.member = true, false, false, false
		v.vanished, v.restored = s.restoring, false
		p.view.Store(&v)
		s.wake(p)
	}
}

// BrokerName is how people know a broker, also one that is away.
func (s *Service) BrokerName(id string) string { return s.nameOf(id) }

// nameOf is how people know a broker, also one that is away; its id if it was away all the time.
func (s *Service) nameOf(id string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if name := s.brokers[id]; name != "" {
		return name
	}
	return id
}

// State is the last one that Follow was given, or nil.
func (s *Service) State() *coordination.State { return s.state.Load() }

// Changed is closed at the next Follow.
func (s *Service) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Topic is the one of that name, or nil.
func (s *Service) Topic(name string) *Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// ByID is the one of that id, or nil.
func (s *Service) ByID(id string) *Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byID[id]
}

// Shard is the shard of that name: a Topic of one shard, or NAME--NUMBER of one that has several. nil: there is none.
func (s *Service) Shard(name string) *Shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.byName[name]; t != nil && len(t.shards) == 1 {
		return t.shards[0]
	}
	of, number, found := cutLast(name, "--")
	if t := s.byName[of]; found && t != nil && len(t.shards) > 1 {
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(t.shards) && strconv.Itoa(n) == number {
			return t.shards[n]
		}
	}
	return nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Shards are all shards of the cluster's Topics.
func (s *Service) Shards() (all []*Shard) {
	for _, t := range s.Topics() {
		all = append(all, t.shards...)
	}
	return all
}

// ShardByKey is the shard of that key, or nil.
func (s *Service) ShardByKey(key string) *Shard {
	id, number, _ := strings.Cut(key, "/")
	n, _ := strconv.Atoi(number)
	if t := s.ByID(id); t != nil && n >= 0 && n < len(t.shards) && t.shards[n].Key() == key {
		return t.shards[n]
	}
	return nil
}

// Topics are all of the cluster, sorted by name.
func (s *Service) Topics() []*Topic {
	s.mu.RLock()
	all := make([]*Topic, 0, len(s.byID))
	for _, t := range s.byID {
		all = append(all, t)
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.name, b.name) })
	return all
}

// Leads is how many shards are led here that another member of their in-sync sets could lead.
func (s *Service) Leads() (n int) {
	state := s.State()
	if state == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.byID {
		for _, p := range t.shards {
			v := p.view.Load()
			if !v.lead {
				continue
			}
			if s.othersCanLead(v) {
				n++
			}
		}
	}
	return n
}

// Committed is to be called after each round of the disk's committer: the answers of the round go out.
// idle says that the committer has nothing else to do.
func (s *Service) Committed(idle bool) {
	s.acker.committed(idle)
	s.config.Exchange.Committed()
}

// Close takes nothing any more, makes everything safe and closes the logs. The disk is its owner's to close.
func (s *Service) Close() error {
	if s.closing.Swap(true) {
		return nil
	}
	s.cancel()
	s.mu.Lock()
	for _, t := range s.byID {
		if t.offer != nil {
			t.offer.Close()
			t.offer = nil
		}
	}
	s.mu.Unlock()
	s.tasks.Close()
	s.running.Wait() // nobody opens or closes anything any more
	err := s.closeAll()
	s.acker.close()   // what the logs have kept is acknowledged,
	s.senders.Close() // and only then the rest is refused
	return err
}
