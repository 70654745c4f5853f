package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// mending is how a leader repairs its own copy, which it goes on leading, from what followers
// offer. It replaces one segment at a time. While busy is set, what is before it belongs to a
// worker that holds Leading.use, and otherwise to Leading.mu. What is behind it belongs to
// Leading.mu.
type mending struct {
	repair *log.Repair // nil: none is under way
	part   Part
	gone   []log.Span    // of the segment, given up
	moved  time.Duration // when the repair last went on
	failed time.Duration // when adding records failed last; 0: never
	of     [Parts][]log.Span
	lacks  [Parts][]log.Span // which of them can't be read, when looked
	behind [Parts][]uint64   // epochsBehind of these; nil: the log knows its epochs
	late   [Parts][]log.Span // segments that waited in vain for some of their records
	looked time.Duration     // 0: never
	read   time.Duration     // when the whole logs were read before that; 0: never

	busy bool // a worker looks, or adds records
	want wanted

	cancel context.CancelFunc // stops the worker that looks; nil: none did
}

// wanted is what a leader has asked a follower for; the zero value: nothing.
type wanted struct {
	conn *followerConn
	part Part
	span log.Span
	most uint64 // the newest epoch that the two logs have in common
	lost bool   // no replica has these records
}

const (
	// mendWorkers, mendJobs and mendBytes bound the leaders of one broker that mend their own
	// copies at a time, those that wait for it, and the bytes that followers have given them. One
	// at a time reads its copy as a whole.
	mendWorkers = 2
	mendJobs    = 64
	mendBytes   = 32 << 20
	// lookRate bounds how many bytes per second are read of led logs, before a follower sets its
	// copy aside.
	lookRate = 64 << 20
	// looksAgain is for how long a leader uses what it knows of its own damage, and readsAgain for
	// how long it needs not read the whole log again.
	looksAgain = 10 * time.Second
	readsAgain = 10 * time.Minute
	// mendPatience is how long a repair waits for the records that are due, from any follower.
	mendPatience = 10 * time.Second
)

// answerOffer answers a follower's offer of one log.
func (o *followerConn) answerOffer(q *fetch, p *piece) error {
	want, err := q.l.offered(o, q)
	switch {
	case err != nil:
		return o.refuseFetch(q, err)
	case want == log.Span{}:
		p.kind = pieceUnwanted
	default:
		p.kind = pieceWanted
		p.batches = be.AppendUint64(be.AppendUint64(nil, want.From), want.Next)
	}
	if _, err := o.out.Write(appendPieceHeader(o.out.AvailableBuffer(), p, len(p.batches))); err != nil {
		return err
	}
	_, err = o.out.Write(p.batches)
	return err
}

// offered returns what this leader wants of a log that a follower offers; the zero span: nothing.
// An error says why that is not known.
func (l *Leading) offered(o *followerConn, q *fetch) (want log.Span, err error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return want, errors.New("this broker has ended to lead it")
	}
	own := LineageOf(l.config.Logs[q.part])
	shared, err := l.compare(q.part, own, q.log)
	if err != nil {
		return want, err
	}
	if shared.Verb == Reset {
		shared.At = 0
	}
	of, now := l.config.Logs[q.part].Lacks(), l.x.config.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.repair()
	m := &d.mend
	if m.busy {
		return want, errMending
	}
	if m.failed > 0 && now-m.failed < looksAgain {
		return want, errFailed
	}
	if m.repair != nil && now-m.moved > mendPatience {
		m.putOff()
	}
	if m.looked == 0 || m.repair == nil && (now-m.looked > looksAgain || !slices.Equal(of, m.of[q.part])) {
		m.busy = l.x.mends.Submit(func() { l.look(false) }, 0)
		return want, errLooking
	}
	common := own.common(q.log)
	has := log.Span{From: q.log.Start, Next: min(shared.At, m.knownBefore(q.part, common))}
	lacks := q.extent.lacks[q.part]
	said := has
	if len(lacks) == maxSpans { // behind these, it is not known what the follower has
		said.Next = min(has.Next, lacks[maxSpans-1].Next)
	}
	want, due, err := m.choose(q.part, said, lacks)
	if unsaid := (log.Span{From: said.Next, Next: has.Next}); err == nil && unsaid.From < unsaid.Next && len(intersect(m.lacks[q.part], []log.Span{unsaid})) > 0 {
		err = errWantMore
	}
	lost := l.givenUp(q.part, due)
	if want != (log.Span{}) {
		lost = intersect(l.knownLost(q.part, want), []log.Span{want})
	}
	switch {
	case len(lost) > 0:
		m.busy = l.x.mends.Submit(func() { l.mendWith(wanted{o, q.part, lost[0], 0, true}, nil) }, 0)
		return log.Span{}, errMending
	case !q.extent.known && (err != nil || want != log.Span{}):
		return log.Span{}, errNotKnown
	case want != log.Span{}:
		m.want = wanted{o, q.part, want, common, false}
		delete(d.refused, o.broker) // it goes on, later
	case q.extent.offer == offersLast && (m.read == 0 || now-m.read > readsAgain):
		m.busy = l.x.looks.Submit(func() { l.look(true) }, 0)
		return want, errLooking
	case q.extent.offer == offersLast && q.part == Parts-1 && err == nil:
		m.read = 0 // damage may arise before the next copy is offered
	}
	return want, err
}

// givenUp returns the first offsets of a span that can't be read here, if no replica has their
// records, or others have given them up; nil: there are none. mu is held.
func (l *Leading) givenUp(p Part, due log.Span) []log.Span {
	all := union(l.lost(p, func(broker string) []log.Span { return l.lacks(broker, p) }), l.knownLost(p, due))
	lost := intersect(intersect([]log.Span{due}, l.repairs.mend.lacks[p]), all)
	if len(lost) == 0 || lost[0].From != due.From {
		return nil
	}
	return lost[:1]
}

// stillLost reports whether no replica has records that were given up in an unfinished segment.
func (l *Leading) stillLost(p Part, gone log.Span) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return covers(union(l.lost(p, func(broker string) []log.Span { return l.lacks(broker, p) }), l.knownLost(p, gone)), gone)
}

// knownLost returns the offsets from the first one of a span on that are lost by this log's
// manifest; nil: none. No other replica had them when a follower was to get nothing for them.
func (l *Leading) knownLost(p Part, s log.Span) []log.Span {
	if at, is := l.config.Logs[p].LostFrom(s.From); is {
		return []log.Span{at}
	}
	return nil
}

// choose returns the first span that is wanted of what a follower has, without what it lacks. A
// segment is written from front to back, so what is wanted is the first of its records that is
// missing. An error reports that the follower has something that is not due yet, and due is what is
// due before it; the zero span: another log is being repaired.
func (m *mending) choose(p Part, has log.Span, lacks []log.Span) (want, due log.Span, err error) {
	late := func(s log.Span) bool { return covers(m.late[p], s) }
	spans := slices.Concat(slices.DeleteFunc(slices.Clone(m.lacks[p]), late), m.lacks[p])
	for _, span := range spans {
		gives := intersect([]log.Span{span}, []log.Span{has})
		for _, cut := range lacks {
			gives = without(gives, cut)
		}
		if len(gives) == 0 {
			continue
		}
		first := m.due(p, span)
		if m.repair != nil {
			first = log.Span{}
			if m.part == p {
				first = m.repair.Span()
			}
		}
		for _, g := range gives {
			if g.From <= first.From && first.From < g.Next {
				return log.Span{From: first.From, Next: g.Next}, log.Span{}, nil
			}
		}
		if err == nil {
			due, err = first, errWantMore
		}
	}
	return log.Span{}, due, err
}

// due returns the first unreadable span of the segment that span is in.
func (m *mending) due(p Part, span log.Span) log.Span {
	for _, segment := range m.of[p] {
		if !covers([]log.Span{segment}, span) {
			continue
		}
		for _, first := range m.lacks[p] {
			if covers([]log.Span{segment}, first) {
				return first
			}
		}
	}
	return span
}

// putOff abandons the repair of a segment for whose next records no follower came. Other segments
// have precedence from then on.
func (m *mending) putOff() {
	for _, segment := range m.of[m.part] {
		if covers([]log.Span{segment}, m.repair.Span()) {
			m.late[m.part] = log.AddSpan(m.late[m.part], segment)
		}
	}
	m.abandon()
}

func (m *mending) abandon() {
	if m.repair != nil {
		m.repair.Abandon()
		m.repair, m.gone = nil, nil
	}
}

// look determines what this leader's logs lack; all: after reading them as a whole, which End
// stops.
func (l *Leading) look(all bool) {
	ctx, cancel := context.WithCancel(l.x.ctx)
	defer cancel()
	l.mu.Lock()
	l.repairs.mend.cancel = cancel
	l.mu.Unlock()
	err := l.lookAt(ctx, all)
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.repairs.mend
	m.busy = false
	if err != nil {
		m.looked = 0
		return
	}
	m.looked = max(l.x.config.Now(), 1)
	m.moved = m.looked // nothing could be added meanwhile
	if all {
		m.read = m.looked
	}
}

func (l *Leading) lookAt(ctx context.Context, all bool) error {
	for p, lg := range l.config.Logs {
		if all {
			if err := l.readWhole(ctx, lg); err != nil {
				return err
			}
		}
		if err := l.inUse(func() error { return l.lookAtPart(Part(p), lg) }); err != nil {
			return err
		}
	}
	return nil
}

// inUse runs do while End waits for it, or returns log.ErrClosed.
func (l *Leading) inUse(do func() error) error {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return log.ErrClosed
	}
	return do()
}

func (l *Leading) lookAtPart(p Part, lg *log.Log) error {
	if _, err := lg.SealDamagedTail(); err != nil {
		return err
	}
	m := &l.repairs.mend // it belongs to this worker
	spans, err := lg.Unreadable()
	for _, segment := range lg.Lacks() {
		if err == nil && len(intersect(spans, []log.Span{segment})) == 0 {
			m.abandon() // it would be void
			err = l.mendOwn(p, lg, segment)
		}
	}
	m.of[p] = lg.Lacks()
	spans = union(nil, spans)
	m.lacks[p], m.behind[p] = spans, nil
	if !lg.KnowsEpochs() {
		m.behind[p] = epochsBehind(lg, spans)
	}
	if err != nil {
		l.x.warnThrottled("look "+lg.Name(), "Could not determine what a damaged log lacks", "log", lg.Name(), "error", err)
	}
	return err
}

// mendOwn replaces a damaged segment all of whose records can be read: from this broker's memory,
// as long as they are the newest ones.
func (l *Leading) mendOwn(p Part, lg *log.Log, segment log.Span) error {
	r, err := lg.RepairLed(segment.From)
	if r == nil || err != nil {
		return err
	}
	defer r.Abandon()
	for !r.Full() {
		switch added, err := r.AddOwn(0, math.MaxUint64); {
		case err != nil:
			return err
		case !added:
			return fmt.Errorf("log %s: record %d can't be read any more", lg.Name(), r.Span().From)
		}
	}
	if rest := r.Span(); rest.From < rest.Next {
		return fmt.Errorf("log %s: a segment from %d to %d is too large", lg.Name(), segment.From, segment.Next)
	}
	aside, err := r.Finish()
	if err != nil {
		return err
	}
	l.x.counters.repaired.Add(1)
	l.x.log.Warn("Repaired a segment of the leader's own copy from its memory", "topic_id", l.config.Topic, "shard", l.config.ID.Shard,
		"part", p.String(), "epoch", l.epoch, "from", segment.From, "up_to", segment.Next, "damaged_one_set_aside", aside)
	return nil
}

// epochsBehind returns for each unreadable span the epoch of the first record behind it that can be
// read; 0: the log ends there; math.MaxUint64: it is not known.
func epochsBehind(lg *log.Log, spans []log.Span) []uint64 {
	epochs := make([]uint64, len(spans))
	_, end, _ := lg.Offsets()
	for i, s := range slices.Backward(spans) {
		switch {
		case s.Next >= end:
		case i+1 < len(spans) && spans[i+1].From == s.Next:
			epochs[i] = epochs[i+1]
		default:
			if epochs[i] = epochBehind(lg, s.Next); epochs[i] == 0 {
				epochs[i] = math.MaxUint64
			}
		}
	}
	return epochs
}

// readWhole reads a log to find damage in it.
func (l *Leading) readWhole(ctx context.Context, lg *log.Log) error {
	if err := l.inUse(func() error { lg.Roll(); return lg.Flush() }); err != nil {
		return err
	}
	_, end, _ := lg.Offsets()
	for next := uint64(0); next < end; {
		var found log.ScrubReport
		err := l.inUse(func() (err error) {
			found, err = lg.Scrub(ctx, log.ScrubOptions{From: next, Most: 1, Pace: l.x.lookPace})
			return err
		})
		if err != nil {
			return err
		}
		if found.Next <= next {
			break
		}
		next = found.Next
	}
	return nil
}

// given handles records that this leader wanted of a follower.
func (o *followerConn) given(g *given) {
	if l, _, why, _ := o.x.leaderFor(g.ID, g.epoch); why == "" {
		l.given(o, g)
	}
}

func (l *Leading) given(o *followerConn, g *given) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.repairs == nil {
		return
	}
	m := &l.repairs.mend
	if m.busy || m.want.conn != o || m.want.part != g.part {
		return // it is not wanted any more
	}
	want := m.want
	m.want = wanted{}
	batches := bytes.Clone(g.batches)
	m.busy = l.x.mends.Submit(func() { l.mendWith(want, batches) }, len(batches))
}

// mendWith adds what a follower gave to the segment being repaired.
func (l *Leading) mendWith(want wanted, batches []byte) {
	m, done := &l.repairs.mend, false
	err := l.inUse(func() (err error) { done, err = l.add(m, want, batches); return err })
	if err != nil && !errors.Is(err, log.ErrClosed) {
		l.x.warnThrottled(fmt.Sprintf("mend %s %d", l.config.Topic, l.config.ID.Shard),
			"Could not repair a leader's own copy from a follower", "topic_id", l.config.Topic, "shard", l.config.ID.Shard,
			"part", want.part.String(), "follower", want.conn.broker, "from", want.span.From, "up_to", want.span.Next, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.busy, m.moved = false, l.x.config.Now()
	if err != nil {
		m.abandon()
		m.failed = max(m.moved, 1)
	}
	if done || err != nil {
		m.looked = 0
	}
}

// add adds batches to the segment being repaired, and what can be read of it. done reports that it
// was replaced. The logs are in use.
func (l *Leading) add(m *mending, want wanted, batches []byte) (done bool, err error) {
	lg := l.config.Logs[want.part]
	if m.repair == nil {
		if m.repair, err = lg.RepairLed(want.span.From); err != nil {
			return false, err
		}
		if m.repair == nil {
			return true, nil // it does not lack it any more
		}
		m.part = want.part
		if err := m.addOwn(); err != nil {
			return false, err
		}
	}
	if due := m.repair.Span(); due.From != want.span.From {
		return false, fmt.Errorf("offset %d is due, and %d was wanted", due.From, want.span.From)
	}
	if want.lost {
		if batches, err = lg.Nothing(want.span); err != nil {
			return false, err
		}
		m.gone = append(m.gone, want.span)
	}
	epochs := lg.Epochs()
	for len(batches) > 0 && !m.repair.Full() {
		b, err := log.ParseBatch(batches)
		if err != nil {
			return false, err
		}
		batches = batches[len(b):]
		due := m.repair.Span().From
		if b.End() <= due || due >= want.span.Next {
			continue
		}
		if b, err = b.Until(want.span.Next); err != nil {
			return false, err
		}
		if !want.lost && (b.Epoch() > want.most || b.Epoch() < epochAt(epochs, due)) {
			return false, fmt.Errorf("the follower's records from %d to %d are of epoch %d, and this log has others there", due, b.End(), b.Epoch())
		}
		if err := m.repair.Add(b); err != nil {
			return false, err
		}
		l.x.counters.inRepairBytes.Add(uint64(len(b)))
	}
	if err := m.addOwn(); err != nil || !m.repair.Full() {
		return false, err
	}
	span := m.repair.Span()
	for _, gone := range m.gone {
		if !l.stillLost(want.part, gone) {
			return false, fmt.Errorf("another replica may have the records from %d to %d by now", gone.From, gone.Next)
		}
	}
	l.logGivingUp(want.part, m.gone)
	aside, err := m.repair.Finish()
	gone := m.gone
	m.repair, m.gone = nil, nil
	if err != nil {
		return false, err
	}
	l.countGivenUp(want.part, gone)
	l.x.counters.repaired.Add(1)
	l.x.log.Warn("Repaired a segment of the leader's own copy from a follower", "topic_id", l.config.Topic, "shard", l.config.ID.Shard,
		"part", want.part.String(), "epoch", l.epoch, "follower", want.conn.broker, "up_to", span.From, "damaged_one_set_aside", aside)
	return true, nil
}

// addOwn adds what can be read of the damaged segment from the offset on that is due.
func (m *mending) addOwn() error {
	for !m.repair.Full() {
		if added, err := m.repair.AddOwn(0, math.MaxUint64); err != nil || !added {
			return err
		}
	}
	return nil
}

// knownBefore returns the offset before which this log is known to have what another log has that
// shares its records of an epoch, and none of a later one. If its manifest was lost, damage may
// hide where a later epoch begins, and then the other log may have other records there.
func (m *mending) knownBefore(p Part, common uint64) uint64 {
	for i, epoch := range m.behind[p] {
		if epoch > common {
			return m.lacks[p][i].From
		}
	}
	return math.MaxUint64
}

// common returns the newest epoch of which both logs have batches; 0: there is none.
func (l *Lineage) common(other Lineage) (epoch uint64) {
	for _, e := range l.Epochs {
		if slices.ContainsFunc(other.Epochs, func(o log.Epoch) bool { return o.Epoch == e.Epoch }) {
			epoch = e.Epoch
		}
	}
	return epoch
}

// epochAt returns the epoch of an offset; 0: it is not known.
func epochAt(all []log.Epoch, offset uint64) (epoch uint64) {
	for _, e := range all {
		if e.Start <= offset {
			epoch = e.Epoch
		}
	}
	return epoch
}
