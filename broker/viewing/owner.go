package viewing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/trigger"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/work"
)

// owner is the owner of a view whose Topic's first shard is led here. Another broker may take
// itself for the owner, too.
type owner[S Shard] struct {
	service *Service[S]
	place   Place
	of      *Declared
	view    *view.View

	got  gotten
	over atomic.Bool // run has returned

	mu     sync.Mutex
	tenure *tenure
	status Status
	size   int64 // of the tenure, as the service counts it
}

// tenure is what an owner knows between two beginnings. After anything has failed it begins anew.
type tenure struct {
	engine *view.Owner
	set    *trigger.Set
	lasts  map[target]uint64 // offsets of the last messages, of targets that were read
	ends   map[target]int64  // of the last results
	known  int64             // bytes of lasts and ends
	acks   map[uint32]uint64 // hashes of those that shards have taken
	acked  time.Time         // when all were sent
	begun  bool              // the outputs count
	fresh  time.Time         // when the Set was made
	vain   map[uint32]bool   // shards whose last pages told nothing new
}

func newOwner[S Shard](s *Service[S], place Place, of *Declared, v *view.View) *owner[S] {
	return &owner[S]{service: s, place: place, of: of, view: v, got: gotten{turn: make(chan struct{}, 1)}, status: Status{Windowed: v.Windowed()}}
}

// run owns the view until ctx ends.
func (o *owner[S]) run(ctx context.Context) {
	defer o.end()
	retry := work.Backoff{First: firstRetry, Last: lastRetry}
	said := ""
	for ctx.Err() == nil {
		err := o.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			o.service.Logger.Warn("the results of a view are begun anew", "view", o.of.Name, "topic", o.place.Name, "error", err)
		}
		o.service.restarts.Add(1)
		o.note(func(s *Status) { s.Error, s.Waits, s.Crowded = err.Error(), "", false })
		work.Sleep(ctx, retry.Failed(time.Now()))
	}
}

// end releases all that the owner holds.
func (o *owner[S]) end() {
	o.mu.Lock()
	o.tenure = nil
	o.service.give(o.size)
	o.size = 0
	o.mu.Unlock()
	o.over.Store(true)
	o.expire()
}

// measure counts the memory of the tenure. mu is held.
func (o *owner[S]) measure(t *tenure) {
	size := int64(t.engine.Size()+t.set.Size()) + t.known
	o.service.bytes.Add(size - o.size)
	o.size = size
}

// room says to the engine how much it may take. mu is held.
func (o *owner[S]) room(t *tenure) {
	t.engine.Room(int(o.service.budget.room(o.size) - (o.size - int64(t.engine.Size()))))
}

func (o *owner[S]) note(f func(s *Status)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.status)
}

// begin begins a tenure.
func (o *owner[S]) begin() (*tenure, error) {
	shards := make([]uint32, o.place.Shards)
	for n := range shards {
		shards[n] = uint32(n)
	}
	engine, err := o.view.NewOwner(shards)
	if err != nil {
		return nil, err
	}
	t := &tenure{engine: engine, acks: map[uint32]uint64{}, vain: map[uint32]bool{}}
	o.forgetOutputs(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tenure = t
	o.measure(t)
	return t, nil
}

// forgetOutputs has all that is known of the outputs read again.
func (o *owner[S]) forgetOutputs(t *tenure) {
	t.set, t.fresh = o.view.Triggers(), time.Now()
	o.forgetLasts(t)
}

// forgetLasts has the last messages of subjects read again.
func (o *owner[S]) forgetLasts(t *tenure) {
	t.lasts, t.ends, t.known = map[target]uint64{}, map[target]int64{}, 0
}

// permitted returns why the view's user may not have its results, or nil. It is judged before each
// step of a round, too: a round may write many thousands of results.
func (o *owner[S]) permitted() error {
	if o.service.MayRead(o.of.User, o.place.Name, o.of.Spec.Filter.Subjects) {
		return nil
	}
	return fmt.Errorf("the user %s of the view may not subscribe to all that it reads of topic %s (give the right back, or update the view as another user)", o.of.User, o.place.Name)
}

// serve owns the view until something fails.
func (o *owner[S]) serve(ctx context.Context) error {
	t, err := o.begin()
	if err != nil {
		return err
	}
	for {
		if err := o.permitted(); err != nil {
			return err
		}
		o.leave(t)
		full, err := o.hear(ctx, t)
		if err != nil {
			return err
		}
		pause := max(ownerRest, time.Duration(o.place.Shards)*ownerShardRest)
		if o.view.Windowed() {
			err = o.close(ctx, t)
		} else {
			var took time.Duration
			took, err = o.judgePresent(ctx, t)
			pause = min(max(presentEvery, presentShare*took), presentMost)
		}
		if err != nil {
			return err
		}
		o.note(func(s *Status) { s.Error = "" })
		if full {
			continue
		}
		if !work.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// each asks all shards, some at a time, and calls told with each answer, or with why there is none.
// told is called with mu held. So no answer is in memory that others are waited for with.
func (o *owner[S]) each(ctx context.Context, of func(shard uint32) *question, told func(shard int, a *answer, err error)) {
	_ = work.Each(min(asksAtOnce, o.place.Shards), func(yield func(int) bool) {
		for n := range o.place.Shards {
			if ctx.Err() != nil || !yield(n) {
				return
			}
		}
	}, func(n int) error {
		q := of(uint32(n))
		if q == nil {
			return nil
		}
		q.Topic, q.Shard, q.View, q.Made = o.place.Topic, n, o.of.Name, o.of.Made
		a, err := o.service.ask(ctx, q)
		o.mu.Lock()
		defer o.mu.Unlock()
		told(n, a, err)
		if a != nil {
			a.loan.give()
		}
		return nil
	})
}

// wanted returns the question from where a shard is heard on. While a new leader reads its log, or
// a shard is ahead of others, its pages are of no use: it is asked for small ones, since others may
// have more, and all are asked without a pause then.
func (o *owner[S]) wanted(t *tenure, kind string) func(shard uint32) *question {
	return func(shard uint32) *question {
		o.mu.Lock()
		defer o.mu.Unlock()
		from, bytes := t.engine.Wanted(shard), o.service.pageBytes(o.service.ownersHere.Load())
		if t.vain[shard] {
			bytes = leastPage
		}
		return &question{Kind: kind, End: from.End, Key: []byte(from.Key), Bytes: bytes}
	}
}

// hear takes a page of each shard. full: one has more.
func (o *owner[S]) hear(ctx context.Context, t *tenure) (full bool, err error) {
	s, waiting := Status{Windowed: o.view.Windowed()}, o.place.Shards
	waits := func(n int, why string) {
		if n <= waiting { // the first one
			waiting, s.Waits = n, fmt.Sprintf("shard %d: %s", n, why)
		}
	}
	var failed error
	o.each(ctx, o.wanted(t, handOver), func(n int, a *answer, why error) {
		switch {
		case failed != nil:
			return
		case why != nil:
			waits(n, why.Error())
			return
		case a.Paused != "":
			waits(n, a.Paused)
		}
		s.RemovedUnread, s.Lost, s.Left = s.RemovedUnread+a.Removed, s.Lost+a.Lost, s.Left+a.Left
		o.room(t)
		before := t.engine.Wanted(uint32(n))
		switch err := t.engine.Take(uint32(n), a.data); {
		case errors.Is(err, view.ErrAhead):
		case errors.Is(err, view.ErrCrowded):
			s.Crowded = true
			waits(n, errMemory.Error())
		case err != nil:
			failed = fmt.Errorf("shard %d: %w", n, err)
		default:
			full = full || t.engine.Wanted(uint32(n)) != before && t.engine.More(uint32(n))
			o.measure(t)
		}
		t.vain[uint32(n)] = t.engine.Wanted(uint32(n)) == before
	})
	if err := cmp.Or(ctx.Err(), failed); err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Keys, s.Error = o.status.Keys, o.status.Error
	s.Counts, s.Watermark = t.engine.Counts(), t.engine.Watermark()
	s.TriggersFailed, _ = t.set.Failed()
	o.status = s
	if o.view.Windowed() && t.engine.Heard() && !t.begun { // what is written is read for each key
		t.begun = true
		return full, t.engine.Begin(nil)
	}
	return full, nil
}

// close writes the results of windows that are closed, and tells the shards.
func (o *owner[S]) close(ctx context.Context, t *tenure) error {
	o.mu.Lock()
	results := t.engine.Close()
	rows := make([]aggregate.Row, len(results))
	for i := range results {
		rows[i] = results[i].Row
	}
	bytes := int64(o.view.RowsBytes(rows))
	o.service.bytes.Add(bytes)
	defer o.service.give(bytes)
	o.measure(t)
	o.mu.Unlock()
	for some := range slices.Chunk(rows, rowsAtOnce) {
		if err := o.write(ctx, t, some); err != nil {
			return err
		}
	}
	if !t.begun {
		return nil
	}
	again := time.Since(t.acked) >= ackEvery
	if again {
		t.acked = time.Now()
	}
	sent := make([]uint64, o.place.Shards)
	o.each(ctx, func(shard uint32) *question {
		o.mu.Lock()
		defer o.mu.Unlock()
		ack, ok := t.engine.Ack(shard)
		if sent[shard] = xxhash.Sum64(ack); !ok || !again && t.acks[shard] == sent[shard] {
			return nil
		}
		return &question{Kind: takeAck, data: ack}
	}, func(n int, _ *answer, err error) {
		if err == nil {
			t.acks[uint32(n)] = sent[n]
		}
	})
	return ctx.Err()
}

// targets returns where the messages about a row go: its result, and the alerts of each trigger.
func (o *owner[S]) targets(row *aggregate.Row) (result target, alerts map[string]target) {
	if o.of.Output != "" && o.view.Windowed() {
		result = target{o.of.Output, resultSubject(o.of.Output, o.of.Name, row.Keys)}
	}
	alerts = map[string]target{}
	for name, topic := range o.of.Alerts {
		alerts[name] = target{topic, alertSubject(topic, o.of.Name, name, row.Keys)}
	}
	return result, alerts
}

// leave forgets what can be read again, if others wait for room. It is called in each round, too:
// the windows of those that wait may be the ones whose results are written next.
func (o *owner[S]) leave(t *tenure) (forgotten bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.measure(t)
	if t.known+int64(t.set.Size()) <= o.service.share() || o.service.grows(o.size, false) {
		return false
	}
	t.set.Forget()
	o.forgetLasts(t)
	o.measure(t)
	return true
}

// learn reads the last messages about some rows that are not known yet.
func (o *owner[S]) learn(ctx context.Context, t *tenure, rows []aggregate.Row) error {
	if !o.leave(t) && len(t.lasts) > maxLasts {
		o.mu.Lock()
		o.forgetLasts(t)
		o.mu.Unlock()
	}
	var unknown []target
	about := map[target]struct{ key, trigger string }{}
	want := func(at target, key, trigger string) {
		if _, known := t.lasts[at]; at.topic == "" || known {
			return
		}
		if _, there := about[at]; !there {
			about[at] = struct{ key, trigger string }{key, trigger}
			unknown = append(unknown, at)
		}
	}
	for i := range rows {
		result, alerts := o.targets(&rows[i])
		want(result, rows[i].Key, "")
		for name, at := range alerts {
			want(at, rows[i].Key, name)
		}
	}
	return o.service.readLasts(ctx, unknown, func(at target, is *lastMessage) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		of := about[at]
		t.lasts[at] = is.Offset
		t.known += lastBytes + int64(len(at.subject))
		if of.trigger == "" {
			if end, ok := endOf(is.Data, o.of.Name, of.key); ok {
				t.ends[at] = end
			}
			return nil
		}
		last, err := trigger.DecodeState(is.Data)
		if err != nil || last.Trigger != of.trigger || last.Key != of.key {
			return nil // another's message
		}
		return t.set.Restore(last)
	})
}

// write writes results that are not in the output, and the alerts that they make.
func (o *owner[S]) write(ctx context.Context, t *tenure, rows []aggregate.Row) error {
	if err := o.permitted(); err != nil {
		return err
	}
	if err := o.learn(ctx, t, rows); err != nil {
		return err
	}
	var messages []pending
	for i := range rows {
		at, _ := o.targets(&rows[i])
		if end, there := t.ends[at]; at.topic == "" || there && rows[i].End <= end {
			continue
		}
		data, err := encodeResult(o.of.Name, o.view.Names(), &rows[i])
		if err != nil {
			return err
		}
		messages = append(messages, pending{at, data})
		t.ends[at] = rows[i].End
	}
	o.mu.Lock()
	alerts, err := t.set.Judge(rows)
	o.mu.Unlock()
	if err != nil {
		return err
	}
	if err := o.service.appendAll(ctx, o.of.User, messages, t.lasts, func() { o.service.written.Add(1) }); err != nil {
		return err
	}
	return o.alert(ctx, t, alerts)
}

// alert writes alerts.
func (o *owner[S]) alert(ctx context.Context, t *tenure, alerts []trigger.Alert) error {
	var messages []pending
	for i := range alerts {
		a := &alerts[i]
		topic := o.of.Alerts[a.Trigger]
		if topic == "" {
			continue
		}
		data, err := a.Encode()
		if err != nil {
			return err
		}
		messages = append(messages, pending{target{topic, alertSubject(topic, o.of.Name, a.Trigger, a.Row.Keys)}, data})
	}
	return o.service.appendAll(ctx, o.of.User, messages, t.lasts, func() { o.service.alerts.Add(1) })
}

// judgePresent judges the present values of a view without windows. took is for how long shards
// worked on them, also in vain.
func (o *owner[S]) judgePresent(ctx context.Context, t *tenure) (took time.Duration, err error) {
	if len(o.of.Alerts) == 0 {
		return 0, nil
	}
	is, took, err := o.present(ctx)
	if err != nil {
		o.note(func(s *Status) { s.Waits, s.Crowded = err.Error(), errors.Is(err, errMemory) })
		return took, ctx.Err()
	}
	defer is.loan.give()
	if time.Since(t.fresh) > alertsAgain {
		o.mu.Lock()
		o.forgetOutputs(t)
		o.mu.Unlock()
	}
	o.note(func(s *Status) { s.Keys = len(is.rows) })
	for some := range slices.Chunk(is.rows, rowsAtOnce) {
		if err := o.permitted(); err != nil {
			return took, err
		}
		if err := o.learn(ctx, t, some); err != nil {
			return took, err
		}
		o.mu.Lock()
		alerts, err := t.set.JudgePresent(some, is.offsets)
		o.mu.Unlock()
		if err != nil {
			return took, err
		}
		if err := o.alert(ctx, t, alerts); err != nil {
			return took, err
		}
	}
	return took, nil
}

// presentRows are present values of all keys, as of the next offsets of the shards. Whoever has
// them gives back their loan.
type presentRows struct {
	rows    []aggregate.Row
	offsets map[uint32]uint64
	loan    *loan
}

// present returns the present values. took is for how long shards worked on them. If some shard
// does not answer that is the time of the slowest answer: the others have worked, and the wait for
// this one is no work. If there is no room beside the rest, the owners of this broker take turns.
func (o *owner[S]) present(ctx context.Context) (is presentRows, took time.Duration, err error) {
	l := &loan{of: &o.service.budget, kind: o.service.making}
	is, took, err = o.gather(ctx, l)
	if errors.Is(err, errMemory) && ctx.Err() == nil {
		l.give()
		if !l.wait(ctx) {
			return is, took, ctx.Err()
		}
		before := took
		is, took, err = o.gather(ctx, l)
		took += before
	}
	if err != nil {
		l.give()
	}
	return is, took, err
}

// gather is present, with a loan for all answers, and then for the values.
func (o *owner[S]) gather(ctx context.Context, l *loan) (is presentRows, took time.Duration, err error) {
	o.mu.Lock()
	t := o.tenure
	o.mu.Unlock()
	began := time.Now()
	if t == nil {
		return is, 0, errReading
	}
	of, windows := map[uint32][]byte{}, int64(0)
	o.each(ctx, o.wanted(t, present), func(n int, a *answer, why error) {
		if a != nil {
			took = max(took, a.took)
		}
		if why == nil && !l.take(int64(len(a.data))) {
			why = errMemory
		}
		if why != nil {
			err = cmp.Or(err, fmt.Errorf("shard %d: %w", n, why))
			return
		}
		of[uint32(n)] = a.data
		windows += cmp.Or(a.Size, decodedTimes*int64(len(a.data)))
	})
	if ctx.Err() != nil {
		return is, 0, ctx.Err()
	}
	if err != nil {
		return is, took, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	room := min(o.view.PresentBytes(windows+int64(t.engine.Size())), l.rest())
	if !l.take(room) {
		return is, took, errMemory
	}
	is.rows, is.offsets, err = t.engine.Present(of, int(room))
	took = time.Since(began)
	if errors.Is(err, view.ErrRoom) {
		err = errMemory
	}
	if err != nil {
		return presentRows{}, took, err
	}
	is.loan = l
	l.resize(int64(o.view.RowsBytes(is.rows)))
	return is, took, nil
}
