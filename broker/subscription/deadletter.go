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
	"github.com/carillon-mq/carillon/broker/publish"
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
//  2. A refused one is sent again after a pause that doubles. While the Topic refuses, one at a
//     time is sent, first those that were never refused. So a few that it never takes don't stop
//     others.
//  3. One that is too large for the Topic is sent again without the payload of the record, and then
//     without its headers. Where acks remove, the record is kept then.
//  4. It is in memory only. Another leader finds the records again: by their number of deliveries,
//     or by a deadline that says that a client terminated them. It sends dead letters with the same
//     message id, so the Topic keeps one within its deduplication window.
//
// The Subscription's mu guards it, except for answers. Without a dead-letter Topic it is nil, and
// the methods that every Subscription calls do nothing then: counted, delivered, note, reconsider,
// sweep, due, take and describe.
type deadLetters struct {
	topic    string
	attempts map[uint64]attempts // of pending records, as far as this leader knows
	givenUp  map[uint64]*letter
	waiting  []uint64 // of givenUp, those to send that were never refused, in the order of offsets
	again    []uint64 // of givenUp, those to send that were refused, in the order of refusals
	sent     int      // of givenUp, those under way
	resent   int      // of sent, those that were refused before
	refused  int      // of givenUp, those that were refused
	bytes    int      // of sent
	most     int      // how many may be under way
	outgoing []outgoing
	expires  int64         // no letter under way times out before
	pause    time.Duration // after the last refusal; 0: the Topic stored one since
	retryAt  int64         // of Service.now: end of pause
	trouble  string        // of the last refusal
	stored   uint64        // since this broker leads
	ended    uint64        // records below are not pending any more; sweep forgets them

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
	leftOut    leftOut
	sentAt     int64 // of Service.now; 0: it waits
	size       int
	pause      time.Duration // after its last refusal; 0: it was not refused
	retryAt    int64         // of Service.now: end of pause
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
	l := &deadLetters{topic: topic, attempts: map[uint64]attempts{}, givenUp: map[uint64]*letter{}, most: deadLettersAtOnce, expires: math.MaxInt64, answers: &deadAnswers{}}
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
	a, known := l.attempts[offset]
	if !known {
		if len(l.attempts) > 2*c.pending.live+64 { // most were acknowledged since
			for old := range l.attempts {
				if c.pending.find(old) == nil {
					delete(l.attempts, old)
				}
			}
		}
		if d := c.pending.find(offset); d == nil || d.count == 1 {
			a.first = now
		}
	}
	a.last = now
	l.attempts[offset] = a
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
	a.answer = oneLine(text)
	s.dead.attempts[offset] = a
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

// next returns the offset of the dead letter to send next. ok is false if none is due.
func (l *deadLetters) next(now int64) (offset uint64, ok bool) {
	first := l.firstAgain()
	due := first != nil && now >= first.retryAt
	switch {
	case len(l.waiting) > 0 && (l.pause > 0 || l.resent > 0 || !due):
		offset, l.waiting = l.waiting[0], l.waiting[1:]
	case due:
		offset, l.again = l.again[0], l.again[1:]
	default:
		return 0, false
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	if len(l.again) == 0 {
		l.again = nil
	}
	return offset, true
}

// firstAgain returns the refused dead letter to send first, or nil.
func (l *deadLetters) firstAgain() *letter {
	for len(l.again) > 0 {
		if g := l.givenUp[l.again[0]]; g != nil {
			return g
		}
		l.again = l.again[1:] // acknowledged meanwhile
	}
	return nil
}

// sending notes that a dead letter is under way.
func (l *deadLetters) sending(g *letter, size int, now int64) {
	g.sentAt, g.size = max(now, 1), size
	l.sent++
	l.bytes += size
	if g.pause > 0 {
		l.resent++
	}
	l.expires = min(l.expires, now+int64(deadLetterTimeout))
}

// landed notes that a dead letter is not under way any more.
func (l *deadLetters) landed(g *letter) {
	if g.sentAt == 0 {
		return
	}
	g.sentAt = 0
	l.sent--
	l.bytes -= g.size
	if g.pause > 0 {
		l.resent--
	}
}

// forget drops what is known of a record.
func (l *deadLetters) forget(offset uint64) {
	if g := l.givenUp[offset]; g != nil {
		l.landed(g)
		if g.pause > 0 {
			l.refused--
		}
		if l.refused == 0 {
			l.trouble, l.pause, l.retryAt = "", 0, 0
		}
	}
	delete(l.givenUp, offset)
	delete(l.attempts, offset)
}

// note takes notice of an op that ends the need of records otherwise than by an ack of each.
func (l *deadLetters) note(o op) {
	if l == nil {
		return
	}
	switch o.kind {
	case opTerm:
		l.forget(o.offset)
	case opForget:
		l.ended = max(l.ended, o.offset)
	case opAckAll:
		l.ended = max(l.ended, o.offset+1)
	}
}

// sweep forgets the records that are not pending any more.
func (l *deadLetters) sweep() {
	if l == nil || l.ended == 0 {
		return
	}
	for offset := range l.givenUp {
		if offset < l.ended {
			l.forget(offset)
		}
	}
	l.ended = 0
}

// takeBack drops the dead letter of a record that is to be delivered again. What is known of its
// deliveries stays.
func (l *deadLetters) takeBack(offset uint64) {
	a, known := l.attempts[offset]
	l.forget(offset)
	if known {
		l.attempts[offset] = a
	}
}

// reconsider takes back the dead letters of records that may be delivered again, after the maximum
// of deliveries was changed. Others stay given up. It follows cursor.setMaxDeliver.
func (l *deadLetters) reconsider(c *cursor) {
	if l == nil || len(l.givenUp) == 0 {
		return
	}
	for offset := range l.givenUp {
		if d := c.pending.find(offset); d != nil && (d.isTerminated() || c.isExhausted(d)) {
			d.queued = true // neither delivered again nor found by expire
		} else {
			l.takeBack(offset)
		}
	}
	stale := func(offset uint64) bool { return l.givenUp[offset] == nil }
	l.waiting, l.again = slices.DeleteFunc(l.waiting, stale), slices.DeleteFunc(l.again, stale)
}

// refuse notes that the Topic did not store a dead letter.
func (l *deadLetters) refuse(offset uint64, g *letter, why error, now int64) {
	longer := func(pause time.Duration) time.Duration { return min(max(2*pause, deadLetterFirst), deadLetterLast) }
	until := func(pause time.Duration) int64 { return now + int64(pause) - rand.Int64N(int64(pause)/4) }
	l.landed(g)
	if g.pause == 0 {
		l.refused++
	}
	g.pause = longer(g.pause)
	g.retryAt = until(g.pause)
	l.again = append(l.again, offset)
	l.most = 1
	if now >= l.retryAt { // of several that were under way the first counts
		l.pause = longer(l.pause)
		l.retryAt = until(l.pause)
	}
	l.trouble = fmt.Sprintf("dead letters wait, since topic %s does not store them: %v", l.topic, why)
}

// sendDead judges the answers of the dead-letter Topic and prepares the dead letters that may be
// sent. mu is held.
func (s *Subscription) sendDead(w *worker, now int64) error {
	l := s.dead
	if l == nil {
		return nil
	}
	l.sweep()
	s.takeDeadAnswers(now)
	if now < l.retryAt {
		return nil
	}
	defer func() {
		s.releaseOther(w)
		if s.waiting.n == 0 && s.push == nil {
			s.cursor.shrink()
		}
	}()
	for l.sent < l.most && l.bytes < deadLetterBytes {
		offset, ok := l.next(now)
		if !ok {
			return nil
		}
		d, g := s.cursor.pending.find(offset), l.givenUp[offset]
		if d == nil || g == nil { // acknowledged meanwhile, or deleted
			l.forget(offset)
			continue
		}
		rec, err := s.reread(w, offset, false)
		if err != nil {
			l.queue(offset)
			return err
		}
		if rec == nil { // the log lacks it now
			l.sweep()
			continue
		}
		of := deadLetterOf{
			topic: l.topic, from: s.store.shard, subscription: s.id, attempts: uint64(d.count), terminated: g.terminated, leftOut: g.leftOut,
			known: l.attempts[offset], at: func(t int64) time.Time { return s.service.at(t) },
		}
		m := of.message(rec)
		l.sending(g, len(m.Data)+len(m.Subject), now)
		l.outgoing = append(l.outgoing, outgoing{l.topic, offset, g.sentAt, m, l.answers})
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
		case errors.Is(a.err, publish.ErrTooLarge) && g.leftOut < payloadAndHeaders:
			g.leftOut++
			l.landed(g)
			l.queue(a.offset)
		case a.err == nil && !s.canEnd(g):
			l.refuse(a.offset, g, errKeptFull, now)
		case a.err == nil:
			left := g.leftOut
			l.forget(a.offset)
			l.pause, l.retryAt, l.most = 0, 0, min(2*l.most, deadLettersAtOnce)
			if s.cursor.pending.find(a.offset) == nil {
				continue // a client acknowledged it meanwhile
			}
			if left > nothing && s.store.releasing.Load() {
				s.change(op{kind: opKeep, offset: a.offset})
			} else {
				s.change(op{kind: opAck, offset: a.offset, count: 1})
			}
			l.stored++
			s.service.deadLettered.Add(1)
		default:
			if l.trouble == "" {
				s.service.config.Logger.Warn("dead letters are not stored; trying again",
					"topic", s.store.shard.name, "subscription", s.id.name, "into", l.topic, "error", a.err)
			}
			l.refuse(a.offset, g, a.err, now)
		}
	}
}

var errKeptFull = errors.New("it lacks payloads, whose messages the stream would have to keep, and it keeps too many: acknowledge some")

// canEnd reports whether the record of a stored dead letter may be dropped or kept. mu is held.
func (s *Subscription) canEnd(g *letter) bool {
	if g.leftOut == nothing || len(s.cursor.kept) < mostKept {
		return true
	}
	s.forgetKept()
	return len(s.cursor.kept) < mostKept
}

// due returns when dead letters have to be looked at without a wake.
func (l *deadLetters) due(now int64) int64 {
	if l == nil {
		return math.MaxInt64
	}
	at := l.expires
	if len(l.waiting) > 0 && l.retryAt > now {
		at = min(at, l.retryAt)
	}
	if g := l.firstAgain(); g != nil && l.sent < l.most && l.bytes < deadLetterBytes {
		at = min(at, max(l.retryAt, g.retryAt))
	}
	return at
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
	l.sweep()
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
