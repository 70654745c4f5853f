package topic

import (
	"encoding/binary"
	"errors"
)

// What brokers say to each other about forwarded messages. A frame is a byte of kind, the shard (u8 length of the Topic's id, id,
// u32 number), u64 the source, u32 the round, and what its kind says. Numbers are big-endian.
//
//	run      u64 epoch, u64 first, u64 floor, u64 ever; letters: numbers first and on. All below floor is settled, and none from ever on went before
//	answers  u8 kind each: kept (uvarint number, count, offset), single (uvarint number, offset, records, u8 duplicate),
//	         refused (uvarint number, length, answer; no length: nobody is answered)
//	again    go again: something was not taken
//	ready    the shard is open, go again
type frameKind byte

const (
	frameRun     frameKind = 1
	frameAnswers frameKind = 2
	frameAgain   frameKind = 3
	frameReady   frameKind = 4
)

type answerItem byte

const (
	itemKept    answerItem = 1
	itemSingle  answerItem = 2
	itemRefused answerItem = 3
)

// frameHead is what all frames begin with.
type frameHead struct {
	kind   frameKind
	topic  []byte
	shard  int
	source uint64
	round  uint32
}

// run is what a frame of that kind says behind its head.
type run struct {
	epoch, first, floor, ever uint64
	letters                   []byte
}

var errFrame = errors.New("a frame about forwarded messages is malformed")

func appendFrameHead(dst []byte, kind frameKind, topic string, shard int, source uint64, round uint32) []byte {
	dst = append(dst, byte(kind), byte(len(topic)))
	dst = append(dst, topic...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(shard))
	dst = binary.BigEndian.AppendUint64(dst, source)
	return binary.BigEndian.AppendUint32(dst, round)
}

func parseFrameHead(data []byte) (h frameHead, rest []byte, err error) {
	if len(data) < 2 || len(data) < 2+int(data[1])+16 {
		return h, nil, errFrame
	}
	h.kind = frameKind(data[0])
	id := int(data[1])
	h.topic, data = data[2:2+id], data[2+id:]
	h.shard = int(binary.BigEndian.Uint32(data))
	h.source = binary.BigEndian.Uint64(data[4:])
	h.round = binary.BigEndian.Uint32(data[12:])
	return h, data[16:], nil
}

func appendRunHead(dst []byte, epoch, first, floor, ever uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, epoch)
	dst = binary.BigEndian.AppendUint64(dst, first)
	dst = binary.BigEndian.AppendUint64(dst, floor)
	return binary.BigEndian.AppendUint64(dst, ever)
}

func parseRun(data []byte) (r run, err error) {
	if len(data) < 32 {
		return r, errFrame
	}
	r.epoch, r.first = binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
	r.floor, r.ever = binary.BigEndian.Uint64(data[16:]), binary.BigEndian.Uint64(data[24:])
	if r.first == 0 || r.floor > r.first {
		return r, errFrame
	}
	r.letters = data[32:]
	return r, nil
}

// answersOut builds answers, of consecutive numbers and offsets as one item.
type answersOut struct {
	buf              []byte
	seq, end, offset uint64 // of an item that is not written yet
}

func (a *answersOut) reset() { *a = answersOut{buf: a.buf[:0]} }

func (a *answersOut) kept(seq, offset uint64) {
	if a.end > a.seq && seq == a.end && offset == a.offset+a.end-a.seq {
		a.end++
		return
	}
	a.flush()
	a.seq, a.end, a.offset = seq, seq+1, offset
}

func (a *answersOut) flush() {
	if a.end == a.seq {
		return
	}
	a.buf = append(a.buf, byte(itemKept))
	a.buf = binary.AppendUvarint(a.buf, a.seq)
	a.buf = binary.AppendUvarint(a.buf, a.end-a.seq)
	a.buf = binary.AppendUvarint(a.buf, a.offset)
	a.end = a.seq
}

func (a *answersOut) single(seq, offset uint64, records uint32, duplicate bool) {
	if records == 0 && !duplicate {
		a.kept(seq, offset)
		return
	}
	a.flush()
	a.buf = append(a.buf, byte(itemSingle))
	a.buf = binary.AppendUvarint(a.buf, seq)
	a.buf = binary.AppendUvarint(a.buf, offset)
	a.buf = binary.AppendUvarint(a.buf, uint64(records))
	again := byte(0)
	if duplicate {
		again = 1
	}
	a.buf = append(a.buf, again)
}

// refused adds a refusal; answer nil: nobody is told. say appends it.
func (a *answersOut) refused(seq uint64, codec PublishCodec, topic string, err error) {
	a.flush()
	a.buf = append(a.buf, byte(itemRefused))
	a.buf = binary.AppendUvarint(a.buf, seq)
	if err == nil {
		a.buf = append(a.buf, 0)
		return
	}
	// The length is not known before, and few refusals are longer than two bytes of it say.
	at := len(a.buf)
	a.buf = append(a.buf, 0, 0, 0, 0)
	a.buf = codec.AppendRefusal(a.buf, topic, err)
	n := len(a.buf) - at - 4
	a.buf[at], a.buf[at+1], a.buf[at+2], a.buf[at+3] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)&0x7f
}

// answerIn is one item of answers.
type answerIn struct {
	kind       answerItem
	seq, count uint64
	offset     uint64
	records    int
	duplicate  bool
	refusal    []byte
}

func parseAnswer(data []byte) (a answerIn, rest []byte, err error) {
	if len(data) == 0 {
		return a, nil, errFrame
	}
	a.kind = answerItem(data[0])
	data = data[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			err = errFrame
			return 0
		}
		data = data[n:]
		return v
	}
	a.seq, a.count = number(), 1
	switch a.kind {
	case itemKept:
		a.count, a.offset = number(), number()
	case itemSingle:
		a.offset, a.records = number(), int(number())
		if err == nil && len(data) == 0 {
			err = errFrame
		}
		if err == nil {
			a.duplicate, data = data[0] != 0, data[1:]
		}
	case itemRefused:
		n := number()
		if n > uint64(len(data)) {
			err = errFrame
		}
		if err == nil {
			a.refusal, data = data[:n], data[n:]
		}
	default:
		err = errFrame
	}
	return a, data, err
}
