package websocket

import "encoding/binary"

// The opcodes of frames.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// Bits of the first and second byte of a header.
const (
	bitFinal    = 0x80
	bitsRSV     = 0x70
	bitsOpcode  = 0x0f
	bitControl  = 0x08 // of an opcode
	bitMasked   = 0x80
	bitsLength  = 0x7f
	length16    = 126 // two bytes of length follow
	length64    = 127 // eight bytes of length follow
	maxHeader   = 14  // with the longest length and a mask
	maskSize    = 4
	shortHeader = 2
)

// HeaderSize returns the size of the header of a frame that this broker sends, with n bytes of
// payload.
func HeaderSize(n int) int {
	switch {
	case n < length16:
		return shortHeader
	case n < 1<<16:
		return shortHeader + 2
	}
	return HeaderRoom
}

// PutHeader writes the header of a binary frame with n bytes of payload, at most MaxFrame, to the
// first HeaderSize(n) bytes of b. The frame is a message of its own.
func PutHeader(b []byte, n int) {
	b[0] = bitFinal | opBinary
	switch {
	case n < length16:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = length16
		binary.BigEndian.PutUint16(b[shortHeader:], uint16(n))
	default:
		b[1] = length64
		binary.BigEndian.PutUint64(b[shortHeader:], uint64(n))
	}
}

// appendControl appends a control frame.
func appendControl(dst []byte, opcode byte, payload []byte) []byte {
	dst = append(dst, bitFinal|opcode, byte(len(payload)))
	return append(dst, payload...)
}
