package forward

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
type FrameKind byte

const (
	FrameRun     FrameKind = 1
	FrameAnswers FrameKind = 2
	FrameAgain   FrameKind = 3
	FrameReady   FrameKind = 4
)

type AnswerKind byte

const (
	ItemKept    AnswerKind = 1
	ItemSingle  AnswerKind = 2
	ItemRefused AnswerKind = 3
)

// FrameHead is what all frames begin with.
type FrameHead struct {
	Kind   FrameKind
	Topic  []byte
	Shard  int
	Source uint64
	Round  uint32
}

// Run is what a frame of that kind says behind its head.
type Run struct {
	Epoch, First, Floor, Ever uint64
	Letters                   []byte
}

var ErrFrame = errors.New("a frame about forwarded messages is malformed")

func AppendFrameHead(dst []byte, kind FrameKind, topic string, shard int, source uint64, round uint32) []byte {
	dst = append(dst, byte(kind), byte(len(topic)))
	dst = append(dst, topic...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(shard))
	dst = binary.BigEndian.AppendUint64(dst, source)
	return binary.BigEndian.AppendUint32(dst, round)
}

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

func AppendRunHead(dst []byte, epoch, first, floor, ever uint64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, epoch)
	dst = binary.BigEndian.AppendUint64(dst, first)
	dst = binary.BigEndian.AppendUint64(dst, floor)
	return binary.BigEndian.AppendUint64(dst, ever)
}

func ParseRun(data []byte) (r Run, err error) {
	if len(data) < 32 {
		return r, ErrFrame
	}
	r.Epoch, r.First = binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
	r.Floor, r.Ever = binary.BigEndian.Uint64(data[16:]), binary.BigEndian.Uint64(data[24:])
	if r.First == 0 || r.Floor > r.First {
		return r, ErrFrame
	}
	r.Letters = data[32:]
	return r, nil
}

// RefusalCodec encodes what a publisher is told whose message was refused.
type RefusalCodec interface {
	AppendRefusal(dst []byte, topic string, err error) []byte
}

// Answers builds answers, of consecutive numbers and offsets as one item.
type Answers struct {
	Buf              []byte
	seq, end, offset uint64 // of an item that is not written yet
}

func (a *Answers) Reset() { *a = Answers{Buf: a.Buf[:0]} }

func (a *Answers) Kept(seq, offset uint64) {
	if a.end > a.seq && seq == a.end && offset == a.offset+a.end-a.seq {
		a.end++
		return
	}
	a.Flush()
	a.seq, a.end, a.offset = seq, seq+1, offset
}

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

func (a *Answers) Single(seq, offset uint64, records uint32, duplicate bool) {
	if records == 0 && !duplicate {
		a.Kept(seq, offset)
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

// Refused adds a refusal; answer nil: nobody is told. say appends it.
func (a *Answers) Refused(seq uint64, codec RefusalCodec, topic string, err error) {
	a.Flush()
	a.Buf = append(a.Buf, byte(ItemRefused))
	a.Buf = binary.AppendUvarint(a.Buf, seq)
	if err == nil {
		a.Buf = append(a.Buf, 0)
		return
	}
	// The length is not known before, and few refusals are longer than two bytes of it say.
	at := len(a.Buf)
	a.Buf = append(a.Buf, 0, 0, 0, 0)
	a.Buf = codec.AppendRefusal(a.Buf, topic, err)
	n := len(a.Buf) - at - 4
	a.Buf[at], a.Buf[at+1], a.Buf[at+2], a.Buf[at+3] = byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14)|0x80, byte(n>>21)&0x7f
}

// Answer is one item of answers.
type Answer struct {
	Kind       AnswerKind
	Seq, Count uint64
	Offset     uint64
	Records    int
	Duplicate  bool
	Refusal    []byte
}

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
	case ItemRefused:
		n := number()
		if n > uint64(len(data)) {
			err = ErrFrame
		}
		if err == nil {
			a.Refusal, data = data[:n], data[n:]
		}
	default:
		err = ErrFrame
	}
	return a, data, err
}
