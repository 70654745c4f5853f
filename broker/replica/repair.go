package replica

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// repairing is the repair of a Following whose logs lack segments (FollowConfig.RepairEnded): it
// fetches them from its leader, one at a time and one turn at a time, and copies nothing. So the
// leader does not count it. What the leader can't send, because its own copy is damaged there, is
// taken from the damaged segment, if it can be read; of the last segment, if the leader confirms
// that it is the same (pieceOwn). What no replica has is given up (pieceLost). Afterwards the logs
// are opened again and followed as usual. A worker of the disk's pool, or mu, owns it.
type repairing struct {
	repair  *log.Repair // nil: the next missing segment is not determined yet
	part    Part
	epoch   int64   // of the leader that sends the segment
	lineage Lineage // of the log, for the leader's judgement
	span    log.Span
	bytes   int               // received of this segment
	gone    []log.Span        // of this segment, given up
	nothing [Parts][]log.Span // of the segments before, given up

	offering offering
	offers   time.Duration // when the last offer ended; 0: never

	extent  extent            // what the logs lack; known since the first refusal
	of      [Parts][]log.Span // what log.Log.Lacks returned for it
	scanned time.Duration     // when the segments were read for it; 0: never
}

// scanEvery is how long a repair waits before it reads its damaged segments once more, to know what
// it lacks.
const scanEvery = 10 * time.Second

var errNoFetch = errors.New("the leader's broker is of a version that sends no single segments")

// askPiece appends the frame that requests the next piece. mu is held.
func (f *Following) askPiece(in *leaderConn, dst []byte) []byte {
	m := f.repair
	if m.offering.kind == offersMore && !in.extents {
		m.offering = offering{}
	}
	switch {
	case in.noFetch && m.offering.kind != offersLast:
		f.step = repairEnded
		f.x.disk.Submit(func() { f.notifyRepairEnded(errNoFetch) }, 0)
		return dst
	case m.offering.kind == offersLast && !in.extents: // as that version expects
		f.step, m.offering.epoch = repairEnded, f.epoch.Load()
		f.x.disk.Submit(func() { f.notifyRepairEnded(nil) }, 0)
		return dst
	case m.offering.kind != offersNothing && (m.extent.known || m.offering.described) && m.offering.epoch == f.epoch.Load():
		return f.appendOffer(dst)
	case m.offering.kind != offersNothing, m.repair == nil || m.epoch != f.epoch.Load():
		f.step = working
		f.x.disk.Submit(func() { f.workRepair(answered{}) }, 0)
		return dst
	}
	q := fetch{
		requestHead: requestHead{stream: f.stream, round: f.round.Add(1), ID: f.config.ID, epoch: m.epoch},
		part:        m.part, span: m.repair.Span(), log: m.lineage,
	}
	if in.extents {
		q.extent = m.lacking()
	}
	f.step = asked
	f.x.counters.outAsks.Add(1)
	return appendFetch(dst, &q)
}

// lacking returns what the logs lack: without what is fetched already, and with what was given up.
func (m *repairing) lacking() *extent {
	e := m.extent
	if m.repair != nil {
		e.lacks[m.part] = without(e.lacks[m.part], log.Span{From: m.span.From, Next: m.repair.Span().From})
	}
	for p := range Parts {
		nothing := m.nothing[p]
		if p == m.part {
			nothing = union(nothing, m.gone)
		}
		e.lacks[p] = union(e.lacks[p], nothing[max(0, len(nothing)-maxSpans/2):])
	}
	return &e
}

// receivePiece handles a piece. A worker writes it to the disk, so that batches of other shards do
// not wait for that.
func (f *Following) receivePiece(in *leaderConn, p *piece) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || f.step != asked || f.repair == nil || f.round.Load() != p.round {
		return
	}
	f.step, f.pause = working, 0
	kept := *p
	kept.batches = bytes.Clone(p.batches)
	f.x.disk.Submit(func() { f.workRepair(answered{round: p.round, piece: &kept}) }, 0)
}

// refusePiece handles a refusal of a fetch. A worker looks whether the damaged segment has what the
// leader can't send. mu is held.
func (f *Following) refusePiece(why string, round uint32) {
	f.step = working
	f.x.disk.Submit(func() { f.workRepair(answered{round: round, refused: why}) }, 0)
}

// answered is the answer to a fetch; the zero value: nothing was fetched yet.
type answered struct {
	round   uint32
	piece   *piece // nil: none
	refused string // why, if it was
}

// workRepair writes what was answered to the disk, unless it is void by now, and prepares the next
// request.
func (f *Following) workRepair(a answered) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	if f.round.Load() != a.round {
		a = answered{}
	}
	epoch := f.epoch.Load()
	f.users++
	f.mu.Unlock()
	var whole, own bool
	var err error
	if m := f.repair; m.offering.kind != offersNothing {
		whole, err = m.offered(f, a, epoch)
		whole = whole && f.config.Unwanted != nil
	} else {
		whole, own, err = m.advance(f, a, epoch)
		if err == nil && a.refused != "" && !own {
			m.beginOffer(f)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workDone()
	unfit, _ := errors.AsType[*log.UnfitError](err)
	switch {
	case f.ended:
	case whole:
		f.step = repairEnded
		f.x.disk.Submit(func() { f.notifyRepairEnded(nil) }, 0)
	case unfit != nil:
		f.step = repairEnded
		f.x.disk.Submit(func() { f.notifyRepairEnded(unfit) }, 0)
	case err == nil && a.refused != "" && !own:
		f.backOff(a.refused, f.pause)
	default:
		if own {
			f.pause = 0
		}
		f.resume(err)
	}
}

// notifyRepairEnded calls RepairEnded: the logs are complete, or an error says why they cannot be.
// Of a copy that is to be set aside, it calls Unwanted.
func (f *Following) notifyRepairEnded(err error) {
	f.mu.Lock()
	if f.ended || f.step != repairEnded {
		f.mu.Unlock()
		return
	}
	f.users++ // so that End waits for the call
	epoch := f.repair.offering.epoch
	f.mu.Unlock()
	if f.config.Unwanted != nil {
		f.config.Unwanted(epoch)
	} else {
		f.config.RepairEnded(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
}

// advance does one step: it adds a piece, if there is one, or what the damaged segment has in its
// place (own), and prepares the next request, unless the logs are complete. They are in use.
func (m *repairing) advance(f *Following, a answered, epoch int64) (whole, own bool, err error) {
	if m.repair != nil && m.epoch != epoch {
		m.abandon()
	}
	switch {
	case m.repair == nil:
	case a.piece != nil && a.piece.kind == pieceOwn:
		if own, err = m.addOwn(f, m.extent.own.epoch, be.Uint64(a.piece.batches)); err == nil && !own {
			err = errors.New("its own records can't be read any more, or are others")
		}
	case a.piece != nil:
		err = m.appendPiece(f, a.piece)
	case a.refused != "" && m.confirmed():
		own, err = m.addOwn(f, 0, math.MaxUint64)
	}
	m.extent.own = ownRecord{}
	if err == nil && a.refused != "" && !own && m.repair != nil {
		m.describe(f)
	}
	if err != nil {
		m.abandon()
		return false, own, err
	}
	for part := Part(0); m.repair == nil; part++ {
		if part == Parts {
			return true, own, nil
		}
		lg := f.config.Logs[part]
		if m.repair, err = lg.Repair(); err != nil {
			return false, own, err
		}
		m.part, m.epoch, m.bytes = part, epoch, 0
		if m.repair != nil {
			m.span = m.repair.Span()
			m.lineage = LineageOf(lg).around(m.span)
		}
	}
	return false, own, nil
}

// around returns the lineage of a log without a span. If nothing follows the span, the epochs that
// began in it are unknown, so the log is judged as if it ended before it.
func (l Lineage) around(span log.Span) Lineage {
	if span.Next < l.End {
		return l
	}
	l.End = span.From
	for n := len(l.Epochs); n > 0 && l.Epochs[n-1].Start >= l.End; n-- {
		l.Epochs = l.Epochs[:n-1]
	}
	return l
}

// addOwn adds own records of the damaged segment, and replaces the segment when it is complete.
func (m *repairing) addOwn(f *Following, epoch, until uint64) (added bool, err error) {
	if added, err = m.repair.AddOwn(epoch, until); err == nil && m.repair.Full() {
		err = m.finish(f)
	}
	return added, err
}

// describe determines what the logs lack, and what they have in place of the records that were
// refused.
func (m *repairing) describe(f *Following) {
	e := &m.extent
	same := e.known
	if m.repair != nil {
		next := log.Span{From: m.repair.Span().From, Next: m.repair.Span().From + 1}
		if epoch, until := m.repair.Own(); !m.confirmed() {
			e.own = ownRecord{epoch, until}
		}
		same = same && (e.own.epoch > 0 || covers(e.lacks[m.part], next))
	}
	var of [Parts][]log.Span
	for p, lg := range f.config.Logs {
		of[p] = lg.Lacks()
		same = same && slices.Equal(of[p], m.of[p])
	}
	now := f.x.config.Now()
	if same || m.scanned > 0 && now-m.scanned < scanEvery && slices.Equal(of[m.part], m.of[m.part]) {
		return
	}
	m.of, m.scanned = of, max(now, 1)
	e.known, e.lacks = true, [Parts][]log.Span{}
	for p, lg := range f.config.Logs {
		spans, err := lg.Unreadable()
		if err != nil {
			f.x.warnThrottled("read "+lg.Name(), "Could not determine what a damaged log lacks", "log", lg.Name(), "error", err)
			e.known = false
			return
		}
		// Others get nothing in place of what this copy says that it lacks. So it must not have that
		// again if its damage was in memory only.
		spans = union(nil, spans)
		spans = spans[:min(len(spans), maxDisowned)]
		if err := lg.Disown(spans...); err != nil {
			f.x.warnThrottled("disown "+lg.Name(), "Could not note which records a damaged log lacks", "log", lg.Name(), "error", err)
			e.known = false
			return
		}
		_, end, _ := lg.Offsets()
		e.lacks[p] = append(spans, log.Span{From: end, Next: math.MaxUint64})
	}
}

// confirmed reports whether each piece confirms that the logs are equal up to the end of the
// segment. Of the last segment they may differ: the epochs that began in it are not in the lineage.
// So of its own file only those records may stand beside what its leader has that are of the same
// epoch.
func (m *repairing) confirmed() bool { return m.lineage.End >= m.span.Next }

// appendPiece adds a piece to the segment being repaired, and replaces the segment when it is
// complete.
func (m *repairing) appendPiece(f *Following, p *piece) error {
	lg, r := f.config.Logs[m.part], m.repair
	if p.kind == pieceDiverged {
		return &log.UnfitError{Log: lg.Name(),
			Why: "it diverges from its leader's log before the end of the damage"}
	}
	if p.start > r.Span().From {
		if at, err := lg.Trim(p.start); err != nil {
			return err
		} else if at < p.start {
			return errors.New("what its leader has let go of is held here")
		}
		if r.Begun() || p.start >= r.Span().Next || len(p.batches) == 0 {
			m.abandon() // the next missing segment is determined again
			return nil
		}
	}
	if len(p.batches) == 0 {
		return errors.New("its leader has sent nothing of what is damaged")
	}
	if p.kind == pieceLost && m.extent.own.epoch == 0 && !covers(m.extent.lacks[m.part], log.Span{From: r.Span().From, Next: r.Span().From + 1}) {
		return errors.New("its leader gives up a record that is not known to be lost here")
	}
	m.bytes += len(p.batches)
	f.x.counters.inRepairBytes.Add(uint64(len(p.batches)))
	for rest := p.batches; len(rest) > 0 && !r.Full(); {
		b, err := log.ParseBatch(rest)
		if err != nil {
			return err
		}
		if b.Epoch() > uint64(m.epoch) {
			return &log.UnfitError{Log: lg.Name(), Why: "a batch of a later epoch than its leader's came"}
		}
		from := r.Span().From
		if err := r.Add(b); err != nil {
			return err
		}
		if p.kind == pieceLost {
			m.gone = append(m.gone, log.Span{From: from, Next: r.Span().From})
		}
		rest = rest[len(b):]
	}
	if !r.Full() {
		return nil
	}
	return m.finish(f)
}

// finish replaces the segment, which is complete.
func (m *repairing) finish(f *Following) error {
	r := m.repair
	for _, lost := range m.gone {
		f.x.log.Error(givingUp, "topic_id", f.config.Topic, "shard", f.config.ID.Shard,
			"part", m.part.String(), "epoch", m.epoch, "from", lost.From, "up_to", lost.Next)
	}
	aside, err := r.Finish()
	if err != nil {
		return err
	}
	for _, lost := range m.gone {
		if m.part == Data {
			f.x.counters.givenUp.Add(lost.Next - lost.From)
		}
	}
	m.of[m.part] = f.config.Logs[m.part].Lacks()
	f.x.counters.repaired.Add(1)
	f.x.log.Warn("Repaired a segment", "topic_id", f.config.Topic,
		"shard", f.config.ID.Shard, "part", m.part.String(),
		"epoch", m.epoch, "from", m.span.From, "up_to", r.Span().From, "bytes", m.bytes, "damaged_one_set_aside", aside)
	fetched := log.Span{From: m.span.From, Next: r.Span().From}
	m.extent.lacks[m.part] = without(m.extent.lacks[m.part], fetched)
	m.nothing[m.part] = union(without(m.nothing[m.part], fetched), m.gone)
	m.repair, m.gone = nil, nil
	return nil
}

func (m *repairing) abandon() {
	if m.repair != nil {
		m.repair.Abandon()
		m.repair, m.gone = nil, nil
	}
}
