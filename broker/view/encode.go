package view

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// Kinds of encoded values, each with its version: the first byte.
const (
	checkpointKind = 0x11
	handoverKind   = 0x21
	ackKind        = 0x31
)

var (
	errDamaged = errors.New("view: the bytes are damaged, or of another version")
	errOther   = errors.New("view: the bytes are of a view with another spec: its state begins anew")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendNumber(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }
func appendTime(b []byte, t int64) []byte    { return binary.AppendVarint(b, t) }
func appendText(b []byte, s string) []byte   { return append(appendNumber(b, uint64(len(s))), s...) }

func appendPosition(b []byte, p Position) []byte { return appendText(appendTime(b, p.End), p.Key) }

func decodePosition(d *aggregate.Decoder) Position {
	return Position{End: d.Varint(), Key: string(d.Take(d.Uvarint()))}
}

func appendPartial(b []byte, p *aggregate.Partial) ([]byte, error) {
	part, err := p.Encode()
	return append(appendNumber(b, uint64(len(part))), part...), err
}

func (v *View) decodePartial(d *aggregate.Decoder) *aggregate.Partial {
	p, err := v.query.Decode(d.Take(d.Uvarint()))
	if d.Must(err == nil); err != nil {
		return v.query.NewPartial()
	}
	return p
}

func appendCounts(b []byte, c *Counts) []byte {
	for _, n := range c.fields() {
		b = appendNumber(b, *n)
	}
	return b
}

func decodeCounts(d *aggregate.Decoder) (c Counts) {
	for _, n := range c.fields() {
		*n = d.Uvarint()
	}
	return c
}

// seal puts a head before bytes, and a checksum behind them.
func (v *View) seal(kind byte, body []byte) ([]byte, error) {
	if len(body) > maxCheckpoint {
		return nil, fmt.Errorf("view: more than %d bytes in one piece: use keys with fewer values, or longer windows", maxCheckpoint)
	}
	b := binary.BigEndian.AppendUint64([]byte{kind}, v.fingerprint)
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// opened returns what seal was given.
func (v *View) opened(kind byte, b []byte) (*aggregate.Decoder, error) {
	switch n := len(b) - 4; {
	case n < 1+8 || n > 1+8+maxCheckpoint || b[0] != kind || crc32.Checksum(b[:n], castagnoli) != binary.BigEndian.Uint32(b[n:]):
		return nil, errDamaged
	case binary.BigEndian.Uint64(b[1:]) != v.fingerprint:
		return nil, errOther
	default:
		return aggregate.NewDecoder(b[1+8 : n]), nil
	}
}

// Encode returns a checkpoint: a shard as bytes. Shards with the same records, advances and
// acknowledgements have the same bytes.
func (s *Shard) Encode() ([]byte, error) {
	s.settle()
	b := appendTime(appendNumber(nil, s.next), s.watermark)
	b = s.done.append(appendCounts(b, &s.counts))
	b, err := appendPartial(b, s.open)
	if err != nil {
		return nil, err
	}
	if b, err = appendPartial(b, s.closed); err != nil {
		return nil, err
	}
	return s.view.seal(checkpointKind, b)
}

// DecodeShard returns the shard that Encode returned the bytes of. It goes on with the record at
// Next, as if it had never stopped.
func (v *View) DecodeShard(b []byte) (*Shard, error) {
	d, err := v.opened(checkpointKind, b)
	if err != nil {
		return nil, err
	}
	s := &Shard{view: v, next: d.Uvarint(), watermark: d.Varint(), counts: decodeCounts(d), done: decodeDone(d), last: begin.End}
	s.open, s.closed, s.kept = v.decodePartial(d), v.decodePartial(d), memoryOf(s.done.keep)
	if !d.Whole() {
		return nil, errDamaged
	}
	for w := range s.closed.Windows() {
		if !v.Windowed() || w.End > s.watermark {
			return nil, errDamaged
		}
		s.last = max(s.last, w.End)
	}
	for w := range s.open.Windows() {
		if v.Windowed() && w.End <= s.watermark {
			return nil, errDamaged
		}
	}
	return s, nil
}

// handover is what a shard says to the owner.
type handover struct {
	next      uint64
	watermark int64
	from      Position // all closed windows from here
	upTo      Position // to before here
	part      *aggregate.Partial
	bars      map[string]int64
	done      done
	held      uint64
	counts    Counts
}

// shorten leaves away the last windows, such that about so many bytes stay.
func (h *handover) shorten(bytes int, sessions bool) {
	page, next, more := h.part.Page(begin, bytes)
	if !more {
		return
	}
	for w := range h.part.Windows() {
		if !sessions || w.Start >= next.End || w.Position().Compare(next) < 0 {
			continue
		}
		if h.bars == nil {
			h.bars = map[string]int64{}
		}
		if start, there := h.bars[w.Key]; !there || w.Start < start {
			h.bars[w.Key] = w.Start
		}
	}
	h.part, h.upTo = page, next
}

func (h *handover) encode(v *View) ([]byte, error) {
	b := appendTime(appendNumber(nil, h.next), h.watermark)
	b = appendPosition(appendPosition(b, h.from), h.upTo)
	b = h.done.append(appendStarts(b, h.bars))
	b = appendCounts(appendNumber(b, h.held), &h.counts)
	b, err := appendPartial(b, h.part)
	if err != nil {
		return nil, err
	}
	return v.seal(handoverKind, b)
}

func (v *View) decodeHandover(b []byte) (*handover, error) {
	d, err := v.opened(handoverKind, b)
	if err != nil {
		return nil, err
	}
	h := &handover{next: d.Uvarint(), watermark: d.Varint(), from: decodePosition(d), upTo: decodePosition(d)}
	h.bars, h.done = decodeStarts(d), decodeDone(d)
	h.held, h.counts = d.Uvarint(), decodeCounts(d)
	h.part = v.decodePartial(d)
	if !d.Whole() || h.upTo.Compare(h.from) < 0 {
		return nil, errDamaged
	}
	return h, nil
}

func (v *View) decodeAck(b []byte) (done, error) {
	d, err := v.opened(ackKind, b)
	if err != nil {
		return done{}, err
	}
	a := decodeDone(d)
	if !d.Whole() {
		return done{}, errDamaged
	}
	return a, nil
}
