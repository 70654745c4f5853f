package testutil

import (
	"math"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// LentMessages is memory of messages that is overwritten when the last reference is released, so
// that what uses it later shows.
type LentMessages struct {
	refs atomic.Int32
	buf  []byte
	size int
}

// LendMessages copies messages into memory of their own and has them alias it, as a connection
// does. A single message fills it, like a large one; several share it, like small ones. The caller
// has the first reference.
func LendMessages(messages []protocol.Message) *LentMessages {
	l := &LentMessages{size: math.MaxInt}
	total := 0
	for i := range messages {
		m := &messages[i]
		total += len(m.To) + len(m.Subject) + len(m.Reply) + len(m.Data)
	}
	l.buf = make([]byte, 0, total)
	for i := range messages {
		m := &messages[i]
		for _, part := range []*[]byte{&m.To, &m.Subject, &m.Reply, &m.Data} {
			if *part == nil {
				continue
			}
			at := len(l.buf)
			l.buf = append(l.buf, *part...)
			*part = l.buf[at:len(l.buf):len(l.buf)]
		}
	}
	if len(messages) == 1 {
		l.size = len(messages[0].Data)
	}
	l.refs.Store(1)
	return l
}

// Retain implements protocol.Memory.
func (l *LentMessages) Retain() { l.refs.Add(1) }

// Release implements protocol.Memory.
func (l *LentMessages) Release() {
	switch n := l.refs.Add(-1); {
	case n < 0:
		panic("memory of messages was released too often")
	case n == 0:
		for i := range l.buf {
			l.buf[i] = '#'
		}
	}
}

// Size implements protocol.Memory.
func (l *LentMessages) Size() int { return l.size }

// Take passes messages of a connection to a Taker, as the hub does. client is the number of the
// connection; 0: another broker forwarded them. A Taker that has to know the client adds to behind,
// a work.Behind, which is no import here so that its own tests can import this package.
func Take[Behind any](t interface {
	Take(messages []protocol.Message, memory protocol.Memory, forwarded bool) (behind bool)
}, client uint64, messages []protocol.Message, memory protocol.Memory, behind *Behind) (all bool) {
	of, ok := t.(interface {
		TakeOf(client uint64, messages []protocol.Message, memory protocol.Memory, behind *Behind)
	})
	if ok && client > 0 {
		of.TakeOf(client, messages, memory, behind)
		return false
	}
	return t.Take(messages, memory, client == 0)
}
