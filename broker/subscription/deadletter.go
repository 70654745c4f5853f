package subscription

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// DeadLetters stores dead letters in Topics, by the way that all published messages go.
type DeadLetters interface {
	// Store publishes a message into the Topic of that name. done is called once, possibly before
	// Store returns: with nil when the message is as durable as the Topic requires, or with the
	// reason why it is not stored or not known to be. Store copies the message and never blocks.
	Store(topic string, m *protocol.Message, done func(error))
}

// deadLetters are the records of a Subscription that were given up and are not stored in the
// dead-letter Topic yet. They are pending meanwhile, so the ack floor stays below them, and they
// count towards the maximum of pending records.
//
//  1. A record is dropped from the cursor when its dead letter is stored, or when a client
//     acknowledges it before.
//  2. A refused one is sent again after a pause that doubles. While the Topic refuses, one at a time
//     is sent.
//  3. It is in memory only. Another leader finds the records again: by their number of deliveries,
//     or by a deadline that says that a client terminated them. It sends dead letters with the same
//     message id, so the Topic keeps one within its deduplication window.
//
// The Subscription's mu guards it, except for answers. A nil *deadLetters does nothing.
type deadLetters struct {
	topic    string
	attempts map[uint64]*attempts // of pending records, as far as this leader knows
	givenUp  map[uint64]*letter
	waiting  []uint64 // of givenUp, those to send, in the order of offsets
	sent     int      // of givenUp, those under way
	bytes    int      // of sent
	outgoing []outgoing
	expires  int64 // no letter under way times out before
	pause    time.Duration
	retryAt  int64 // of Service.now
	trouble  string
	stored   uint64 // since this broker leads

	answers *deadAnswers
}

// attempts is what a leader remembers of the deliveries of a pending record.
type attempts struct {
	first, last int64 // of Service.now; 0: by a former leader
	answer      string
}

// letter is one record that was given up.
type letter struct {
	terminated bool
	sentAt     int64 // of Service.now; 0: it waits
	size       int
}

// outgoing is a dead letter to publish when no lock is held.
type outgoing struct {
	topic   string
	offset  uint64
	sentAt  int64
	message protocol.Message
	to      *deadAnswers
}

// deadAnswers are answers that no step has taken yet. Its lock is a leaf.
type deadAnswers struct {
	mu   sync.Mutex
	list []deadAnswer
}

type deadAnswer struct {
	offset uint64
	sentAt int64
	err    error
}

// newDeadLetters returns the dead letters for a Topic, with what is known of the former ones if
// they went to the same one. Without a Topic it returns nil.
func newDeadLetters(was *deadLetters, topic string) *deadLetters {
	switch {
	case topic == "":
		return nil
	case was != nil && was.topic == topic:
		return was
	}
	l := &deadLetters{topic: topic, attempts: map[uint64]*attempts{}, givenUp: map[uint64]*letter{}, expires: math.MaxInt64, answers: &deadAnswers{}}
	if was != nil {
		l.attempts = was.attempts
	}
	return l.counted(was)
}

// counted takes over the counters of former dead letters.
func (l *deadLetters) counted(was *deadLetters) *deadLetters {
	if l != nil && was != nil {
		l.stored = was.stored
	}
	return l
}

// refusesDeadLetters returns why records can't go where the spec says, or "".
func (k *cursorStore) refusesDeadLetters(spec *coordination.SubscriptionSpec) string {
	own := k.shard.name
	if t := k.shard.topic; t != nil {
		own = t.Topic().Name()
	}
	switch {
	case spec.DeadLetter == "":
		return ""
	case spec.DeadLetter == own:
		return fmt.Sprintf("its dead letters would go into topic %s, which it reads; name another topic", own)
	case k.service.config.DeadLetters == nil:
		return "this broker can't store dead letters; leave deadLetter out"
	}
	return ""
}

// delivered notes a delivery of a record.
func (l *deadLetters) delivered(c *cursor, offset uint64, now int64) {
	if l == nil {
		return
	}
	a := l.attempts[offset]
	if a == nil {
		if len(l.attempts) > 2*c.pending.live+64 { // most were acknowledged since
			for old := range l.attempts {
				if c.pending.find(old) == nil {
					delete(l.attempts, old)
				}
			}
		}
		a = &attempts{}
		if d := c.pending.find(offset); d == nil || d.count == 1 {
			a.first = now
		}
		l.attempts[offset] = a
	}
	a.last = now
}

// ExplainAck notes the text of a client's answer for the dead letter of a pending record. It is
// called before Ack. Without a dead-letter Topic it does nothing.
func (s *Subscription) ExplainAck(offset uint64, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead == nil || s.cursor.pending.find(offset) == nil {
		return
	}
	a := s.dead.attempts[offset]
	if a == nil {
		a = &attempts{}
		s.dead.attempts[offset] = a
	}
	a.answer = oneLine(text)
}

// terminate gives a pending record up at a client's request. mu is held.
func (s *Subscription) terminate(d *delivery) {
	if !d.isTerminated() {
		s.change(op{kind: opProgress, offset: d.offset, deadline: terminated})
	}
	d.queued = true // neither delivered again nor found by expire
	s.giveUp(d)
}

// giveUp queues the dead letter of a pending record. mu is held.
func (s *Subscription) giveUp(d *delivery) {
	l := s.dead
	if g := l.givenUp[d.offset]; g != nil {
		g.terminated = g.terminated || d.isTerminated()
		return
	}
	l.givenUp[d.offset] = &letter{terminated: d.isTerminated()}
	l.queue(d.offset)
	if sink, ok := s.sink.(ExhaustedSink); ok && !d.isTerminated() {
		sink.Exhausted(d.offset, uint64(d.count))
	}
}

func (l *deadLetters) queue(offset uint64) {
	if i, found := slices.BinarySearch(l.waiting, offset); !found {
		l.waiting = slices.Insert(l.waiting, i, offset)
	}
}

// forget drops what is known of a record.
func (l *deadLetters) forget(offset uint64) {
	if g := l.givenUp[offset]; g != nil && g.sentAt != 0 {
		l.sent--
		l.bytes -= g.size
	}
	delete(l.givenUp, offset)
	delete(l.attempts, offset)
}

// sendDead judges the answers of the dead-letter Topic and prepares the dead letters that may be
// sent. mu is held.
func (s *Subscription) sendDead(w *worker, now int64) error {
	l := s.dead
	if l == nil {
		return nil
	}
	s.takeDeadAnswers(now)
	if len(l.waiting) == 0 || now < l.retryAt {
		return nil
	}
	most := deadLettersAtOnce
	if l.trouble != "" {
		most = 1
	}
	defer s.releaseBuffers(w)
	for len(l.waiting) > 0 && l.sent < most && l.bytes < deadLetterBytes {
		offset := l.waiting[0]
		d, g := s.cursor.pending.find(offset), l.givenUp[offset]
		if d == nil || g == nil || !d.queued { // acknowledged meanwhile, deleted, or extended
			l.waiting = l.waiting[1:]
			l.forget(offset)
			continue
		}
		rec, err := s.reread(w, offset)
		if err != nil {
			return err
		}
		l.waiting = l.waiting[1:]
		if rec == nil { // the log lacks it now
			l.forget(offset)
			continue
		}
		of := deadLetterOf{
			topic: l.topic, from: s.store.shard, subscription: s.id, attempts: uint64(d.count), terminated: g.terminated,
			at: func(t int64) time.Time { return s.service.at(t) },
		}
		if a := l.attempts[offset]; a != nil {
			of.known = *a
		}
		m := of.message(rec)
		g.sentAt, g.size = max(now, 1), len(m.Data)+len(m.Subject)
		l.sent++
		l.bytes += g.size
		l.expires = min(l.expires, now+int64(deadLetterTimeout))
		l.outgoing = append(l.outgoing, outgoing{l.topic, offset, g.sentAt, m, l.answers})
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return nil
}

var errNoAnswer = errors.New("its leader did not answer in time")

// takeDeadAnswers applies the answers of the dead-letter Topic. mu is held.
func (s *Subscription) takeDeadAnswers(now int64) {
	l := s.dead
	l.answers.mu.Lock()
	answers := l.answers.list
	l.answers.list = nil
	l.answers.mu.Unlock()
	if now >= l.expires {
		l.expires = math.MaxInt64
		for offset, g := range l.givenUp {
			switch end := g.sentAt + int64(deadLetterTimeout); {
			case g.sentAt == 0:
			case now >= end:
				answers = append(answers, deadAnswer{offset, g.sentAt, errNoAnswer})
			default:
				l.expires = min(l.expires, end)
			}
		}
	}
	for _, a := range answers {
		g := l.givenUp[a.offset]
		switch {
		case g == nil || g.sentAt != a.sentAt:
		case a.err == nil:
			g.sentAt = 0
			l.sent--
			l.bytes -= g.size
			l.forget(a.offset)
			l.trouble, l.pause, l.retryAt = "", 0, 0
			if s.cursor.pending.find(a.offset) == nil {
				continue // a client acknowledged it meanwhile
			}
			s.change(op{kind: opTerm, offset: a.offset})
			l.stored++
			s.service.deadLettered.Add(1)
		default:
			g.sentAt = 0
			l.sent--
			l.bytes -= g.size
			l.queue(a.offset)
			if l.trouble == "" {
				s.service.config.Logger.Warn("dead letters are not stored; trying again",
					"topic", s.store.shard.name, "subscription", s.id.name, "into", l.topic, "error", a.err)
			}
			l.trouble = fmt.Sprintf("dead letters wait, since topic %s does not store them: %v", l.topic, a.err)
			if now >= l.retryAt {
				l.pause = min(max(2*l.pause, deadLetterFirst), deadLetterLast)
				l.retryAt = now + int64(l.pause) - rand.Int64N(int64(l.pause)/4)
			}
		}
	}
}

// due returns when dead letters have to be looked at without a wake.
func (l *deadLetters) due(now int64) int64 {
	switch {
	case l == nil:
		return math.MaxInt64
	case len(l.waiting) > 0 && l.retryAt > now:
		return min(l.retryAt, l.expires)
	}
	return l.expires
}

// take returns the dead letters to publish now.
func (l *deadLetters) take() []outgoing {
	if l == nil {
		return nil
	}
	out := l.outgoing
	l.outgoing = nil
	return out
}

// describe adds what is known of dead letters.
func (l *deadLetters) describe(i *Info) {
	if l != nil {
		i.DeadLettered, i.GivenUp, i.DeadLetterTrouble = l.stored, len(l.givenUp), l.trouble
	}
}

// publishDead publishes dead letters. Their answers wake the Subscription. No lock is held.
func (k *cursorStore) publishDead(s *Subscription, letters []outgoing) {
	for i := range letters {
		out := &letters[i]
		offset, sentAt, to := out.offset, out.sentAt, out.to
		k.service.config.DeadLetters.Store(out.topic, &out.message, func(err error) {
			to.mu.Lock()
			to.list = append(to.list, deadAnswer{offset, sentAt, err})
			to.mu.Unlock()
			k.service.tasks.wake(s)
		})
	}
}
