package simulation

import (
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// link is a broker's connection to one that it follows, shared by all the shards that it follows there.
type link struct {
	b       *broker
	to      *broker
	mine    *end // nil: it isn't connected
	its     *end
	dialing bool
}

func (b *broker) link(to string) *link {
	l := b.links[to]
	if l == nil {
		l = &link{b: b, to: b.w.broker(to)}
		b.links[to] = l
	}
	l.dial()
	return l
}

func (l *link) dial() {
	if l.mine != nil || l.dialing {
		return
	}
	l.dialing = true
	b := l.b
	b.w.network.dial(b, l.to, func(mine, its *end, refused bool) {
		l.dialing = false
		if mine == nil {
			b.later(b.w.between(20*time.Millisecond, 100*time.Millisecond), l.dial)
			return
		}
		l.mine, l.its = mine, its
		mine.lost = func() {
			l.mine, l.its = nil, nil
			b.missing(l.to)
			b.later(b.w.between(5*time.Millisecond, 50*time.Millisecond), l.dial)
		}
		its.lost = func() {
			its.b.missing(b)
			for _, id := range b.w.ids {
				if r := its.b.roles[id]; r != nil && r.lead != nil {
					r.lead.parted(its)
				}
			}
		}
		l.again()
	})
}

// again has all that follow over this link ask.
func (l *link) again() {
	for _, id := range l.b.w.ids {
		if r := l.b.roles[id]; r != nil && r.follow != nil && r.follow.leader == l.to.id {
			r.follow.ask()
		}
	}
}

// following is a broker that copies a shard from its leader of one epoch.
type following struct {
	b      *broker
	id     shardID
	epoch  int64
	leader string
	logs   *[replica.Parts]*modelLog

	over    bool
	copying *end // the connection over which it copies; nil: it doesn't
	from    coordination.Replica
	asks    int // how often it has asked; answers to another question are none
}

func follow(b *broker, id shardID, shard *coordination.Shard) *following {
	f := &following{b: b, id: id, epoch: shard.Epoch, leader: shard.Leader, logs: b.disk.open(id)}
	b.w.logf("%s: follows %s of %s in epoch %d: ends %d %d", b.id, shard.Leader, id, shard.Epoch, f.logs[0].end, f.logs[1].end)
	if known := b.known(id); b.w.mutation.TruncateToHigh {
		for p, log := range f.logs {
			if known[p] >= log.base() && known[p] < log.end {
				log.cut(known[p])
			}
		}
	}
	f.b.link(f.leader)
	f.ask()
	return f
}

func (f *following) end() {
	f.over = !f.b.w.mutation.FollowOn
}

// ask tells the leader what there is here.
func (f *following) ask() {
	l := f.b.link(f.leader)
	if f.over || l.mine == nil {
		return
	}
	f.copying = nil
	f.from = f.b.self
	f.asks++
	q := question{n: f.asks, epoch: f.epoch, from: f.from}
	for p, log := range f.logs {
		q.lineages[p] = log.lineage()
		q.safe[p] = f.safe(log)
	}
	its := l.its
	mine := l.mine
	mine.send(func() { its.b.asked(f.id, q, its, f) })
}

func (f *following) safe(log *modelLog) uint64 {
	if f.b.w.mutation.AckEarly {
		return log.end
	}
	return log.safe(f.b.durability(f.id))
}

// refused is told that the leader leads no more, or not yet.
func (f *following) refused(n int, newer int64) {
	if f.over || n != f.asks {
		return
	}
	f.copying = nil
	f.b.later(f.b.w.between(20*time.Millisecond, 100*time.Millisecond), func() {
		if n == f.asks {
			f.ask()
		}
	})
}

// judged carries out what the leader says of its logs.
func (f *following) judged(n int, verdicts [replica.Parts]replica.Verdict) {
	l := f.b.link(f.leader)
	if f.over || l.mine == nil || n != f.asks {
		return
	}
	copies := true
	for p, v := range verdicts {
		log := f.logs[p]
		switch v.Verb {
		case replica.Truncate:
			copies = false
			f.b.w.logf("%s: truncates %s %s from %d to %d", f.b.id, f.id, replica.Part(p), log.end, v.At)
			log.cut(v.At)
		case replica.Reset:
			copies = false
			f.b.w.logf("%s: begins %s %s anew at %d, it had %d to %d", f.b.id, f.id, replica.Part(p), v.At, log.start, log.end)
			log.reset(v.At)
		}
	}
	if copies {
		f.copying = l.mine
		for _, log := range f.logs { // what became safe since it asked
			f.kept(log)
		}
		return
	}
	f.ask()
}

// copied appends a batch of the leader's.
func (f *following) copied(n int, p replica.Part, b *batch, high [replica.Parts]uint64) {
	l := f.b.link(f.leader)
	if f.over || f.copying == nil || f.copying != l.mine || n != f.asks {
		return
	}
	log := f.logs[p]
	switch {
	case b.first != log.end:
		f.b.w.logf("%s: %s %s ends at %d, not at %d; asks again", f.b.id, f.id, p, log.end, b.first)
		f.ask()
		return
	case b.epoch < log.epoch && !f.b.w.mutation.FollowOn:
		f.b.w.fail(Impossible, "%s: a batch of epoch %d follows one of %d in %s %s", f.b.id, b.epoch, log.epoch, f.id, p)
		return
	}
	log.append(b)
	f.know(high)
}

// told takes over how far records are safe, and where the logs begin.
func (f *following) told(n int, high, starts [replica.Parts]uint64) {
	l := f.b.link(f.leader)
	if f.over || f.copying == nil || f.copying != l.mine || n != f.asks {
		return
	}
	f.know(high)
	for p, log := range f.logs {
		log.trim(starts[p])
	}
}

func (f *following) know(high [replica.Parts]uint64) {
	known := f.b.known(f.id)
	for p, log := range f.logs {
		known[p] = max(known[p], min(high[p], log.end))
	}
}

// kept tells the leader how far a log is safe here.
func (f *following) kept(log *modelLog) {
	l := f.b.link(f.leader)
	if f.over || f.copying == nil || f.copying != l.mine {
		return
	}
	its, p, to, id, n, epoch := l.its, log.part, f.safe(log), f.id, f.asks, f.epoch
	l.mine.send(func() {
		r := its.b.roles[id]
		if r == nil || r.lead == nil || r.epoch != epoch {
			return
		}
		if s := r.lead.streams[f.b.id]; s != nil && s.end == its && s.to == f && s.n == n {
			r.lead.copied(s, p, to)
		}
	})
}
