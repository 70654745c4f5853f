package websocket

import (
	"encoding/binary"
	"math/bits"
)

// Decoder decodes a client's frames, which arrive in pieces of any size. The zero value is ready.
// It is not safe for concurrent use.
type Decoder struct {
	left       uint64 // payload bytes of the current frame that are still to come
	key        uint32 // the mask, turned so that the next byte's part comes first
	opcode     byte
	inPayload  bool // the header of the current frame is complete
	final      bool // the current data frame ends its message
	incomplete bool // a message began that has not ended
	headN      uint8
	controlN   uint8
	head       [maxHeader]byte  // the header of the current frame, as far as it came
	control    [maxControl]byte // the payload of the current control frame
	pong       []byte           // a frame; empty: none
	end        *End
}

// Decode decodes b, and leaves the payload of data frames in its first n bytes. An error is an
// *End, and stays; the payload before it is valid.
func (d *Decoder) Decode(b []byte) (n int, err error) {
	for rest := b; d.end == nil; {
		if !d.inPayload {
			if len(rest) == 0 {
				return n, nil
			}
			rest = rest[d.header(rest):]
			continue
		}
		if len(rest) == 0 && d.left > 0 {
			return n, nil
		}
		m := int(min(d.left, uint64(len(rest))))
		if d.opcode&bitControl != 0 {
			d.key = unmask(d.control[d.controlN:], rest[:m], d.key)
			d.controlN += uint8(m)
		} else {
			d.key = unmask(b[n:], rest[:m], d.key)
			n += m
		}
		rest, d.left = rest[m:], d.left-uint64(m)
		if d.left == 0 {
			d.frameEnds()
		}
	}
	return n, d.end
}

// End returns the end of the stream, or nil.
func (d *Decoder) End() *End { return d.end }

// TakePong returns the frame that answers the newest ping, or nil. The caller owns it.
func (d *Decoder) TakePong() []byte {
	pong := d.pong
	d.pong = nil
	return pong
}

// header takes bytes of a header, and returns how many.
func (d *Decoder) header(b []byte) (used int) {
	if d.headN < shortHeader {
		used = copy(d.head[d.headN:shortHeader], b)
		if d.headN += uint8(used); d.headN < shortHeader {
			return used
		}
		if why := d.judge(); why != "" {
			d.end = violation(why)
			return used
		}
	}
	size := shortHeader + maskSize
	switch d.head[1] & bitsLength {
	case length16:
		size += 2
	case length64:
		size += 8
	}
	more := copy(d.head[d.headN:size], b[used:])
	used += more
	if d.headN += uint8(more); int(d.headN) < size {
		return used
	}
	switch length := d.head[1] & bitsLength; length {
	case length16:
		d.left = uint64(binary.BigEndian.Uint16(d.head[shortHeader:]))
	case length64:
		if d.left = binary.BigEndian.Uint64(d.head[shortHeader:]); d.left>>63 != 0 {
			d.end = violation("a length beyond 63 bits")
		}
	default:
		d.left = uint64(length)
	}
	d.key = binary.LittleEndian.Uint32(d.head[size-maskSize:])
	d.headN, d.controlN, d.inPayload = 0, 0, true
	return used
}

// judge looks at the first two bytes of a header, and returns what is wrong with them, if anything.
func (d *Decoder) judge() string {
	first, second := d.head[0], d.head[1]
	d.opcode = first & bitsOpcode
	final, control := first&bitFinal != 0, d.opcode&bitControl != 0
	switch {
	case first&bitsRSV != 0:
		return "reserved bits are set; no extension was negotiated"
	case second&bitMasked == 0:
		return "a frame is not masked"
	case control && d.opcode > opPong, !control && d.opcode > opBinary:
		return "unknown opcode"
	case control && second&bitsLength > maxControl:
		return "a control frame is longer than 125 bytes"
	case control && !final:
		return "a control frame is fragmented"
	case d.opcode == opContinuation && !d.incomplete:
		return "a continuation of no message"
	case !control && d.opcode != opContinuation && d.incomplete:
		return "a message begins within another"
	}
	if !control {
		d.final = final
	}
	return ""
}

// frameEnds acts on a frame that came in whole.
func (d *Decoder) frameEnds() {
	d.inPayload = false
	payload := d.control[:d.controlN]
	switch d.opcode {
	case opClose:
		d.end = closedWith(payload)
	case opPing:
		d.pong = appendControl(d.pong[:0], opPong, payload)
	case opPong:
	default:
		d.incomplete = !d.final
	}
}

// unmask writes src, unmasked, to the beginning of dst, which is src, lies before it, or does not
// overlap it. It returns the mask for the byte after src.
func unmask(dst, src []byte, key uint32) uint32 {
	dst = dst[:len(src)]
	wide := uint64(key)<<32 | uint64(key)
	for len(src) >= 32 && len(dst) >= 32 {
		// All are read before any is written, since dst may begin within src.
		a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		c, d := binary.LittleEndian.Uint64(src[16:]), binary.LittleEndian.Uint64(src[24:])
		binary.LittleEndian.PutUint64(dst, a^wide)
		binary.LittleEndian.PutUint64(dst[8:], b^wide)
		binary.LittleEndian.PutUint64(dst[16:], c^wide)
		binary.LittleEndian.PutUint64(dst[24:], d^wide)
		src, dst = src[32:], dst[32:]
	}
	for len(src) >= 8 {
		binary.LittleEndian.PutUint64(dst, binary.LittleEndian.Uint64(src)^wide)
		src, dst = src[8:], dst[8:]
	}
	for i := range src {
		dst[i] = src[i] ^ byte(key)
		key = bits.RotateLeft32(key, -8)
	}
	return key
}
