package replica

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/carillon-mq/carillon/broker/log"
)

// A connection carries frames: u32 length of the rest, u8 type, body. Integers are big-endian, and
// batches are as in the log. The handshake of the connection (package route) settles which protocol
// versions both sides support.
//
//	beat                             heartbeat of either side
//	clock    u64 sent, u8 returns, u64 echo, u64 held, u64 time, u8 state, u64 age: a clock's vote
//
// From the follower:
//
//	ask      u32 stream, u32 round, u32 shard, u64 epoch, u64 incarnation, u8 length and id of the
//	         Topic, and for each part: u64 start, u64 end, u64 safe, u16 count of epochs,
//	         each u64 epoch, u64 start
//	ack      u32 stream, u8 part, u64 safe
//	leave    u32 stream
//	confirm  u32 stream, u32 round, u64 epoch, u64 number: it still copies, as answer to a probe
//	fetch    u32 stream, u32 round, u32 shard, u64 epoch, u8 length and id of the Topic, u8 part,
//	         u64 from, u64 up to, and of that log: u64 start, u64 end, u16 count of epochs,
//	         each u64 epoch, u64 start. To a leader that announces coordination.FeatureExtents also:
//	         u8 whether what the follower lacks is known, u8 offer, for each part u16 count of spans,
//	         each u64 from, u64 up to, and of its own record at from: u64 epoch or 0, u64 end
//	given    u32 stream, u32 round, u32 shard, u64 epoch, u8 length and id of the Topic, u8 part,
//	         batches: what the leader wanted of an offer
//
// From the leader:
//
//	verdict  u32 stream, u32 round, and for each part: u8 verb, u64 at; if the verbs are to copy, at
//	         is Leader.Goal. Version 018b7c1 sends the follower's own end, and ignores it.
//	refused  u32 stream, u32 round, u64 epoch that the leader knows or 0, text
//	retry    u32 stream, u32 round: a refused follower may ask again now
//	probe    u32 stream, u32 round, u64 epoch, u64 number of a barrier round: do you still copy?
//	data     u32 stream, u8 part, u8 promised, both watermarks, both starts, batches
//	high     u32 stream, both watermarks, both starts
//	piece    u32 stream, u32 round, u8 kind (pieceKind), u64 start, batches: the answer to a fetch.
//	         If it is to use its own records: u64 up to, instead of batches. If the leader wants
//	         records that were offered: u64 from, u64 up to
//
// A stream is a shard on this connection; the follower numbers them. A round is one ask of a
// stream. Each answer names its round, and the data after a verdict belongs to that round. An ask
// or a fetch that is malformed behind its round is refused; any other malformed frame ends the
// connection.
//
// Probe and confirm are sent only to a peer that announces coordination.FeatureBarrier, and clock
// only to one that announces coordination.FeatureClock. Later versions may append fields to these
// three; this version ignores them.
//
// frameType is the type byte of a frame.
type frameType byte

const (
	frameBeat frameType = 1 + iota
	frameAsk
	frameAck
	frameLeave
	frameVerdict
	frameRefused
	frameRetry
	frameData
	frameHigh
	frameFetch
	framePiece
	frameProbe
	frameConfirm
	frameClock
	frameGiven
)

const (
	frameHeader = 5
	dataHeader  = 6 + 4*8
	givenHeader = 3*4 + 8 + 1 + 255 + 1 // with the longest id of a Topic
)

// requestHead is the head of a follower's request: the stream, the shard and the epoch.
type requestHead struct {
	stream, round uint32
	ID
	epoch int64
}

// ask is a follower's request to compare its logs with the leader's.
type ask struct {
	requestHead
	incarnation int64
	logs        [Parts]Lineage
	safe        [Parts]uint64
}

// given are records that a leader wanted of a follower's offer.
type given struct {
	requestHead
	part    Part
	batches []byte
}

// verdict is the positive answer to an ask.
type verdict struct {
	stream, round uint32
	parts         [Parts]Verdict
}

// refusal is the negative answer. It also ends a stream that was copied.
type refusal struct {
	stream, round uint32
	epoch         int64
	why           string
}

// probe is a leader's request to confirm that the follower copies under its epoch, and the
// follower's confirmation.
type probe struct {
	stream, round uint32
	epoch         int64
	number        uint64 // of the barrier round
}

// marks are the watermarks and starts that a leader sends with each frame of a stream.
type marks struct {
	high, start [Parts]uint64
}

// data is a part of a log.
type data struct {
	stream   uint32
	part     Part
	promised bool
	marks
	batches []byte
}

var be = binary.BigEndian

func beginFrame(dst []byte, t frameType) ([]byte, int) {
	return append(dst, 0, 0, 0, 0, byte(t)), len(dst)
}

func endFrame(dst []byte, at int) []byte {
	be.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendBeat(dst []byte) []byte { return append(dst, 0, 0, 0, 1, byte(frameBeat)) }

// appendRequestHead appends a head without the Topic, which comes last.
func appendRequestHead(dst []byte, q *requestHead) []byte {
	dst = be.AppendUint32(dst, q.stream)
	dst = be.AppendUint32(dst, q.round)
	dst = be.AppendUint32(dst, uint32(q.Shard))
	return be.AppendUint64(dst, uint64(q.epoch))
}

func appendAsk(dst []byte, a *ask) []byte {
	dst, at := beginFrame(dst, frameAsk)
	dst = appendRequestHead(dst, &a.requestHead)
	dst = be.AppendUint64(dst, uint64(a.incarnation))
	dst = append(dst, byte(len(a.Topic)))
	dst = append(dst, a.Topic...)
	for p := range Parts {
		l := &a.logs[p]
		dst = be.AppendUint64(dst, l.Start)
		dst = be.AppendUint64(dst, l.End)
		dst = appendEpochs(be.AppendUint64(dst, a.safe[p]), l.Epochs)
	}
	return endFrame(dst, at)
}

func appendEpochs(dst []byte, epochs []log.Epoch) []byte {
	dst = be.AppendUint16(dst, uint16(len(epochs)))
	for _, e := range epochs {
		dst = be.AppendUint64(dst, e.Epoch)
		dst = be.AppendUint64(dst, e.Start)
	}
	return dst
}

func appendAck(dst []byte, stream uint32, p Part, safe uint64) []byte {
	dst, at := beginFrame(dst, frameAck)
	dst = be.AppendUint32(dst, stream)
	dst = append(dst, byte(p))
	return endFrame(be.AppendUint64(dst, safe), at)
}

// appendProbe appends a frame of type frameProbe or frameConfirm.
func appendProbe(dst []byte, t frameType, p *probe) []byte {
	dst, at := beginFrame(dst, t)
	dst = be.AppendUint32(dst, p.stream)
	dst = be.AppendUint32(dst, p.round)
	dst = be.AppendUint64(dst, uint64(p.epoch))
	return endFrame(be.AppendUint64(dst, p.number), at)
}

func appendLeave(dst []byte, stream uint32) []byte {
	dst, at := beginFrame(dst, frameLeave)
	return endFrame(be.AppendUint32(dst, stream), at)
}

func appendVerdict(dst []byte, v *verdict) []byte {
	dst, at := beginFrame(dst, frameVerdict)
	dst = be.AppendUint32(dst, v.stream)
	dst = be.AppendUint32(dst, v.round)
	for _, p := range v.parts {
		dst = append(dst, byte(p.Verb))
		dst = be.AppendUint64(dst, p.At)
	}
	return endFrame(dst, at)
}

func appendRefusal(dst []byte, r *refusal) []byte {
	dst, at := beginFrame(dst, frameRefused)
	dst = be.AppendUint32(dst, r.stream)
	dst = be.AppendUint32(dst, r.round)
	dst = be.AppendUint64(dst, uint64(r.epoch))
	return endFrame(append(dst, r.why[:min(len(r.why), maxReason)]...), at)
}

func appendRetry(dst []byte, stream, round uint32) []byte {
	dst, at := beginFrame(dst, frameRetry)
	dst = be.AppendUint32(dst, stream)
	return endFrame(be.AppendUint32(dst, round), at)
}

func appendMarks(dst []byte, m *marks) []byte {
	for _, v := range m.high {
		dst = be.AppendUint64(dst, v)
	}
	for _, v := range m.start {
		dst = be.AppendUint64(dst, v)
	}
	return dst
}

func appendHigh(dst []byte, stream uint32, m *marks) []byte {
	dst, at := beginFrame(dst, frameHigh)
	dst = be.AppendUint32(dst, stream)
	return endFrame(appendMarks(dst, m), at)
}

// appendDataHeader appends a data frame without its batches, which have size bytes.
func appendDataHeader(dst []byte, d *data, size int) []byte {
	dst, at := beginFrame(dst, frameData)
	dst = be.AppendUint32(dst, d.stream)
	promised := byte(0)
	if d.promised {
		promised = 1
	}
	dst = append(dst, byte(d.part), promised)
	dst = appendMarks(dst, &d.marks)
	be.PutUint32(dst[at:], uint32(len(dst)-at-4+size))
	return dst
}

// fields decodes a body. After a field beyond its end, bad is set and every value is zero.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) next(n int) []byte {
	if f.bad || n > len(f.rest) {
		f.bad, f.rest = true, nil
		return zeros[:n]
	}
	piece := f.rest[:n:n]
	f.rest = f.rest[n:]
	return piece
}

var zeros [256]byte // as long as the longest field

func (f *fields) u8() byte    { return f.next(1)[0] }
func (f *fields) u16() uint16 { return be.Uint16(f.next(2)) }
func (f *fields) u32() uint32 { return be.Uint32(f.next(4)) }
func (f *fields) u64() uint64 { return be.Uint64(f.next(8)) }

// requestHead decodes what appendRequestHead appends.
func (f *fields) requestHead() (q requestHead) {
	q.stream, q.round = f.u32(), f.u32()
	q.Shard, q.epoch = int(f.u32()), int64(f.u64())
	return q
}

func (f *fields) marks() (m marks) {
	for p := range m.high {
		m.high[p] = f.u64()
	}
	for p := range m.start {
		m.start[p] = f.u64()
	}
	return m
}

func (f *fields) epochs() ([]log.Epoch, error) {
	n := int(f.u16())
	if n > MaxLineage || n*16 > len(f.rest) {
		return nil, fmt.Errorf("a log with %d epochs", n)
	}
	epochs := make([]log.Epoch, n)
	for i := range epochs {
		epochs[i] = log.Epoch{Epoch: f.u64(), Start: f.u64()}
	}
	return epochs, nil
}

// done reports an error unless the body was decoded exactly.
func (f *fields) done(what string) error {
	if f.bad || len(f.rest) > 0 {
		return fmt.Errorf("a frame %q of the wrong length", what)
	}
	return nil
}

func parseAsk(body []byte) (*ask, error) {
	f := fields{rest: body}
	a := &ask{requestHead: f.requestHead(), incarnation: int64(f.u64())}
	a.Topic = string(f.next(int(f.u8())))
	for p := range a.logs {
		l := &a.logs[p]
		l.Start, l.End, a.safe[p] = f.u64(), f.u64(), f.u64()
		var err error
		if l.Epochs, err = f.epochs(); err != nil {
			return nil, err
		}
	}
	if err := f.done("ask"); err != nil {
		return nil, err
	}
	if a.Topic == "" || a.epoch < 1 || a.incarnation < 1 {
		return nil, fmt.Errorf("an ask for shard %d of topic id %q, epoch %d, incarnation %d",
			a.Shard, a.Topic, a.epoch, a.incarnation)
	}
	for p := range a.logs {
		if err := a.logs[p].valid(a.safe[p]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// valid checks the consistency of a lineage.
func (l *Lineage) valid(safe uint64) error {
	if l.Start == 0 || l.End < l.Start || safe > l.End {
		return fmt.Errorf("a log from %d to %d, safe to %d", l.Start, l.End, safe)
	}
	for i, e := range l.Epochs {
		if e.Start >= l.End ||
			i > 0 && (e.Epoch <= l.Epochs[i-1].Epoch || e.Start <= l.Epochs[i-1].Start) {
			return fmt.Errorf("a log whose epoch %d begins at %d", e.Epoch, e.Start)
		}
	}
	return nil
}

func parseAck(body []byte) (stream uint32, p Part, safe uint64, err error) {
	f := fields{rest: body}
	stream, p, safe = f.u32(), Part(f.u8()), f.u64()
	if err := f.done("ack"); err != nil {
		return 0, 0, 0, err
	}
	if p >= Parts {
		return 0, 0, 0, fmt.Errorf("an ack of part %d", p)
	}
	return stream, p, safe, nil
}

func parseProbe(body []byte) (p probe, err error) {
	f := fields{rest: body}
	p.stream, p.round, p.epoch, p.number = f.u32(), f.u32(), int64(f.u64()), f.u64()
	f.rest = nil // fields of later versions
	return p, f.done("probe")
}

func parseLeave(body []byte) (stream uint32, err error) {
	f := fields{rest: body}
	stream = f.u32()
	return stream, f.done("leave")
}

func parseVerdict(body []byte) (v verdict, err error) {
	f := fields{rest: body}
	v.stream, v.round = f.u32(), f.u32()
	for p := range v.parts {
		v.parts[p] = Verdict{Verb(f.u8()), f.u64()}
		if v.parts[p].Verb > Reset {
			return verdict{}, fmt.Errorf("a verdict with the verb %d", v.parts[p].Verb)
		}
	}
	return v, f.done("verdict")
}

func appendGiven(dst []byte, g *given) []byte {
	dst, at := beginFrame(dst, frameGiven)
	dst = appendRequestHead(dst, &g.requestHead)
	dst = append(dst, byte(len(g.Topic)))
	dst = append(dst, g.Topic...)
	dst = append(dst, byte(g.part))
	return endFrame(append(dst, g.batches...), at)
}

func parseGiven(body []byte) (*given, error) {
	f := fields{rest: body}
	g := &given{requestHead: f.requestHead()}
	g.Topic = string(f.next(int(f.u8())))
	g.part = Part(f.u8())
	if f.bad || g.part >= Parts {
		return nil, fmt.Errorf("a frame %q of %d bytes for part %d", "given", len(body), g.part)
	}
	g.batches = f.rest
	return g, nil
}

func parseRefusal(body []byte) (r refusal, err error) {
	f := fields{rest: body}
	r.stream, r.round, r.epoch = f.u32(), f.u32(), int64(f.u64())
	if f.bad || len(f.rest) > maxReason {
		return refusal{}, fmt.Errorf("a frame %q of the wrong length", "refused")
	}
	r.why = string(f.rest)
	return r, nil
}

func parseRetry(body []byte) (stream, round uint32, err error) {
	f := fields{rest: body}
	stream, round = f.u32(), f.u32()
	return stream, round, f.done("retry")
}

func parseData(body []byte) (d data, err error) {
	f := fields{rest: body}
	d.stream, d.part, d.promised = f.u32(), Part(f.u8()), f.u8() == 1
	d.marks = f.marks()
	if f.bad || d.part >= Parts {
		return data{}, fmt.Errorf("a frame %q of %d bytes for part %d", "data", len(body), d.part)
	}
	d.batches = f.rest
	return d, nil
}

func parseHigh(body []byte) (stream uint32, m marks, err error) {
	f := fields{rest: body}
	stream = f.u32()
	m = f.marks()
	return stream, m, f.done("high")
}

// reader splits a byte stream into frames. Their bodies alias its buffer.
type reader struct {
	source     io.Reader
	usual      int // usual size of the buffer
	limit      int // largest frame
	buf        []byte
	start, end int
	roomy      int // consecutive reads that would have fitted the usual buffer
}

func newReader(source io.Reader, usual, limit int) *reader {
	return &reader{source: source, usual: usual, limit: limit, buf: make([]byte, usual)}
}

// next returns the next complete frame of the buffer, or ok false if there is none. The body is
// valid until fill.
func (r *reader) next() (t frameType, body []byte, ok bool, err error) {
	have := r.buf[r.start:r.end]
	if len(have) < frameHeader {
		return 0, nil, false, nil
	}
	n := int(be.Uint32(have))
	if n < 1 || n > r.limit {
		return 0, nil, false, fmt.Errorf("a frame of %d bytes; 1 to %d are possible", n, r.limit)
	}
	if len(have) < 4+n {
		return 0, nil, false, nil
	}
	r.start += 4 + n
	return frameType(have[4]), have[frameHeader : 4+n : 4+n], true, nil
}

// fill reads once. The buffer grows with the bytes that arrived, never with an announced length.
func (r *reader) fill() (int, error) {
	held := copy(r.buf, r.buf[r.start:r.end])
	r.start, r.end = 0, held
	switch {
	case held == len(r.buf):
		r.resize(2 * held)
	case held > r.usual/2:
		r.roomy = 0
	case len(r.buf) > r.usual:
		if r.roomy++; r.roomy > shrinkAfter {
			r.resize(r.usual)
		}
	}
	n, err := r.source.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		err = nil // The next read returns the error again.
	}
	return n, err
}

func (r *reader) resize(size int) {
	buf := make([]byte, size)
	copy(buf, r.buf[:r.end])
	r.buf, r.roomy = buf, 0
}
