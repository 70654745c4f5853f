package replica

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
)

// fetch is a follower's request for some batches of a log: those of a damaged or missing segment.
// It gets one answer, of at most one turn. All that the leader keeps about it is what it refused.
type fetch struct {
	requestHead
	part Part
	span log.Span
	log  Lineage // of the follower's log, as far as the span's position is known
	// extent is what the follower lacks; nil: its version or its leader's does not exchange that.
	extent *extent
	l      *Leading
}

// piece is the answer: batches from the start of the span on, or from the start of the leader's log
// if that is later. It has none if what the leader has there is damaged, and its log starts later.
type piece struct {
	stream, round uint32
	kind          pieceKind
	start         uint64
	batches       []byte
}

// pieceKind is the kind of an answer to a fetch.
type pieceKind uint8

const (
	pieceBatches  pieceKind = iota
	pieceDiverged           // nothing: the two logs differ before the end of the span
	// pieceOwn has an offset instead of batches: the leader's records up to there are damaged, and
	// the follower's own ones are the same.
	pieceOwn
	// pieceLost has batches without records: the leader's records are damaged, and no replica has
	// them.
	pieceLost
	// pieceWanted has a span instead of batches: the leader lacks these records, which were offered.
	pieceWanted
	pieceUnwanted // nothing: the leader lacks nothing of what was offered
	pieceKinds    // number of kinds
)

// refusedFetch is what a follower has asked for and was refused, since it is damaged here.
type refusedFetch struct {
	part  Part
	from  uint64
	times int // in a row
}

// stalledAfter is how many refusals in a row of the same records stall a repair. After each of them
// the follower looks in its own damaged segment (log.Repair.AddOwn), unless that is the last one,
// and asks again from there on only if it got nothing. One refusal may be lost with its connection,
// and one read of its disk may fail, but hardly so many. They take less than a second
// (askAgainMin), in which readers wait.
const stalledAfter = 5

func appendFetch(dst []byte, q *fetch) []byte {
	dst, at := beginFrame(dst, frameFetch)
	dst = appendRequestHead(dst, &q.requestHead)
	dst = append(dst, byte(len(q.Topic)))
	dst = append(dst, q.Topic...)
	dst = append(dst, byte(q.part))
	for _, v := range []uint64{q.span.From, q.span.Next, q.log.Start, q.log.End} {
		dst = be.AppendUint64(dst, v)
	}
	dst = appendEpochs(dst, q.log.Epochs)
	if q.extent != nil {
		dst = appendExtent(dst, q.extent)
	}
	return endFrame(dst, at)
}

func parseFetch(body []byte) (*fetch, error) {
	f := fields{rest: body}
	q := &fetch{requestHead: f.requestHead()}
	q.Topic = string(f.next(int(f.u8())))
	q.part = Part(f.u8())
	q.span = log.Span{From: f.u64(), Next: f.u64()}
	q.log.Start, q.log.End = f.u64(), f.u64()
	var err error
	if q.log.Epochs, err = f.epochs(); err != nil {
		return nil, err
	}
	if q.extent, err = f.extent(); err != nil {
		return nil, err
	}
	if err := f.done("fetch"); err != nil {
		return nil, err
	}
	if q.Topic == "" || q.epoch < 1 || q.part >= Parts || q.span.From == 0 ||
		q.span.Next <= q.span.From {
		return nil, fmt.Errorf("a fetch of %d to %d of part %d, shard %d of topic id %q, epoch %d",
			q.span.From, q.span.Next, q.part, q.Shard, q.Topic, q.epoch)
	}
	return q, q.log.valid(q.log.Start)
}

// appendPieceHeader appends a piece without its batches, which have size bytes.
func appendPieceHeader(dst []byte, p *piece, size int) []byte {
	dst, at := beginFrame(dst, framePiece)
	dst = be.AppendUint32(dst, p.stream)
	dst = be.AppendUint32(dst, p.round)
	dst = append(dst, byte(p.kind))
	dst = be.AppendUint64(dst, p.start)
	be.PutUint32(dst[at:], uint32(len(dst)-at-4+size))
	return dst
}

func parsePiece(body []byte) (p piece, err error) {
	f := fields{rest: body}
	p.stream, p.round, p.kind, p.start = f.u32(), f.u32(), pieceKind(f.u8()), f.u64()
	p.batches = f.rest
	bad := f.bad || p.kind >= pieceKinds
	switch p.kind {
	case pieceDiverged, pieceUnwanted:
		bad = bad || len(p.batches) > 0
	case pieceOwn:
		bad = bad || len(p.batches) != 8
	case pieceWanted:
		bad = bad || len(p.batches) != 16
	}
	if bad {
		return piece{}, fmt.Errorf("a frame %q of the wrong length", "piece")
	}
	return p, nil
}

// fetch handles a follower's request. The writer answers it.
func (o *followerConn) fetch(q *fetch) error {
	l, epoch, why, soon := o.x.leaderFor(q.ID, q.epoch)
	if why != "" {
		o.refuse(&q.requestHead, epoch, why, soon)
		return nil
	}
	q.l = l
	l.noteExtent(o, q)
	o.mu.Lock()
	many := len(o.fetches) >= maxStreams
	if !many && !o.ended {
		o.fetches = append(o.fetches, q)
	}
	o.mu.Unlock()
	if many {
		return garbage("more than %d fetches", maxStreams)
	}
	o.signal()
	return nil
}

// answerFetch sends a piece, if the allowance permits it now. An error ends the connection.
func (o *followerConn) answerFetch(q *fetch) error {
	if o.allowance <= 0 {
		o.throttledFetches = append(o.throttledFetches, q)
		return nil
	}
	p := piece{stream: q.stream, round: q.round}
	if q.extent != nil && q.extent.offer != offersNothing {
		return o.answerOffer(q, &p)
	}
	c := q.l.config.Logs[q.part].NewCursor(1)
	o.memory = c.Lend(o.memory)
	defer func() { o.memory = c.Lend(o.memory) }()
	from, refused := q.l.checkFetch(o.broker, q, &p)
	var v log.View
	if refused == nil && p.kind != pieceDiverged && from < q.span.Next {
		c.Seek(from)
		if v, refused = q.l.read(c); refused != nil {
			refused = q.l.answerDamaged(o, q, from, refused, &p)
		}
		if refused != nil {
			o.x.warnThrottled(fmt.Sprintf("fetch %s %d", q.Topic, q.Shard),
				"Could not read what a follower has lost", "follower", o.broker,
				"topic_id", q.Topic, "shard", q.Shard, "part", q.part.String(), "error", refused)
		}
		if _, damaged := errors.AsType[*log.CorruptError](refused); damaged && from > q.span.From {
			refused = nil // the follower first learns from where on it needs the records
		}
	}
	q.l.noteFetch(o.broker, q, refused)
	if refused != nil {
		return o.refuseFetch(q, refused)
	}
	defer v.Release()
	size, count := len(p.batches), 0
	for ahead := v; ; count++ {
		b, ok := ahead.Next()
		if !ok || b.Base() >= q.span.Next {
			break
		}
		size += len(b)
	}
	if _, err := o.out.Write(appendPieceHeader(o.out.AvailableBuffer(), &p, size)); err != nil {
		return err
	}
	if _, err := o.out.Write(p.batches); err != nil {
		return err
	}
	for range count {
		b, _ := v.Next()
		if _, err := o.out.Write(b); err != nil {
			return err
		}
	}
	o.allowance -= size
	o.x.counters.outRepairBytes.Add(uint64(size))
	return nil
}

// refuseFetch sends why a fetch or an offer has no answer at present.
func (o *followerConn) refuseFetch(q *fetch, why error) error {
	_, err := o.out.Write(appendRefusal(o.out.AvailableBuffer(),
		&refusal{stream: q.stream, round: q.round, epoch: q.l.epoch, why: why.Error()}))
	return err
}

// asDamage returns the damage that an error reports, if it does.
func asDamage(err error) (*log.CorruptError, bool) { return errors.AsType[*log.CorruptError](err) }

// noteFetch notes that a fetch was refused, or answered.
func (l *Leading) noteFetch(broker string, q *fetch, refused error) {
	_, damaged := asDamage(refused)
	l.mu.Lock()
	defer l.mu.Unlock()
	refusals := l.repair().refused
	before := refusals[broker]
	switch {
	case refused == nil:
		delete(refusals, broker)
	case !damaged:
	case before.part == q.part && before.from == q.span.From:
		before.times++
		refusals[broker] = before
	default:
		refusals[broker] = refusedFetch{part: q.part, from: q.span.From, times: 1}
	}
}

// Stalled reports whether the repair of a follower can't go on under this leader: the records that
// are due are damaged here, the follower has not used its own, and it is not known that nobody has
// them (answerDamaged). Every other repair under way ends, or comes to such records: each answer
// brings it on, and so does what it has itself of what was refused.
func (l *Leading) Stalled(broker string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.repair().refused[broker].times >= stalledAfter
}

// checkFetch judges whether and from where a fetch can be answered. refused is the reason if it
// can't be at present.
func (l *Leading) checkFetch(broker string, q *fetch, p *piece) (from uint64, refused error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.ended.Load() {
		return 0, errors.New("this broker has ended to lead it")
	}
	own := LineageOf(l.config.Logs[q.part])
	p.start = own.Start
	shared, err := l.compare(q.part, own, q.log)
	if err != nil {
		return 0, err
	}
	if err := l.mayDiffer(broker, q.part, own, q.log, shared); err != nil {
		return 0, err
	}
	if shared.Verb == Reset || shared.At < min(q.span.Next, q.log.End) || own.End < q.span.Next {
		p.kind = pieceDiverged
	}
	return max(q.span.From, p.start), nil
}
