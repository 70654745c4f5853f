package replica

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// extent is what a follower under repair says of its own damage in a fetch. With the extents of all
// other replicas, a leader knows which of its damaged records nobody has (Leader.Lost).
type extent struct {
	// known reports that lacks is complete. The disk may have refused to read a segment.
	known bool
	// lacks are the offsets without a record in the follower's copy, oldest first. Offsets beyond
	// the ends of its logs are included.
	lacks [Parts][]log.Span
	// own describes the follower's record at the start of the fetched span. It is set for the last
	// segment of a log only: there the logs may differ.
	own ownRecord
	// offer reports that nothing is fetched: the follower offers what its log has.
	offer offer
}

// ownRecord is the epoch of a follower's own record, and up to where its records have that epoch.
// The zero value: there is no record.
type ownRecord struct{ epoch, until uint64 }

// maxSpans bounds the spans that a fetch has of one log, those from the fetched one on. A log with
// more damage says less than it lacks, so the leader gives up less.
const maxSpans = 64

// maxDisowned bounds the spans of one log that a follower disowns since it lacks them, well below
// the bound of log.Disown. With more damage it says less than it lacks, until it has repaired some.
const maxDisowned = 512

// extentLife is for how long a leader uses what a follower said last. A follower that was refused
// asks again after at most askAgainMax.
const extentLife = 10 * time.Second

func appendExtent(dst []byte, e *extent) []byte {
	known := byte(0)
	if e.known {
		known = 1
	}
	dst = append(dst, known, byte(e.offer))
	for _, spans := range e.lacks {
		spans = spans[:min(len(spans), maxSpans)]
		dst = be.AppendUint16(dst, uint16(len(spans)))
		for _, s := range spans {
			dst = be.AppendUint64(be.AppendUint64(dst, s.From), s.Next)
		}
	}
	return be.AppendUint64(be.AppendUint64(dst, e.own.epoch), e.own.until)
}

// extent decodes what appendExtent appends; nil: the follower's version does not send it.
func (f *fields) extent() (*extent, error) {
	if f.bad || len(f.rest) == 0 {
		return nil, nil
	}
	e := &extent{known: f.u8() == 1, offer: offer(f.u8())}
	if e.offer > offersLast {
		return nil, fmt.Errorf("an offer of kind %d", e.offer)
	}
	for p := range e.lacks {
		n := int(f.u16())
		if n > maxSpans || n*16 > len(f.rest) {
			return nil, fmt.Errorf("a log that lacks %d spans", n)
		}
		at := uint64(1)
		for range n {
			s := log.Span{From: f.u64(), Next: f.u64()}
			if s.From < at || s.Next <= s.From {
				return nil, fmt.Errorf("a log that lacks %d to %d", s.From, s.Next)
			}
			at = s.Next
			e.lacks[p] = append(e.lacks[p], s)
		}
	}
	e.own = ownRecord{f.u64(), f.u64()}
	return e, nil
}

// covers reports whether all offsets of s are in one of the spans.
func covers(spans []log.Span, s log.Span) bool {
	return slices.ContainsFunc(spans, func(in log.Span) bool { return in.From <= s.From && s.Next <= in.Next })
}

// intersect returns the offsets that are in both lists of spans. Both are sorted.
func intersect(a, b []log.Span) (both []log.Span) {
	for len(a) > 0 && len(b) > 0 {
		if s := (log.Span{From: max(a[0].From, b[0].From), Next: min(a[0].Next, b[0].Next)}); s.From < s.Next {
			both = append(both, s)
		}
		if a[0].Next < b[0].Next {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// without returns the spans without the offsets of cut.
func without(spans []log.Span, cut log.Span) (rest []log.Span) {
	if cut.From >= cut.Next {
		return spans
	}
	return intersect(spans, []log.Span{{From: 0, Next: cut.From}, {From: cut.Next, Next: math.MaxUint64}})
}

// union returns the offsets that are in one of two lists of spans. Both are sorted.
func union(spans, more []log.Span) []log.Span {
	for _, s := range more {
		spans = log.AddSpan(spans, s)
	}
	return spans
}

// repairs is a leader's knowledge of repairs in its epoch: its followers' and its own.
type repairs struct {
	refused map[string]refusedFetch // by broker
	extents map[string]said         // by broker under repair
	// nothing are the offsets for which followers were sent batches without records.
	nothing map[coordination.Replica][Parts][]log.Span
	// others are damaged offsets of unknown epochs, for which followers have records of earlier ones
	// (mayDiffer).
	others map[coordination.Replica][Parts][]log.Span
	mend   mending // of this broker's own copy
}

// repair returns what is known of repairs. mu is held.
func (l *Leading) repair() *repairs {
	if l.repairs == nil {
		l.repairs = &repairs{
			refused: map[string]refusedFetch{}, extents: map[string]said{},
			nothing: map[coordination.Replica][Parts][]log.Span{},
			others:  map[coordination.Replica][Parts][]log.Span{},
		}
	}
	return l.repairs
}

// said is what a follower said last of its own damage.
type said struct {
	conn  *followerConn
	at    time.Duration
	lacks [Parts][]log.Span
}

// noteExtent keeps what a follower says in a fetch. The reader of the connection calls it, so it is
// in order with the follower's asks.
func (l *Leading) noteExtent(o *followerConn, q *fetch) {
	now := l.x.config.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.extent == nil || !q.extent.known {
		delete(l.repair().extents, o.broker)
		return
	}
	l.repair().extents[o.broker] = said{o, now, q.extent.lacks}
}

// lacks returns the offsets of a log that a follower under repair lacks; nil: that is not known. It
// counts while the follower keeps the connection and goes on asking: another life of it, or a copy
// that was restored, has to say it again. mu is held.
func (l *Leading) lacks(broker string, p Part) []log.Span {
	x := l.x
	e, ok := l.repair().extents[broker]
	if !ok || x.config.Now()-e.at > extentLife {
		return nil
	}
	x.mu.Lock()
	current := x.followerConns[broker] == e.conn
	x.mu.Unlock()
	if !current {
		return nil
	}
	return e.lacks[p]
}

// registered returns a broker in its registered incarnation.
func (l *Leading) registered(broker string) coordination.Replica {
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	return coordination.Replica{Broker: broker, Incarnation: l.x.registered[broker]}
}

// noteNothing keeps that a follower is sent batches without records for a span. It lacks these
// records, and when it follows, only this leader could have sent them since. mu is held.
func (l *Leading) noteNothing(broker string, p Part, s log.Span) {
	r := l.registered(broker)
	all := l.repair().nothing[r]
	if all[p] = log.AddSpan(all[p], s); len(all[p]) <= maxSpans { // otherwise others wait for it
		l.repairs.nothing[r] = all
	}
}

// Lacks reports whether a follower under repair lacks all records of a span, if its last fetch says
// what it lacks.
func (l *Leading) Lacks(broker string, p Part, s log.Span) (lacks, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	spans := l.lacks(broker, p)
	return covers(spans, s), len(spans) > 0
}

// epochWithin returns the epoch of a damaged record of a log, and the offset up to which the log is
// known to be of that epoch. If the log doesn't know its epochs, the first readable record of an
// epoch counts as its beginning. Then the epoch is known only if the damaged batch itself shows it,
// or if the next record that can be read is of an epoch that had begun at the damaged one.
func epochWithin(lg *log.Log, damaged uint64, by *log.CorruptError) (epoch, until uint64, known bool) {
	if lg.KnowsEpochs() {
		epoch, until = lg.EpochAt(damaged)
		return epoch, until, epoch > 0
	}
	if before, _ := lg.EpochAt(damaged); by.Epoch > 0 && by.Epoch >= before {
		return by.Epoch, by.Next, true
	}
	epoch = epochBehind(lg, damaged)
	return epoch, math.MaxUint64, hadBegun(lg.Epochs(), epoch, damaged)
}

// hadBegun reports whether an epoch had begun at an offset.
func hadBegun(all []log.Epoch, epoch, at uint64) bool {
	return slices.ContainsFunc(all, func(e log.Epoch) bool { return e.Epoch == epoch && e.Start <= at })
}

// epochBehind returns the epoch of the first record behind damage that can be read; 0: that is not
// known. Damaged ranges may follow each other.
func epochBehind(lg *log.Log, damaged uint64) (epoch uint64) {
	c := lg.NewCursor(damaged)
	for range maxSpans {
		v, err := c.Read(1)
		if damage, is := asDamage(err); is && damage.Next > c.Next() {
			c.Seek(damage.Next)
			continue
		}
		if err != nil {
			return 0
		}
		if b, ok := v.Next(); ok {
			epoch = b.Epoch()
		}
		v.Release()
		return epoch
	}
	return 0
}

// answerDamaged sets the answer to a fetch of records that are damaged here from an offset on. The
// follower uses its own ones, if they are the same by their epoch, or batches without records, if
// no replica has any. Otherwise it returns the refusal.
func (l *Leading) answerDamaged(o *followerConn, q *fetch, from uint64, refused error, p *piece) error {
	damage, is := asDamage(refused)
	if !is || q.extent == nil || damage.Next <= from || q.span.Next <= from || q.span.From < from {
		return refused
	}
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return refused
	}
	lg, own := l.config.Logs[q.part], q.extent.own
	at := []log.Span{{From: from, Next: min(damage.Next, q.span.Next)}}
	lacks := q.extent.lacks[q.part]
	if own.epoch > 0 {
		epoch, until, known := epochWithin(lg, from, damage)
		if lost, is := lg.LostFrom(from); is && !known {
			epoch, until, known = 0, lost.Next, true // no replica has had the records of this log
		}
		if !known || own.until <= from {
			return refused
		}
		at[0].Next = min(at[0].Next, own.until, until)
		if epoch == own.epoch {
			p.kind, p.batches = pieceOwn, be.AppendUint64(nil, at[0].Next)
			return nil
		}
		lacks = at // what it has there is no record of this log
	}
	if !q.extent.known {
		return refused
	}
	l.mu.Lock()
	nobody := l.lost(q.part, func(broker string) []log.Span {
		if broker == o.broker {
			return lacks
		}
		return l.lacks(broker, q.part)
	})
	// What was lost in an earlier epoch stays lost: others may have nothing in its place.
	lost := intersect(intersect(at, lacks), union(nobody, l.knownLost(q.part, at[0])))
	l.mu.Unlock()
	if len(lost) == 0 || lost[0].From != from {
		return refused
	}
	if !lg.IsLost(lost[0]) {
		l.x.disk.Submit(func() { l.disown(lg, lost[0]) }, 0)
		return refused // the follower asks again
	}
	batches, err := lg.Nothing(lost[0])
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.noteNothing(o.broker, q.part, lost[0])
	l.mu.Unlock()
	p.kind, p.batches = pieceLost, batches
	return nil
}

// lost is Leader.Lost with what followers got nothing for. mu is held.
func (l *Leading) lost(p Part, lacks func(broker string) []log.Span) []log.Span {
	return l.leader.Lost(p, lacks, func(r coordination.Replica) []log.Span { return l.repair().nothing[r][p] })
}

// disown makes a log disown offsets before a follower gets batches without records for them: the
// damage may be gone when the log is read again, and then this replica would have the records, and
// others have none.
func (l *Leading) disown(lg *log.Log, lost log.Span) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return
	}
	if err := lg.DisownLost(lost); err != nil {
		l.x.warnThrottled("disown "+lg.Name(), "Could not note that records are given up that are damaged here and that no replica has",
			"log", lg.Name(), "from", lost.From, "up_to", lost.Next, "error", err)
	}
}
