package viewing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// link is the questions of this broker to others, and theirs.
type link struct {
	serving chan struct{} // one for each question of others that is answered
	working chan struct{} // one for each of them whose answer is in memory

	budget *budget

	mu      sync.Mutex
	last    uint64             // number of the last question: of no process of this broker before
	open    map[uint64]*asking // questions of this broker
	parts   map[pieceKey]*assembly
	bytes   int64                    // of the budget: what parts will have, and what is booked
	sending map[string]chan struct{} // by broker: held while a message goes to it
}

// pieceKey is a question or an answer whose pieces come.
type pieceKey struct {
	from   string
	number uint64
	answer bool
}

// asking is a question of this broker whose answer has not come.
type asking struct {
	answered chan reply
	booked   int64 // bytes that the answer may have
}

// reply is an answer, or how large the one was that there was no room for.
type reply struct {
	data    []byte
	refused int64
}

type assembly struct {
	size  int64 // no less than it will have
	data  []byte
	next  int // index of the next piece
	count int
	began time.Time
}

func (l *link) init(of *budget) {
	l.budget = of
	l.serving, l.working = make(chan struct{}, maxQuestions), make(chan struct{}, answersAtOnce)
	// An answer to a question of the process before may come yet, and must not be taken for another's.
	l.last = rand.Uint64()
	l.open, l.parts, l.sending = map[uint64]*asking{}, map[pieceKey]*assembly{}, map[string]chan struct{}{}
}

var (
	errUnreached = errors.New("the shard has no leader that this broker reaches")
	errSilent    = errors.New("the leader of the shard does not answer")
	errNotLed    = errors.New("the shard is not served there at the moment")
)

// begin opens a question. booked is what book has taken for its answer.
func (l *link) begin(booked int64) (number uint64, answered <-chan reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	is := &asking{make(chan reply, 1), booked}
	l.open[l.last] = is
	return l.last, is.answered
}

// book takes memory for an answer as soon as there is some. It reports false when ctx ends.
func (l *link) book(ctx context.Context, size int64) bool {
	for {
		l.mu.Lock()
		l.expire(time.Now().Add(-answerWithin))
		fits := l.reserve(0, size)
		l.mu.Unlock()
		if fits {
			return true
		}
		if !work.Sleep(ctx, bookAgain) {
			return false
		}
	}
}

// reserve takes more memory for a message that has some. One that is alone is not refused. mu is
// held.
func (l *link) reserve(has, more int64) bool {
	if more > 0 && l.bytes > has {
		if !l.budget.add(more, l.budget.lendable()) {
			return false
		}
	} else {
		l.budget.bytes.Add(more)
	}
	l.bytes += more
	return true
}

// release gives back what was reserved. mu is held.
func (l *link) release(size int64) {
	l.bytes -= size
	l.budget.give(size)
}

// admits takes memory for a message whose first piece has come. For an answer that there is no room
// for, who asked learns its size. mu is held.
func (l *link) admits(k pieceKey, size int64) bool {
	is := &asking{}
	if k.answer {
		is = l.open[k.number]
	}
	if len(l.parts) >= maxAssemblies || size > maxAssembled || !l.reserve(is.booked, size-is.booked) {
		select {
		case is.answered <- reply{refused: size}:
		default: // it is no answer, or was told
		}
		return false
	}
	is.booked = 0
	return true
}

func (l *link) end(from string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if is := l.open[number]; is != nil {
		l.release(is.booked)
	}
	delete(l.open, number)
	l.drop(pieceKey{from, number, true})
}

// drop forgets pieces. mu is held.
func (l *link) drop(k pieceKey) {
	if a := l.parts[k]; a != nil {
		l.release(a.size)
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
		if p.Count > maxAssembled || !l.admits(k, int64(p.Count)*int64(len(data))) {
			return nil, false // it is asked again
		}
		a = &assembly{size: int64(p.Count) * int64(len(data)), count: p.Count, began: time.Now()}
		l.parts[k] = a
	}
	if a == nil || p.Index != a.next || p.Count != a.count || int64(len(a.data)+len(data)) > a.size {
		l.drop(k)
		return nil, false
	}
	a.data, a.next = append(a.data, data...), a.next+1
	if a.next < a.count {
		return nil, false
	}
	whole = a.data
	l.drop(k)
	return whole, true
}

// tidy forgets what does not come any more, also if nothing else comes.
func (l *link) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(time.Now().Add(-answerWithin))
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
	if is := l.open[number]; is != nil { // or it is late
		select {
		case is.answered <- reply{data: data}:
		default: // repeated
		}
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

// send sends a message to a broker, in pieces. It reports whether there is a link, and all was sent
// before ctx ended.
func (s *Service[S]) send(ctx context.Context, broker, subject string, number uint64, data []byte) bool {
	turn := s.link.turn(broker)
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	sent, eased := s.sendPieces(ctx, broker, subject, number, data)
	if eased == nil {
		<-turn
	} else { // what is sent next waits for that, too
		go func() {
			<-eased
			<-turn
		}()
	}
	return sent
}

// sendPieces sends the pieces of a message. The caller has the link's turn. If ctx ends while the
// link is behind, eased is closed once the link has room, which it has not while the other broker
// reads nothing.
func (s *Service[S]) sendPieces(ctx context.Context, broker, subject string, number uint64, data []byte) (sent bool, eased <-chan struct{}) {
	size := s.Payload - pieceHead
	p := piece{From: s.Self, Number: number, Count: max(1, (len(data)+size-1)/size)}
	for ; p.Index < p.Count; p.Index++ {
		n := min(len(data), size)
		linked, behind := s.Hub.Forward(broker, &protocol.Message{Subject: []byte(subject), Data: framed(&p, data[:n])})
		if !linked || ctx.Err() != nil {
			return false, nil
		}
		data = data[n:]
		if !behind.Any() {
			continue
		}
		waited := make(chan struct{})
		go func() { // until the link has room or ends; Close does not wait for that
			defer close(waited)
			behind.Wait()
		}()
		select {
		case <-waited:
		case <-ctx.Done():
			return false, waited
		}
	}
	return true, nil
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
	for booked := int64(0); ; { // once more, unless the answer has become larger
		is, err := s.askOnce(ctx, leader, q, booked)
		switch {
		case err != nil:
			return nil, err
		case is.refused == 0:
			a := &answer{took: time.Since(began)}
			if a.data, err = unframed(is.data, a); err != nil {
				return nil, err
			}
			return a, a.err()
		case is.refused > maxAssembled || !s.link.book(ctx, is.refused):
			return nil, errMemory
		}
		booked = is.refused
	}
}

// askOnce asks another broker, and returns its answer as it comes.
func (s *Service[S]) askOnce(ctx context.Context, leader string, q *question, booked int64) (reply, error) {
	number, answered := s.link.begin(booked)
	defer s.link.end(leader, number)
	if !s.send(ctx, leader, askSubject, number, framed(q, q.data)) {
		if ctx.Err() != nil {
			return reply{}, errSilent // it does not read
		}
		return reply{}, errUnreached
	}
	again := time.NewTicker(leaderAgain)
	defer again.Stop()
	for {
		select {
		case is := <-answered:
			return is, nil
		case <-again.C: // a broker that died does not answer, and what it knew is told by the next one
			if _, here, now := s.Shard(q.Topic, q.Shard); here || now != leader {
				return reply{}, errUnreached
			}
		case <-ctx.Done():
			return reply{}, errSilent
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
		if !asksWhy(data) {
			select {
			case s.link.working <- struct{}{}:
				defer func() { <-s.link.working }()
			case <-ctx.Done():
				return
			}
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
		defer a.loan.give() // until it is sent
		s.send(ctx, from, answerSubject, number, framed(a, a.data))
	})
}

// asksWhy reports whether a question is one about trouble. It waits behind no others: their answers
// may wait for memory, which is the trouble then, and its own one is small.
func asksWhy(data []byte) bool {
	q := &question{}
	if len(data) > whyBytes {
		return false
	}
	_, err := unframed(data, q)
	return err == nil && q.Kind == whyLate
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
	if q.Kind == whyLate {
		return &answer{Trouble: s.troubleHere(shard, q.View, q.Made)}, nil
	}
	p := s.part(shard, q.View)
	if p == nil || p.of.Made != q.Made {
		return nil, fmt.Errorf("view %s is not kept there at the moment", q.View)
	}
	if q.Kind == present {
		return p.tell(ctx, q.from())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engine == nil {
		return nil, cmp.Or(p.err, p.paused, errReading)
	}
	switch q.Kind {
	case handOver:
		b, err := p.engine.HandOverPage(q.from(), q.Bytes)
		a := &answer{data: b, Removed: p.removed, Lost: p.lost}
		if _, end := p.shard.Offsets(); end > p.next {
			a.Left = end - p.next
		}
		if p.paused != nil {
			a.Paused = p.paused.Error()
		}
		return a, err
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

// tell returns all windows from a position on. Their encoding takes no more memory than they do.
func (p *part[S]) tell(ctx context.Context, from view.Position) (*answer, error) {
	p.mu.Lock()
	size := p.size
	p.mu.Unlock()
	l := &loan{of: &p.service.budget, kind: p.service.telling}
	if !l.take(size) && !(l.wait(ctx) && l.take(size)) {
		l.give()
		return nil, errMemory
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engine == nil {
		l.give()
		return nil, cmp.Or(p.err, p.paused, errReading)
	}
	b, err := p.engine.Present(from)
	if err != nil {
		l.give()
		return nil, err
	}
	l.resize(int64(len(b)))
	return &answer{data: b, Size: int64(p.engine.Size()), loan: l}, nil
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
