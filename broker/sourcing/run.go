package sourcing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/work"
)

// Subjects between brokers. They are accepted from links only.
const (
	prefix        = "$CARILLON.SOURCE."
	askSubject    = prefix + "ASK"
	answerSubject = prefix + "ANSWER"
)

// Shard is a shard that this broker leads. *topic.ShardLeader implements it.
type Shard interface {
	comparable
	Name() string
	// Sources returns the sources of the shard, its durability, and the Keeper that knows how far
	// they have come. There are none while nothing is readable.
	Sources() ([]coordination.StreamSource, log.Durability, *removing.Keeper)
	// Place returns where the shard is in its Topic.
	Place() Place
	// AppendSourced judges and appends messages of a batch, from Batch.Taken on, as far as it can.
	AppendSourced(b *Batch)
	// Data returns the log of its records.
	Data() *log.Log
	// Offsets returns the offsets that readers see: start ≤ offset < end.
	Offsets() (start, end uint64)
	// Scan calls f with some records, as a records.Reader does.
	Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error)
	// Purge deletes the records below an offset that readers see.
	Purge(ctx context.Context, below uint64) (purged uint64, err error)
}

// Config is what a Sourcing needs.
type Config[S Shard] struct {
	Self string // id of this broker
	// Led returns the shards that this broker leads.
	Led func() []S
	// Changed returns a channel that is closed when one of them, or its sources, may have changed.
	Changed func() <-chan struct{}
	// Find returns the identity of a stream, and which broker leads it, or why it can't be read: a
	// *NotFoundError, for example.
	Find    func(stream string) (identity, leader string, err error)
	Streams Streams
	// Mirrors returns why the shard of a mirror can't mirror its part of the origin, or nil.
	Mirrors func(shard S) error
	// Copies returns the sources of a stream.
	Copies func(stream string) []coordination.StreamSource
	// Epochs reports whether all brokers read the epochs of sources.
	Epochs func() bool
	// Origin returns the shard that is the stream of an identity, if this broker leads it and
	// it is readable, or nil.
	Origin func(identity string) Origin
	Hub    publish.Hub
	// Payload is how large a message between brokers may be.
	Payload int
	Logger  *slog.Logger
}

// NotFoundError reports that there is no such stream.
type NotFoundError struct{ Stream string }

func (e *NotFoundError) Error() string { return "there is no stream " + e.Stream }

// Sourcing copies the records of the sources of all shards that this broker leads, and answers
// other brokers that copy from here. Its methods are safe for concurrent use.
type Sourcing[S Shard] struct {
	Config[S]
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	offer   publish.Offer
	answers requests
	serving chan struct{} // one for each question under way
	reading chan struct{} // one for each read for this broker
	sending chan struct{} // one for each answer to another broker, from when it is read until it is sent
	large   chan struct{} // one for each large question
	heavy   *budget       // for answers with one record that is larger than a question asks for

	counts counters

	mu   sync.Mutex
	runs map[place[S]]*run[S]
	// forwarding is held, for each broker, while an answer waits for the link there. So one answer
	// at most is beyond the link's bound.
	forwarding map[string]chan struct{}
}

// place is a source of a shard.
type place[S Shard] struct {
	shard S
	index string
}

// run copies one source until its context ends.
type run[S Shard] struct {
	shard  S
	of     coordination.StreamSource // as it is configured
	source coordination.StreamSource // with the name of the stream that is copied
	ctx    context.Context
	stop   context.CancelFunc
	ended  chan struct{} // closed when it has ended

	started bool // the log of a mirror starts with a record

	begun time.Time

	mu      sync.Mutex
	heard   time.Time // zero: never
	lag     uint64
	err     error
	failing bool // the last step has failed
}

// New returns a Sourcing. Start starts it.
func New[S Shard](config Config[S]) *Sourcing[S] {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sourcing[S]{Config: config, serving: make(chan struct{}, maxQuestions), reading: make(chan struct{}, readsAtOnce),
		sending: make(chan struct{}, answersAtOnce), large: make(chan struct{}, largeAtOnce), heavy: newBudget(heavyUnits),
		runs: map[place[S]]*run[S]{}, forwarding: map[string]chan struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Start begins to copy.
func (s *Sourcing[S]) Start() {
	s.offer = s.Hub.Offer(s)
	s.offer.Set([]string{prefix + ">"})
	s.running.Go(func() {
		poll := work.Poll{Often: often, Rarely: rarely, Lively: lively, Changed: s.Changed}
		copying := false
		for n := 1; poll.Wait(s.ctx, copying); n++ {
			if copying = s.look(); n%noteLooks == 0 {
				s.note()
			}
		}
	})
}

// Close stops copying, and waits for that.
func (s *Sourcing[S]) Close() {
	if s.offer != nil {
		s.offer.Close()
	}
	s.mu.Lock() // no question begins to be answered any more
	s.stop()
	s.mu.Unlock()
	s.running.Wait()
}

// look begins to copy what is not copied yet, and stops what is not led here any more or has
// changed. It reports whether anything is copied.
func (s *Sourcing[S]) look() (copying bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, r := range s.runs {
		select {
		case <-r.ended:
			delete(s.runs, at)
		default:
		}
	}
	waiting := 0
	stay := make(map[place[S]]bool, len(s.runs))
	for _, shard := range s.Led() {
		all, _, _ := shard.Sources()
		for _, stream := range s.Streams.of(all, shard.Place()) {
			at := place[S]{shard, stream.named.Index()}
			if before := s.runs[at]; before != nil {
				// A run that was stopped comes to its end before the next one of the source begins.
				stay[at] = before.ctx.Err() == nil && reflect.DeepEqual(before.of, stream.source)
				continue
			}
			if len(s.runs) >= maxSources {
				waiting++
				continue // until others are gone
			}
			r := &run[S]{shard: shard, of: stream.source, source: stream.named, begun: time.Now(), ended: make(chan struct{})}
			r.ctx, r.stop = context.WithCancel(s.ctx)
			s.runs[at], stay[at] = r, true
			s.running.Go(func() {
				defer close(r.ended)
				s.copy(r.ctx, r)
			})
		}
	}
	s.counts.waiting.Store(int64(waiting))
	for at, r := range s.runs {
		if !stay[at] {
			r.stop()
		}
	}
	return len(s.runs) > 0
}

// note has the state logs say how far sources have come, also former ones.
func (s *Sourcing[S]) note() {
	for _, shard := range s.Led() {
		_, durability, keeper := shard.Sources()
		keeper.Note(durability, func(error) {}) // it is tried again
	}
}

// copy copies a source until ctx ends.
func (s *Sourcing[S]) copy(ctx context.Context, r *run[S]) {
	f := newFetcher(r.source)
	f.of, f.share = r.of, newShare(&r.of, r.shard.Place())
	for ctx.Err() == nil {
		err := s.step(ctx, r, f)
		r.heardOf(f, err)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if f.failures == 0 {
			s.Logger.Warn("a source can't be copied; trying again", "topic", r.shard.Name(), "source", r.source.Name, "error", err)
		}
		rest := f.failed(err, rand.Float64())
		work.Sleep(ctx, rest)
	}
}

// step asks once, and appends what is answered.
func (s *Sourcing[S]) step(ctx context.Context, r *run[S], f *fetcher) error {
	if r.of.Mirrored {
		if err := s.Mirrors(r.shard); err != nil {
			return err
		}
	}
	identity, leader, err := s.Find(r.source.Name)
	if err != nil {
		return err
	}
	_, _, keeper := r.shard.Sources()
	progress := keeper.Progress()
	come, _ := progress.Of(f.key)
	if _, end, _ := r.shard.Data().Offsets(); r.source.Mirrored { // its log ends where it has come to
		come = removal.Source{Sequence: end - 1, Origin: identity}
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := s.cycle(r); err != nil {
		return err
	}
	f.epochs = s.Epochs()
	q := f.ask(come, identity)
	if f.needs > 0 {
		release, err := s.heavy.take(ctx, f.needs)
		if err != nil {
			return err
		}
		defer release()
	} else if f.behind {
		select {
		case s.large <- struct{}{}:
			q.Bytes = largeBytes
			defer func() { <-s.large }()
		default:
		}
	}
	a, err := s.ask(ctx, leader, &q)
	if err != nil {
		return err
	}
	was := f.lost
	b, err := f.answered(a)
	if err != nil {
		return err
	}
	if f.lost != was {
		s.counts.lost.Add(1)
		s.Logger.Warn("a source has lost records that were copied", "topic", r.shard.Name(), "source", r.source.Name, "loss", f.loss())
	}
	if err := s.cycle(r); err != nil { // the question may have waited
		return err
	}
	s.counts.skipped.Add(a.Skipped)
	r.heardOf(f, nil)
	if b == nil {
		return nil
	}
	b.Streams = s.Streams
	for waited := time.Duration(0); b.Taken < len(b.Messages); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if waited > patience { // others may want what this one has of the bounds
			return errors.New("the stream takes no messages at the moment")
		}
		before := b.Taken
		b.Wait = false
		r.shard.AppendSourced(b)
		s.counts.copied.Add(uint64(b.Taken - before))
		if b.Err != nil {
			return b.Err
		}
		if b.Wait {
			work.Sleep(ctx, roomRest)
			waited += roomRest
		}
	}
	f.taken(a)
	return r.shard.Data().WaitRoom(ctx)
}

// cycle returns an error if a stream gets messages of its own back by a source: two that were made
// at once may.
func (s *Sourcing[S]) cycle(r *run[S]) error {
	if coordination.Cyclic(r.shard.Name(), []coordination.StreamSource{r.source}, s.Copies) {
		return fmt.Errorf("stream %s gets its own messages back from this source", r.shard.Name())
	}
	return nil
}

// start has the log of a mirror start with its first record: the streams of some begin with a high
// offset.
func (r *run[S]) start(ctx context.Context) error {
	start, end := r.shard.Offsets()
	if !r.source.Mirrored || r.started || start == end {
		return nil
	}
	first := end
	_, err := r.shard.Scan(start, end, math.MaxInt64, func(record *log.Record) bool {
		first = record.Offset
		return false
	})
	if err == nil && first > start {
		_, err = r.shard.Purge(ctx, first)
	}
	r.started = err == nil && first < end
	return err
}

var errUnreached = errors.New("the stream has no leader that this broker reaches")

// ask asks the leader of a stream.
func (s *Sourcing[S]) ask(ctx context.Context, leader string, q *question) (*answer, error) {
	if leader == s.Self {
		a, done := serve(ctx, s.Config.Origin, q, s.reading, math.MaxInt)
		done()
		return a, nil
	}
	number, answered := s.answers.begin()
	defer s.answers.end(number)
	q.From, q.Number = s.Self, number
	data, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if leader == "" {
		return nil, errUnreached
	}
	if linked, _ := s.Hub.Forward(leader, &protocol.Message{Subject: []byte(askSubject), Data: data}); !linked {
		return nil, errUnreached
	}
	timer := time.NewTimer(q.Wait + answerWithin)
	defer timer.Stop()
	select {
	case a := <-answered:
		return a, nil
	case <-timer.C:
		return nil, errors.New("the stream's leader does not answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Take implements publish.Taker.
func (s *Sourcing[S]) Take(messages []protocol.Message, _ protocol.Memory, forwarded bool) (behind bool) {
	for i := range messages {
		m := &messages[i]
		switch {
		case !forwarded: // a client published it
		case string(m.Subject) == answerSubject:
			if a, err := parseAnswer(dataOf(m)); err == nil {
				s.answers.answer(a.Number, a)
			}
		case string(m.Subject) == askSubject && len(m.Data) <= maxQuestion:
			q := &question{}
			if json.Unmarshal(m.Data, q) == nil {
				s.begin(q)
			}
		}
	}
	return false
}

// Wait returns at once, since Take never reports behind.
func (s *Sourcing[S]) Wait() {}

// begin answers a question of another broker, on a goroutine of its own.
func (s *Sourcing[S]) begin(q *question) {
	send := func(a *answer) work.Behind {
		a.Number = q.Number
		_, behind := s.Hub.Forward(q.From, message(a.encode(), s.Payload)) // without a link nobody waits for it any more
		return behind
	}
	select {
	case s.serving <- struct{}{}:
	default:
		send(&answer{Error: "too many sources ask the stream's broker at once"})
		return
	}
	most := s.Payload + spill - headBytes
	if q.Bytes = min(q.Bytes, most); !q.Exact { // an earlier broker, which knows no spill
		q.Bytes = min(q.Bytes, s.Payload-headBytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	turn := s.forwarding[q.From]
	if turn == nil {
		turn = make(chan struct{}, 1)
		s.forwarding[q.From] = turn
	}
	s.running.Go(func() {
		defer func() { <-s.serving }()
		a, done := serve(s.ctx, s.Config.Origin, q, s.sending, most)
		defer done()
		turn <- struct{}{}
		defer func() { <-turn }()
		if s.ctx.Err() == nil {
			behind := send(a)
			behind.Wait()
		}
	})
}

// requests matches answers to open questions.
type requests struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]chan *answer
}

func (r *requests) begin() (number uint64, answered <-chan *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[uint64]chan *answer{}
	}
	r.last++
	ch := make(chan *answer, 1)
	r.open[r.last] = ch
	return r.last, ch
}

func (r *requests) end(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, number)
}

func (r *requests) answer(number uint64, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.open[number] <- a:
	default: // late, or repeated
	}
}
