package simulation

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/replica"
)

// broker is one process after the other on one volume. What a volume holds is its disk, and what it
// hands from one life to the next; all else is gone with the process.
type broker struct {
	w        *world
	id, zone string
	disk     *disk

	up        bool
	dark      bool // it is off the network as well, so that nobody is told that it went
	paused    bool
	lostPower bool     // once
	life      int      // one more for each process
	late      []func() // what comes to a paused process
	skew      time.Duration

	self      coordination.Replica
	lives     []int64 // incarnations of this process, as far as it knows them
	since     int64
	view      *facts
	watch     *watch
	lateWatch time.Duration
	joining   bool

	roles    map[shardID]*role
	copies   map[shardID]*copied                // what this process knows of its copies
	records  map[shardID][]byte                 // what stands on the disk of each (copystate.State.Encode)
	damaged  map[shardID]bool                   // logs that lost what had been safe; opening them finds that
	high     map[shardID]*[replica.Parts]uint64 // up to where records are known to be safe
	links    map[string]*link
	suspects []coordination.Suspect // whose logs this process can't vouch for, as etcd was told
	reported bool                   // etcd knows of them
	reports  int                    // how often it was told

	planning, campaigning bool
	again                 bool // it is to plan once more
	moveAfter             time.Duration
}

// role is what a broker is to a shard in one epoch; neither leading nor following: it waits for a newer one.
type role struct {
	epoch  int64
	lead   *leading
	follow *following
}

func newBroker(w *world, id, zone string) *broker {
	b := &broker{w: w, id: id, zone: zone}
	b.disk = newDisk(b)
	b.damaged, b.records = map[shardID]bool{}, map[shardID][]byte{}
	b.watch = &watch{b: b}
	return b
}

// do has something happen in a life of the broker, or not, if that is over.
func (b *broker) do(life int, what func()) {
	switch {
	case b.life != life || !b.up:
	case b.paused:
		b.late = append(b.late, what)
	default:
		what()
	}
}

// later is do after a while.
func (b *broker) later(d time.Duration, what func()) {
	life := b.life
	b.w.after(d, func() { b.do(life, what) })
}

// often does something until the process dies.
func (b *broker) often(d time.Duration, what func()) {
	b.later(d, func() {
		what()
		b.often(d, what)
	})
}

// now is the time by the process' own clock, which never goes back.
func (b *broker) now() time.Duration { return b.w.now + b.skew + time.Second }

func (b *broker) start() {
	if b.up {
		return
	}
	b.w.logf("%s: starts", b.id)
	b.life++
	b.up, b.dark, b.paused = true, false, false
	b.self, b.lives, b.view, b.joining = coordination.Replica{Broker: b.id}, nil, nil, false
	b.roles, b.high, b.links = map[shardID]*role{}, map[shardID]*[replica.Parts]uint64{}, map[string]*link{}
	b.planning, b.campaigning, b.again = false, false, false
	b.suspects, b.reported, b.copies = nil, false, map[shardID]*copied{}
	b.register()
	b.often(time.Second, b.beat)
	b.often(100*time.Millisecond, b.tick)
}

// kill ends the process; power takes with it what was not synced.
func (b *broker) kill(power bool) {
	if !b.up {
		return
	}
	b.w.logf("%s: %s", b.id, map[bool]string{false: "is killed", true: "loses power"}[power])
	b.up, b.paused, b.late = false, false, nil
	b.life++
	b.watch.coming = nil
	if power {
		b.lostPower = true
		b.dark = true
	} else {
		b.w.network.died(b)
	}
	b.disk.crash(power)
	b.since = 0
	b.w.judge.crashed(b)
}

// stop ends the process in order: everything is on the disk, and the next life says so.
func (b *broker) stop() {
	if !b.up || b.paused {
		return
	}
	b.w.logf("%s: stops in order", b.id)
	b.disk.all(func(l *modelLog) { l.written, l.synced = l.end, l.end })
	since := b.since
	b.kill(false)
	b.since = since
}

func (b *broker) pause() {
	if b.up && !b.paused {
		b.w.logf("%s: is paused", b.id)
		b.paused = true
	}
}

func (b *broker) resume() {
	if !b.up || !b.paused {
		return
	}
	b.w.logf("%s: goes on", b.id)
	b.paused = false
	late, life := b.late, b.life
	b.late = nil
	for i, what := range late {
		if b.life != life || b.paused {
			b.late = append(b.late, late[i:]...)
			return
		}
		what()
	}
}

// register makes the broker a member, under a new incarnation, and reads what there is.
func (b *broker) register() {
	if b.joining {
		return
	}
	b.joining = true
	e := b.w.etcd
	ask(b, true, func(*facts) int64 {
		return e.register(coordination.Broker{ID: b.id, Zone: b.zone, Name: b.id, Since: b.since,
			Features: coordination.MakeFeatureSet(coordination.FeatureVouches)}, b.suspects)
	}, func(incarnation int64, answered bool) {
		b.joining = false
		if !answered {
			b.later(50*time.Millisecond, b.register)
			return
		}
		b.w.logf("%s: is registered as %d, since %d", b.id, incarnation, b.since)
		b.self.Incarnation = incarnation
		b.lives = append(b.lives, incarnation)
		if b.since == 0 {
			b.since = incarnation
		}
		b.reported = false
		b.read()
		for _, other := range b.w.brokers {
			if l := b.links[other.id]; l != nil {
				l.again()
			}
		}
	})
}

// read reads all, as at the begin of a watch.
func (b *broker) read() {
	ask(b, true, func(f *facts) *facts { return f }, func(f *facts, answered bool) {
		if !answered {
			b.later(50*time.Millisecond, b.read)
			return
		}
		b.learn(f)
	})
}

// beat renews the lease.
func (b *broker) beat() {
	if len(b.lives) == 0 || b.joining {
		return
	}
	e, self := b.w.etcd, b.self
	ask(b, true, func(f *facts) bool {
		if !f.lives(self) {
			return false
		}
		e.expires[b.id] = b.w.now + lease
		return true
	}, func(alive, answered bool) {
		if answered && !alive && self == b.self {
			b.register()
		}
	})
}

// tick is what happens without a cause.
func (b *broker) tick() {
	for _, id := range b.w.ids {
		if r := b.roles[id]; r != nil && r.lead != nil {
			r.lead.want()
		}
	}
	if b.view != nil {
		b.report()
	}
	if b.again {
		b.plan()
	}
}

// learn takes in what etcd has by now.
func (b *broker) learn(f *facts) {
	if b.view != nil && f.revision <= b.view.revision || len(b.lives) == 0 {
		return
	}
	b.view = f
	for _, id := range b.w.ids {
		b.assume(id)
	}
	b.report()
	b.govern()
}

// report tells etcd which copies are in doubt, and how far they go.
func (b *broker) report() {
	var suspects []coordination.Suspect
	for _, id := range b.w.ids {
		if c := b.copies[id]; c != nil && !c.state.Whole() {
			logs := b.disk.open(id)
			suspects = append(suspects, coordination.Suspect{Topic: id.topic, Shard: id.number, Epoch: logs[replica.Data].epoch, End: logs[replica.Data].end,
				State: logs[replica.State].end, Cut: c.state.Doubts() == copystate.Cut})
		}
	}
	if b.reported && slices.Equal(suspects, b.suspects) {
		return
	}
	b.suspects = suspects
	b.reported = true
	b.reports++
	self, n := b.self, b.reports
	ask(b, false, func(f *facts) bool {
		if f.lives(self) && n == b.reports {
			b.w.etcd.change(func(f *facts) { f.suspects[b.id] = suspects })
		}
		return true
	}, func(_, answered bool) { b.reported = b.reported && (answered || n != b.reports) })
}

// damage takes from a dead broker's disk what it had kept safely.
func (b *broker) damage() {
	b.w.logf("%s: its disk is damaged", b.id)
	for _, id := range b.disk.order {
		b.damaged[id] = true
		for _, l := range b.disk.logs[id] {
			to := l.start + b.w.rng.Uint64N(l.end-l.start+1)
			if i := l.at(to); i < len(l.batches) {
				to = l.batches[i].first
			}
			if to > l.start {
				l.cut(to)
			}
		}
	}
	b.w.judge.crashed(b)
}

// assume plays the part that etcd gives the broker in a shard.
func (b *broker) assume(id shardID) {
	shard := b.view.shards[id]
	if shard == nil {
		return
	}
	r := b.roles[id]
	if !slices.Contains(shard.Replicas, b.id) {
		if r != nil {
			b.w.logf("%s: holds %s no more (epoch %d)", b.id, id, shard.Epoch)
			r.end()
			delete(b.roles, id)
		}
		for _, l := range b.disk.open(id) {
			l.reset(1)
		}
		delete(b.high, id)
		delete(b.copies, id)
		delete(b.records, id)
		delete(b.damaged, id)
		return
	}
	b.judged(id, shard)
	if r == nil || r.epoch < shard.Epoch {
		if r != nil {
			r.end()
		}
		r = &role{epoch: shard.Epoch}
		b.roles[id] = r
	}
	if r.epoch > shard.Epoch {
		return
	}
	seen := b.seen(id, shard, r)
	actions := b.happened(id, seen)
	if r.lead != nil && !slices.Contains(actions, copystate.Lead) {
		r.lead.end()
		r.lead = nil
	}
	for _, a := range actions {
		switch a {
		case copystate.StepDown:
			r.end()
			r.lead, r.follow = nil, nil
		case copystate.Vouch:
			b.say(id, shard, replica.Vouch, r.lead != nil)
		case copystate.Withdraw:
			b.say(id, shard, replica.Withdraw, false)
		case copystate.Resign:
			b.say(id, shard, replica.Resign, false)
		case copystate.Lead:
			if r.lead == nil {
				r.lead = lead(b, id, shard)
			} else {
				r.lead.adopt(shard)
			}
		case copystate.Follow:
			if r.follow == nil {
				r.follow = follow(b, id, shard)
			}
		}
	}
}

// named says whether the leader that the shard names is this process.
func (b *broker) named(shard *coordination.Shard) bool {
	m, in := shard.Member(b.id)
	return in && (slices.Contains(b.lives, m.Incarnation) || b.w.mutation.LeadAgain)
}

func (r *role) end() {
	if r.lead != nil {
		r.lead.end()
	}
	if r.follow != nil {
		r.follow.end()
	}
}

// kept is told by the disk that a log is safer than before.
func (b *broker) kept(l *modelLog) {
	switch r := b.roles[l.shard]; {
	case r == nil:
	case r.lead != nil:
		r.lead.kept(l)
	case r.follow != nil:
		r.follow.kept(l)
	}
}

func (b *broker) known(id shardID) *[replica.Parts]uint64 {
	if b.high[id] == nil {
		b.high[id] = &[replica.Parts]uint64{}
	}
	return b.high[id]
}

// missing is told that a connection to another broker ended. Whoever then can't be reached again because nobody listens
// is dead, and etcd is told so.
func (b *broker) missing(other *broker) {
	if b.view == nil {
		return
	}
	seen := b.view.broker(other.id)
	if seen == nil {
		return
	}
	then := seen.Replica()
	b.w.network.dial(b, other, func(mine, _ *end, refused bool) {
		if mine != nil {
			mine.close()
		}
		if refused {
			ask(b, false, func(f *facts) bool {
				if f.lives(then) {
					b.w.logf("etcd: %s has %s evicted", b.id, then.Broker)
					b.w.etcd.revoke(then.Broker)
				}
				return true
			}, func(bool, bool) {})
		}
	})
}
