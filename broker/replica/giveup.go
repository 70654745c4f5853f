package replica

import "github.com/carillon-mq/carillon/broker/log"

// A leader that was elected in doubt may have damaged records that no other replica has. Followers
// can't copy past them, so the in-sync set can't grow. The leader gives them up: batches without
// records take their place, and are copied.
//
//  1. It gives up only what no replica has (Leader.NobodyBeyond). What a replica may have that is
//     away is not given up, not even if the Topic allows unclean elections: that replica can bring
//     it back.
//  2. A follower under repair says what it lacks (extent). If that, and what all others lack, is
//     damaged here, too, it gets batches without records from here (answerDamaged). The leader's
//     own log keeps its damage: the follower may have the rest of it, becomes whole, and leads.
//  3. Of a damaged log of cursors it knows what it gave up (log.Batch.Lost), as does each later
//     leader: cursors may have been there.

// stuck notes that a follower can't copy what follows, since a log can't be read there. The stream
// is current.
func (l *Leading) stuck(s *stream, p Part, err error) {
	damage, is := asDamage(err)
	if !is || damage.Next <= s.next[p] {
		return
	}
	l.mu.Lock()
	give := false
	if !s.gone.Load() {
		l.leader.Stuck(s.from, s.next)
		give = l.leader.NobodyBeyond(p) > 0
	}
	l.mu.Unlock()
	if give {
		l.x.disk.Submit(func() { l.giveUp(p) }, 0)
	}
}

// giveUp gives up damaged records of a log that no replica has, in one segment.
func (l *Leading) giveUp(p Part) {
	if l.givingUp.Swap(true) {
		return
	}
	defer l.givingUp.Store(false)
	l.use.RLock()
	defer l.use.RUnlock()
	l.mu.Lock()
	from := l.leader.NobodyBeyond(p)
	l.mu.Unlock()
	if l.ended.Load() || from == 0 {
		return
	}
	lg := l.config.Logs[p]
	if start, end, _ := lg.Offsets(); from < start || from >= end {
		return // another replica has what is damaged here
	}
	r, gone, err := lg.GiveUp(from)
	if r != nil {
		l.logGivingUp(p, gone)
		_, err = r.Finish()
	}
	if err != nil {
		l.x.warnThrottled("give up "+lg.Name(), "Could not give up records that are damaged here and that no replica has",
			"log", lg.Name(), "from", from, "error", err)
		return
	}
	l.countGivenUp(p, gone)
}

func (l *Leading) logGivingUp(p Part, gone []log.Span) {
	for _, lost := range gone {
		l.x.log.Error(givingUp, "topic_id", l.config.Topic, "shard", l.config.ID.Shard,
			"part", p.String(), "epoch", l.epoch, "from", lost.From, "up_to", lost.Next)
	}
}

func (l *Leading) countGivenUp(p Part, gone []log.Span) {
	for _, lost := range gone {
		if p == Data {
			l.x.counters.givenUp.Add(lost.Next - lost.From)
		}
	}
}

// givingUp is logged before the change, so that a process that dies has said it.
const givingUp = "Giving up records that are damaged here and that no replica has; the damaged segment is set aside"
