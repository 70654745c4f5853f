package scheduling

import (
	"bytes"
	"crypto/rand"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Firing is what the stream's own message says: the schedule at an offset is due, and next at a
// time, or never again (0). The message has an inner message behind its header, which is what is
// kept: a header of Inner bytes and a payload.
type Firing struct {
	Offset    uint64
	Due, Next int64
	Inner     int
}

// Header is the header of a Firing. Its value begins with a word that only this process knows, so
// no client can say the same.
const Header = "Carillon-Fires"

var word = rand.Text()

// ParseFiring parses the value of Header. ok is false for that of another process, or of a client.
func ParseFiring(value []byte) (f Firing, ok bool) {
	part := bytes.Fields(value)
	if len(part) != 5 || string(part[0]) != word {
		return f, false
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(string(part[i+1]), 10, 64); err != nil {
			return f, false
		}
	}
	return Firing{Offset: uint64(n[0]), Due: n[1], Next: n[2], Inner: int(n[3])}, true
}

// Result returns the message of a Firing for the schedule that stands on a subject: it asks that
// the schedule is still the last message there. header and payload are those of the message that is
// published again.
func Result(f Firing, q *Request, name, header, payload []byte) protocol.Message {
	var inner []byte
	inner = append(inner, "NATS/1.0\r\n"...)
	for key, value := range protocol.Header(header).All() {
		if !dropped(key) {
			inner = append(append(append(append(inner, key...), ": "...), value...), "\r\n"...)
		}
	}
	add := func(to []byte, key string, value []byte) []byte {
		return append(append(append(append(to, key...), ": "...), value...), "\r\n"...)
	}
	inner = add(inner, "Nats-Scheduler", name)
	next := []byte("purge")
	if f.Next > 0 {
		next = time.Unix(0, f.Next).In(q.location()).AppendFormat(nil, time.RFC3339Nano)
	}
	inner = add(inner, "Nats-Schedule-Next", next)
	var asks []byte // by the inner message
	if len(q.TTL) > 0 {
		asks = add(asks, "Nats-TTL", q.TTL)
	}
	if len(q.Rollup) > 0 {
		asks = add(asks, "Nats-Rollup", q.Rollup)
	}
	inner = append(append(inner, asks...), "\r\n"...)
	f.Inner = len(inner)
	outer := append([]byte("NATS/1.0\r\n"), asks...)
	outer = add(outer, "Nats-Expected-Last-Subject-Sequence", strconv.AppendUint(nil, f.Offset, 10))
	outer = add(outer, "Nats-Expected-Last-Subject-Sequence-Subject", name)
	value := append([]byte(word), ' ')
	value = append(strconv.AppendUint(value, f.Offset, 10), ' ')
	value = append(strconv.AppendInt(value, f.Due, 10), ' ')
	value = append(strconv.AppendInt(value, f.Next, 10), ' ')
	outer = append(add(outer, Header, strconv.AppendInt(value, int64(f.Inner), 10)), "\r\n"...)
	m := protocol.Message{Subject: bytes.Clone(q.Target), Header: len(outer)}
	m.Data = append(append(outer, inner...), payload...)
	return m
}

// location returns in which time zone the next time is written.
func (q *Request) location() *time.Location {
	if zone := zoneOf(string(q.Zone)); zone != nil {
		return zone
	}
	return time.UTC
}

// dropped reports whether a header is not published again: what is about the schedule itself, and
// what could keep the message out.
func dropped(key []byte) bool {
	switch string(key) {
	case "Nats-Msg-Id", "Nats-TTL", "Nats-Rollup", Header:
		return true
	}
	return bytes.HasPrefix(key, []byte("Nats-Schedule")) || bytes.HasPrefix(key, []byte("Nats-Expected-"))
}
