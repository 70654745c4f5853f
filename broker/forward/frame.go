package forward

import (
	"encoding/binary"
	"errors"
)

// FrameKind is the kind of a frame about forwarded messages. A frame is a byte of kind, the shard
// (u8 length of the Topic's id, id, u32 number), u64 source, u32 round, and a body. Numbers are
// big-endian. Bodies:
//
//	run      u64 epoch, u64 first, u64 floor, u64 ever, then entries with the numbers first and on.
//	         Every number below floor is settled. No number from ever on was sent before.
//	answers  items of u8 kind: kept (uvarint number, count, offset),
//	         single (uvarint number, offset, records, u8 duplicate),
//	         counted (uvarint number, offset, length, total of a counter),
//	         refused (uvarint number, length, answer; length 0: the publisher expects none)
//	again    the leader lacks something: begin another round
//	ready    the shard is open now: begin another round
type FrameKind byte

const (
	FrameRun     FrameKind = 1
	FrameAnswers FrameKind = 2
	FrameAgain   FrameKind = 3
	FrameReady   FrameKind = 4
)

// AnswerKind is the type byte of an answer.
type AnswerKind byte

const (
	ItemKept    AnswerKind = 1
	ItemSingle  AnswerKind = 2
	ItemRefused AnswerKind = 3
	ItemCounted AnswerKind = 4
)

// FrameHead is the head of every frame.
type FrameHead struct {
	Kind   FrameKind
	Topic  []byte
	Shard  int
	Source uint64
	Round  uint32
}

// Run is the body of a FrameRun.
type Run struct {
	Epoch, First, Floor, Ever uint64
	Entries                   []byte
}

// ErrFrame means that a frame of another broker can't be decoded.
var ErrFrame = errors.New("a frame about forwarded messages is malformed")

// AppendFrameHead appends the head of a frame.
func AppendFrameHead(dst []byte, kind FrameKind, topic string, shard int, source uint64, round uint32) []byte {
	dst = append(dst, byte(kind), byte(len(topic)))
	dst = append(dst, topic...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(shard))
	dst = binary.BigEndian.AppendUint64(dst, source)
	return binary.BigEndian.AppendUint32(dst, round)
}

// ParseFrameHead decodes the head of a frame. rest is its body.
func ParseFrameHead(data []byte) (h FrameHead, rest []byte, err error) {
	if len(data) < 2 || len(data) < 2+int(data[1])+16 {
		return h, nil, ErrFrame
	}
	h.Kind = FrameKind(data[0])
	id := int(data[1])
	h.Topic, data = data[2:2+id], data[2+id:]
	h.Shard = int(binary.BigEndian.Uint32(data))
	h.Source = binary.BigEndian.Uint64(data[4:])
	h.Round = binary.BigEndian.Uint32(data[12:])
	return h, data[16:], nil
}

// AppendRunHead appends the head of a FrameRun's body. Entries follow it.
func AppendRunHead(dst []byte, epoch, first, floor, ever uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, epoch)
	dst = binary.BigEndian.AppendUint64(dst, first)
	dst = binary.BigEndian.AppendUint64(dst, floor)
	return binary.BigEndian.AppendUint64(dst, ever)
}

// ParseRun decodes the body of a FrameRun.
func ParseRun(data []byte) (r Run, err error) {
	if len(data) < 32 {
		return r, ErrFrame
	}
	r.Epoch, r.First = binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
	r.Floor, r.Ever = binary.BigEndian.Uint64(data[16:]), binary.BigEndian.Uint64(data[24:])
	if r.First == 0 || r.Floor > r.First {
		return r, ErrFrame
	}
	r.Entries = data[32:]
	return r, nil
}

// RefusalCodec encodes the answer to the publisher of a refused message.
type RefusalCodec interface {
	AppendRefusal(dst []byte, topic string, err error) []byte
}

// Answers encodes answers. Consecutive numbers with consecutive offsets become one item.
type Answers struct {
	Buf              []byte
	seq, end, offset uint64 // of the item that is not encoded yet
}

// Reset removes all answers and keeps the memory.
func (a *Answers) Reset() { *a = Answers{Buf: a.Buf[:0]} }

// Kept adds so many messages of consecutive numbers that are kept at consecutive offsets.
func (a *Answers) Kept(seq, offset, messages uint64) {
	if a.end > a.seq && seq == a.end && offset == a.offset+a.end-a.seq {
		a.end += messages
		return
	}
	a.Flush()
	a.seq, a.end, a.offset = seq, seq+messages, offset
}

// Flush encodes the answers that Kept has gathered.
func (a *Answers) Flush() {
	if a.end == a.seq {
		return
	}
	a.Buf = append(a.Buf, byte(ItemKept))
	a.Buf = binary.AppendUvarint(a.Buf, a.seq)
	a.Buf = binary.AppendUvarint(a.Buf, a.end-a.seq)
	a.Buf = binary.AppendUvarint(a.Buf, a.offset)
	a.end = a.seq
}

// Single adds a kept message that carries several records, or that is a duplicate.
func (a *Answers) Single(seq, offset uint64, records uint32, duplicate bool) {
	if records == 0 && !duplicate {
		a.Kept(seq, offset, 1)
		return
	}
	a.Flush()
	a.Buf = append(a.Buf, byte(ItemSingle))
	a.Buf = binary.AppendUvarint(a.Buf, seq)
	a.Buf = binary.AppendUvarint(a.Buf, offset)
	a.Buf = binary.AppendUvarint(a.Buf, uint64(records))
	again := byte(0)
	if duplicate {
		again = 1
	}
	a.Buf = append(a.Buf, again)
}

// Counted adds a kept message that incremented a counter to a total.
func (a *Answers) Counted(seq, offset uint64, total string) {
	a.Flush()
	a.Buf = append(a.Buf, byte(ItemCounted))
	a.Buf = binary.AppendUvarint(a.Buf, seq)
	a.Buf = binary.AppendUvarint(a.Buf, offset)
	a.Buf = binary.AppendUvarint(a.Buf, uint64(len(total)))
	a.Buf = append(a.Buf, total...)
}

// Refused adds a refusal. A nil err means that the publisher expects no answer.
func (a *Answers) Refused(seq uint64, codec RefusalCodec, topic string, err error) {
	a.Flush()
	a.Buf = append(a.Buf, byte(ItemRefused))
	a.Buf = binary.AppendUvarint(a.Buf, seq)
	if err == nil {
		a.Buf = append(a.Buf, 0)
		return
	}
	// The length is written last, in a fixed number of bytes.
	at := len(a.Buf)
	a.Buf = append(a.Buf, 0, 0, 0, 0)
	a.Buf = codec.AppendRefusal(a.Buf, topic, err)
	n := len(a.Buf) - at - 4
	a.Buf[at], a.Buf[at+1], a.Buf[at+2], a.Buf[at+3] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)&0x7f
}

// Answer is one decoded item of answers.
type Answer struct {
	Kind       AnswerKind
	Seq, Count uint64
	Offset     uint64
	Records    int
	Duplicate  bool
	Refusal    []byte
	Total      []byte // of a counter
}

// ParseAnswer decodes the first of several answers.
func ParseAnswer(data []byte) (a Answer, rest []byte, err error) {
	if len(data) == 0 {
		return a, nil, ErrFrame
	}
	a.Kind = AnswerKind(data[0])
	data = data[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			err = ErrFrame
			return 0
		}
		data = data[n:]
		return v
	}
	a.Seq, a.Count = number(), 1
	switch a.Kind {
	case ItemKept:
		a.Count, a.Offset = number(), number()
	case ItemSingle:
		a.Offset, a.Records = number(), int(number())
		if err == nil && len(data) == 0 {
			err = ErrFrame
		}
		if err == nil {
			a.Duplicate, data = data[0] != 0, data[1:]
		}
	case ItemCounted, ItemRefused:
		if a.Kind == ItemCounted {
			a.Offset = number()
		}
		n := number()
		if n > uint64(len(data)) {
			err = ErrFrame
		}
		if err == nil {
			a.Refusal, data = data[:n], data[n:]
		}
		if a.Kind == ItemCounted {
			a.Total, a.Refusal = a.Refusal, nil
		}
	default:
		err = ErrFrame
	}
	return a, data, err
}
