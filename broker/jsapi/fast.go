package jsapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// fastSuffix is the end of the reply subject of a message of a fast batch:
//
//	<prefix>.<batch id>.<flow>.<gap mode>.<sequence>.<operation>.$FI
const fastSuffix = ".$FI"

// defaultFlow is the flow of a batch that names none that is valid, as in nats-server.
const defaultFlow = 10

// fastOps are the operations by their number: start, append, commit, commit behind the end, ping.
var fastOps = [...]publish.FastOp{publish.FastMessage, publish.FastMessage, publish.FastCommit, publish.FastEnd, publish.FastPing}

const (
	fastStart = iota
	fastAppend
)

// IsFast reports whether a message with a reply subject is one of a fast batch, or a mistaken one.
func IsFast(reply []byte) bool {
	n := len(reply) - len(fastSuffix)
	return n >= 0 && string(reply[n:]) == fastSuffix
}

// ParseFast parses the reply subject and the header of a message of a fast batch. ok is false if it
// belongs to none. What it points to is in reply.
func ParseFast(reply []byte, header protocol.Header) (p publish.FastPart, ok bool) {
	if !IsFast(reply) {
		return p, false
	}
	rest, valid := reply[:len(reply)-len(fastSuffix)], true
	last := func() (token []byte) {
		at := bytes.LastIndexByte(rest, '.')
		if at < 0 {
			valid = false
			return nil
		}
		rest, token = rest[:at], rest[at+1:]
		return token
	}
	op, isOp := ParseUint(last())
	sequence, isSequence := ParseUint(last())
	gaps := string(last())
	flow, isFlow := ParseUint(last())
	p.Batch = last()
	if !isFlow || flow == 0 {
		flow = defaultFlow
	}
	p.Sequence, p.Flow, p.GapOK = sequence, uint16(min(flow, math.MaxUint16)), gaps == "ok"
	switch {
	case !valid, !isOp, op >= uint64(len(fastOps)),
		!isSequence, sequence == 0, sequence == math.MaxUint64,
		gaps != "ok" && gaps != "fail",
		op == fastStart && sequence != 1, op == fastAppend && sequence == 1:
		p.Invalid = true
		return p, true
	}
	p.Op = fastOps[op]
	p.Invalid = p.Op == publish.FastEnd && sequence == 1
	if value, found := header.Get(headerRequiredLevel); found && len(value) > 0 {
		p.Unserved, p.Strip = !LevelServed(value), headerRequiredLevel
	}
	return p, true
}

// AppendFlowAck appends the answer to a message of a fast batch that all up to a sequence are
// settled, and after how many more the next such answer comes.
func AppendFlowAck(dst []byte, sequence uint64, every uint16) []byte {
	dst = strconv.AppendUint(append(dst, `{"type":"ack","seq":`...), sequence, 10)
	dst = strconv.AppendUint(append(dst, `,"msgs":`...), uint64(every), 10)
	return append(dst, '}')
}

// AppendFlowGap appends the answer to a message of a fast batch that has another sequence than the
// expected one.
func AppendFlowGap(dst []byte, expected, came uint64) []byte {
	dst = strconv.AppendUint(append(dst, `{"type":"gap","last_seq":`...), expected, 10)
	dst = strconv.AppendUint(append(dst, `,"seq":`...), came, 10)
	return append(dst, '}')
}

// AppendFlowError appends the answer to a message of a fast batch that is not kept. refusal is what
// AppendPubRefusal has written for it.
func AppendFlowError(dst []byte, sequence uint64, refusal []byte) []byte {
	var is struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(refusal, &is) != nil || len(is.Error) == 0 {
		is.Error = json.RawMessage("null")
	}
	dst = strconv.AppendUint(append(dst, `{"type":"err","seq":`...), sequence, 10)
	dst = append(append(dst, `,"error":`...), is.Error...)
	return append(dst, '}')
}
