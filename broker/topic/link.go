package topic

import (
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Link is another broker as Topics know it: what it forwards comes from here, and its answers. One goroutine, the reader of the
// way to it, calls Take, Flush and Detach.
type Link struct {
	service *Service
	broker  string
	out     Carrier
	down    atomic.Bool

	arrivals []*arrival // of one read
	spare    []*arrival
	answers  publish.Replies
	done     settled
}

// arrival is messages that another broker forwarded to the leader of a shard, with consecutive numbers.
type arrival struct {
	shard                            *Shard
	source                           uint64
	round                            uint32
	epoch, first, next, floor, below uint64
	messages                         []protocol.Message
}

// Attach makes the way to a broker known. From now on messages for leaders there go that way, and
// unanswered ones go again.
func (s *Service) Attach(broker string, out Carrier) *Link {
	l := &Link{service: s, broker: broker, out: out}
	fw := &s.forwards
	fw.mu.Lock()
	fw.links[broker] = l
	fw.mu.Unlock()
	fw.poke()
	return l
}

// Detach forgets the way.
func (l *Link) Detach() {
	l.Flush()
	l.down.Store(true)
	fw := &l.service.forwards
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
	s := l.service
	s.mu.RLock()
	t := s.byID[string(h.Topic)]
	s.mu.RUnlock()
	if t == nil || h.Shard >= len(t.shards) {
		t = nil // deleted here, or not known yet
	}
	switch h.Kind {
	case forward.FrameRun:
		r, err := forward.ParseRun(rest)
		if err != nil {
			return err
		}
		if t == nil {
			l.tell(forward.FrameAgain, string(h.Topic), h.Shard, h.Source, h.Round)
			return nil
		}
		return l.gather(t.shards[h.Shard], &h, &r)
	case forward.FrameAnswers:
		if t != nil {
			return l.answered(t.shards[h.Shard], &h, rest)
		}
	case forward.FrameAgain, forward.FrameReady:
		if t != nil && h.Source == s.forwards.source {
			if f := t.shards[h.Shard].out.Load(); f != nil {
				f.again(h.Round, h.Kind == forward.FrameReady)
			}
		}
	default:
		return forward.ErrFrame
	}
	return nil
}

// tell sends a frame that is only a head.
func (l *Link) tell(kind forward.FrameKind, topic string, shard int, source uint64, round uint32) {
	l.out.Carry(forward.AppendFrameHead(nil, kind, topic, shard, source, round))
}

// gather puts messages behind those that came before, so that what one read brought becomes few batches.
func (l *Link) gather(p *Shard, h *forward.FrameHead, r *forward.Run) error {
	var to *arrival
	for _, a := range l.arrivals {
		if a.shard == p {
			to = a
		}
	}
	if to != nil && (to.source != h.Source || to.round != h.Round || to.epoch != r.Epoch || to.next != r.First) {
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
			to = &arrival{}
		}
		*to = arrival{shard: p, source: h.Source, round: h.Round, epoch: r.Epoch, first: r.First, next: r.First, messages: to.messages[:0]}
		l.arrivals = append(l.arrivals, to)
	}
	to.floor, to.below = r.Floor, r.Ever
	return to.read(r.Letters)
}

// read appends the messages of letters, which keep their memory.
func (a *arrival) read(letters []byte) error {
	for len(letters) > 0 {
		m, rest, ok := forward.ParseLetter(letters)
		if !ok {
			return forward.ErrFrame
		}
		a.messages = append(a.messages, m)
		a.next++
		letters = rest
	}
	return nil
}

// deliver hands the messages that were gathered to the leaders.
func (l *Link) deliver() {
	for _, a := range l.arrivals {
		a.shard.arrive(l, a)
		clear(a.messages)
		*a = arrival{messages: a.messages[:0]}
		l.spare = append(l.spare, a)
	}
	clear(l.arrivals)
	l.arrivals = l.arrivals[:0]
}

// Flush follows the last Take of what one read brought.
func (l *Link) Flush() {
	l.deliver()
	if len(l.answers.Messages) > 0 {
		l.service.config.Hub.Send(l.answers.Messages)
	}
	l.answers.Reset()
	l.done.free()
}

// answered takes a leader's answers.
func (l *Link) answered(p *Shard, h *forward.FrameHead, data []byte) error {
	f := p.out.Load()
	if f == nil || h.Source != l.service.forwards.source {
		return nil // of an earlier life
	}
	return f.answered(h.Round, data, &l.answers, &l.done)
}
