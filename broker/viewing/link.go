package viewing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// link is the questions of this broker to others, and theirs.
type link struct {
	serving chan struct{} // one for each question of others that is answered
	working chan struct{} // one for each of them whose answer is in memory

	mu      sync.Mutex
	last    uint64                 // number of the last question: of no process of this broker before
	open    map[uint64]chan []byte // questions of this broker
	parts   map[pieceKey]*assembly
	bytes   int                      // in parts
	sending map[string]chan struct{} // by broker: held while a message goes to it
}

// pieceKey is a question or an answer whose pieces come.
type pieceKey struct {
	from   string
	number uint64
	answer bool
}

type assembly struct {
	data  []byte
	next  int // index of the next piece
	count int
	began time.Time
}

func (l *link) init() {
	l.serving, l.working = make(chan struct{}, maxQuestions), make(chan struct{}, answersAtOnce)
	// An answer to a question of the process before may come yet, and must not be taken for another's.
	l.last = rand.Uint64()
	l.open, l.parts, l.sending = map[uint64]chan []byte{}, map[pieceKey]*assembly{}, map[string]chan struct{}{}
}

var (
	errUnreached = errors.New("the shard has no leader that this broker reaches")
	errSilent    = errors.New("the leader of the shard does not answer")
	errNotLed    = errors.New("the shard is not served there at the moment")
)

// begin opens a question.
func (l *link) begin() (number uint64, answered <-chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	ch := make(chan []byte, 1)
	l.open[l.last] = ch
	return l.last, ch
}

func (l *link) end(from string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, number)
	l.drop(pieceKey{from, number, true})
}

// drop forgets pieces. mu is held.
func (l *link) drop(k pieceKey) {
	if a := l.parts[k]; a != nil {
		l.bytes -= len(a.data)
		delete(l.parts, k)
	}
}

// take takes a piece, and returns the whole message once all have come.
func (l *link) take(p *piece, answers bool, data []byte) (whole []byte, ok bool) {
	if p.Count == 1 && p.Index == 0 {
		return data, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := pieceKey{p.From, p.Number, answers}
	if answers && l.open[p.Number] == nil {
		return nil, false // nobody waits for it
	}
	a := l.parts[k]
	if p.Index == 0 {
		l.drop(k)
		l.expire(time.Now().Add(-answerWithin))
		if len(l.parts) >= maxAssemblies {
			return nil, false // it is asked again
		}
		a = &assembly{count: p.Count, began: time.Now()}
		l.parts[k] = a
	}
	if a == nil || p.Index != a.next || p.Count != a.count || l.bytes+len(data) > maxAssembled {
		l.drop(k)
		return nil, false
	}
	a.data, a.next, l.bytes = append(a.data, data...), a.next+1, l.bytes+len(data)
	if a.next < a.count {
		return nil, false
	}
	whole = a.data
	l.drop(k)
	return whole, true
}

// expire forgets pieces of messages that began before a time: what is missing does not come any
// more. mu is held.
func (l *link) expire(before time.Time) {
	for k, a := range l.parts {
		if a.began.Before(before) {
			l.drop(k)
		}
	}
}

// answered hands an answer to whoever asked.
func (l *link) answered(number uint64, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.open[number] <- data:
	default: // late, or repeated
	}
}

// turn returns what is held while a message goes to a broker: its pieces come one behind the other,
// and one message at most is beyond the bound of a link.
func (l *link) turn(broker string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	turn := l.sending[broker]
	if turn == nil {
		turn = make(chan struct{}, 1)
		l.sending[broker] = turn
	}
	return turn
}

// send sends a message to a broker, in pieces. It reports whether there is a link.
func (s *Service[S]) send(ctx context.Context, broker, subject string, number uint64, data []byte) bool {
	turn := s.link.turn(broker)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return false
	}
	size := s.Payload - pieceHead
	p := piece{From: s.Self, Number: number, Count: max(1, (len(data)+size-1)/size)}
	for ; p.Index < p.Count; p.Index++ {
		n := min(len(data), size)
		linked, behind := s.Hub.Forward(broker, &protocol.Message{Subject: []byte(subject), Data: framed(&p, data[:n])})
		if !linked || ctx.Err() != nil {
			return false
		}
		data = data[n:]
		behind.Wait()
	}
	return true
}

// ask asks the leader of a shard.
func (s *Service[S]) ask(ctx context.Context, q *question) (*answer, error) {
	began := time.Now()
	shard, here, leader := s.Shard(q.Topic, q.Shard)
	if here {
		a := s.serve(ctx, shard, q)
		a.took = time.Since(began)
		return a, a.err()
	}
	if leader == "" || leader == s.Self {
		return nil, errUnreached
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	number, answered := s.link.begin()
	defer s.link.end(leader, number)
	if !s.send(ctx, leader, askSubject, number, framed(q, q.data)) {
		return nil, errUnreached
	}
	again := time.NewTicker(leaderAgain)
	defer again.Stop()
	for {
		select {
		case data := <-answered:
			a := &answer{took: time.Since(began)}
			var err error
			if a.data, err = unframed(data, a); err != nil {
				return nil, err
			}
			return a, a.err()
		case <-again.C: // a broker that died does not answer, and what it knew is told by the next one
			if _, here, now := s.Shard(q.Topic, q.Shard); here || now != leader {
				return nil, errUnreached
			}
		case <-ctx.Done():
			return nil, errSilent
		}
	}
}

func (a *answer) err() error {
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// Take implements publish.Taker.
func (s *Service[S]) Take(messages []protocol.Message, _ protocol.Memory, forwarded bool) (behind bool) {
	for i := range messages {
		m := &messages[i]
		if !forwarded { // a client published it
			continue
		}
		p := &piece{}
		answers := string(m.Subject) == answerSubject
		data, err := unframed(append([]byte(nil), m.Data...), p)
		if err != nil || p.Count < 1 || !answers && string(m.Subject) != askSubject {
			continue
		}
		whole, ok := s.link.take(p, answers, data)
		switch {
		case !ok:
		case answers:
			s.link.answered(p.Number, whole)
		default:
			s.answer(p.From, p.Number, whole)
		}
	}
	return false
}

// Wait returns at once, since Take never reports behind.
func (s *Service[S]) Wait() {}

// answer answers a question of another broker, on a goroutine of its own.
func (s *Service[S]) answer(from string, number uint64, data []byte) {
	select {
	case s.link.serving <- struct{}{}:
	default:
		return // it is asked again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		<-s.link.serving
		return
	}
	s.running.Go(func() {
		defer func() { <-s.link.serving }()
		ctx, cancel := context.WithTimeout(s.ctx, answerWithin)
		defer cancel()
		select {
		case s.link.working <- struct{}{}:
			defer func() { <-s.link.working }()
		case <-ctx.Done():
			return
		}
		q, a := &question{}, &answer{}
		var err error
		if q.data, err = unframed(data, q); err != nil {
			return
		}
		if shard, here, _ := s.Shard(q.Topic, q.Shard); here {
			a = s.serve(ctx, shard, q)
		} else {
			a.Error = errNotLed.Error()
		}
		s.send(ctx, from, answerSubject, number, framed(a, a.data))
	})
}

// serve answers a question about a shard that is led here.
func (s *Service[S]) serve(ctx context.Context, shard S, q *question) *answer {
	a, err := s.serveAny(ctx, shard, q)
	if err != nil {
		return &answer{Error: err.Error()}
	}
	return a
}

func (s *Service[S]) serveAny(ctx context.Context, shard S, q *question) (*answer, error) {
	if q.Kind == lastOf {
		lasts, err := lasts(ctx, shard, q.Subjects)
		return &answer{Lasts: lasts}, err
	}
	p := s.part(shard, q.View)
	if p == nil || p.of.Made != q.Made {
		return nil, fmt.Errorf("view %s is not kept there at the moment", q.View)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engine == nil {
		if p.err != nil {
			return nil, p.err
		}
		return nil, errReading
	}
	switch q.Kind {
	case handOver:
		b, err := p.engine.HandOver(q.from())
		a := &answer{data: b, Removed: p.removed, Lost: p.lost}
		if _, end := p.shard.Offsets(); end > p.next {
			a.Left = end - p.next
		}
		if p.paused != nil {
			a.Paused = p.paused.Error()
		}
		return a, err
	case present:
		b, err := p.engine.Present(q.from())
		return &answer{data: b}, err
	case takeAck:
		err := p.engine.Ack(q.data)
		if err == nil {
			p.changed = true
			p.resize(int64(p.engine.Size()))
			p.poke()
		}
		return &answer{}, err
	}
	return nil, fmt.Errorf("this version knows no question %q", q.Kind)
}

// lasts returns the last messages of subjects, as of a time after the call.
func lasts[S Shard](ctx context.Context, shard S, subjects []string) (all []lastMessage, err error) {
	done := make(chan error, 1)
	if !shard.Confirm(func(err error) { done <- err }) {
		select {
		case err := <-done:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	bytes := 0
	for _, name := range subjects {
		is, err := lastMessageOf(shard, name)
		if err != nil {
			return nil, err
		}
		all = append(all, is)
		if bytes += len(is.Data) + 32; bytes > lastsBytes || ctx.Err() != nil {
			break
		}
	}
	return all, ctx.Err()
}
