package sender

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Link is another broker as Topics know it: what it forwards comes from here, and its answers. One
// goroutine, the reader of the way to it, calls Take, Flush and Detach.
type Link struct {
	senders *Senders
	broker  string
	out     Carrier
	down    atomic.Bool

	arrivals []*Arrival // of one read
	spare    []*Arrival
	answers  publish.Replies
	done     Settled
}

// Arrival is messages that another broker forwarded to the leader of a shard, with consecutive
// numbers.
type Arrival struct {
	Shard  Shard
	Source uint64
	Round  uint32
	Epoch  uint64 // for which they were sent
	First  uint64 // number of the first one
	next   uint64
	// Floor is the oldest number that its source held when it sent the first message, and Below the
	// first number that it never sent before.
	Floor, Below uint64
	Messages     []protocol.Message
}

// Attach makes the way to a broker known. From now on messages for leaders there go that way, and
// unanswered ones go again.
func (fw *Senders) Attach(broker string, out Carrier) *Link {
	l := &Link{senders: fw, broker: broker, out: out}
	fw.mu.Lock()
	fw.links[broker] = l
	fw.mu.Unlock()
	fw.Poke()
	return l
}

// Detach forgets the way.
func (l *Link) Detach() {
	l.Flush()
	l.down.Store(true)
	fw := l.senders
	fw.mu.Lock()
	if fw.links[l.broker] == l {
		delete(fw.links, l.broker)
	}
	fw.mu.Unlock()
}

// Take takes a frame that came. Its memory stands until Flush. An error says that it is none.
func (l *Link) Take(frame []byte) error {
	h, rest, err := forward.ParseFrameHead(frame)
	if err != nil {
		return err
	}
	fw := l.senders
	shard := fw.config.Shard(h.Topic, h.Shard) // nil: deleted here, or not known yet
	switch h.Kind {
	case forward.FrameRun:
		r, err := forward.ParseRun(rest)
		if err != nil {
			return err
		}
		if shard == nil {
			l.sendHead(forward.FrameAgain, string(h.Topic), h.Shard, h.Source, h.Round)
			return nil
		}
		return l.gather(shard, &h, &r)
	case forward.FrameAnswers:
		if shard != nil {
			return l.answered(shard, &h, rest)
		}
	case forward.FrameAgain, forward.FrameReady:
		if shard != nil {
			if f := shard.Used().of(h.Source); f != nil {
				f.again(h.Round, h.Kind == forward.FrameReady)
			}
		}
	default:
		return forward.ErrFrame
	}
	return nil
}

// sendHead sends a frame that is only a head.
func (l *Link) sendHead(kind forward.FrameKind, topic string, shard int, source uint64, round uint32) {
	l.out.Carry(forward.AppendFrameHead(nil, kind, topic, shard, source, round))
}

// gather adds a message to the earlier ones of the same read, so that one read becomes few batches.
func (l *Link) gather(p Shard, h *forward.FrameHead, r *forward.Run) error {
	var to *Arrival
	for _, a := range l.arrivals {
		if a.Shard == p {
			to = a
		}
	}
	if to != nil && (to.Source != h.Source || to.Round != h.Round || to.Epoch != r.Epoch || to.next != r.First) {
		l.deliver()
		to = nil
	}
	if to == nil {
		if len(l.arrivals) == gathers {
			l.deliver()
		}
		if n := len(l.spare); n > 0 {
			to, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			to = &Arrival{}
		}
		// A later run may have a higher floor. Its source had settled messages in between, and what
		// the leader refused of them is what messages of the earlier runs may stand behind.
		*to = Arrival{Shard: p, Source: h.Source, Round: h.Round, Epoch: r.Epoch, First: r.First, next: r.First, Floor: r.Floor, Messages: to.Messages[:0]}
		l.arrivals = append(l.arrivals, to)
	}
	to.Below = r.Ever
	return to.read(r.Entries)
}

// read appends the messages of entries, which keep their memory.
func (a *Arrival) read(entries []byte) error {
	for len(entries) > 0 {
		m, rest, ok := forward.ParseEntry(entries)
		if !ok {
			return forward.ErrFrame
		}
		a.Messages = append(a.Messages, m)
		a.next++
		entries = rest
	}
	return nil
}

// deliver hands the messages that were gathered to the leaders.
func (l *Link) deliver() {
	for _, a := range l.arrivals {
		a.Shard.Arrive(l, a)
		clear(a.Messages)
		*a = Arrival{Messages: a.Messages[:0]}
		l.spare = append(l.spare, a)
	}
	clear(l.arrivals)
	l.arrivals = l.arrivals[:0]
}

// Flush follows the last Take of what one read brought.
func (l *Link) Flush() {
	l.deliver()
	if len(l.answers.Messages) > 0 {
		l.senders.config.Hub.Send(l.answers.Messages)
	}
	l.answers.Reset()
	l.done.Free()
}

// answered takes a leader's answers.
func (l *Link) answered(p Shard, h *forward.FrameHead, data []byte) error {
	f := p.Used().of(h.Source)
	if f == nil {
		return nil // of an earlier life
	}
	return f.Answered(h.Round, data, &l.answers, &l.done)
}
