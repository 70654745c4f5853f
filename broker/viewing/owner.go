package viewing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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

	got gotten

	mu     sync.Mutex
	tenure *tenure
	status Status
}

// tenure is what an owner knows between two beginnings. After anything has failed it begins anew.
type tenure struct {
	engine *view.Owner
	set    *trigger.Set
	lasts  map[target]uint64 // offsets of the last messages, of targets that were read
	ends   map[target]int64  // of the last results
	acks   map[uint32]string // that shards have taken
	acked  time.Time         // when all were sent
	begun  bool              // the outputs count
	fresh  time.Time         // when the Set was made
}

func newOwner[S Shard](s *Service[S], place Place, of *Declared, v *view.View) *owner[S] {
	return &owner[S]{service: s, place: place, of: of, view: v, got: gotten{turn: make(chan struct{}, 1)}, status: Status{Windowed: v.Windowed()}}
}

// run owns the view until ctx ends.
func (o *owner[S]) run(ctx context.Context) {
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
		o.note(func(s *Status) { s.Error = err.Error() })
		work.Sleep(ctx, retry.Failed(time.Now()))
	}
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
	t := &tenure{engine: engine, acks: map[uint32]string{}}
	o.forgetOutputs(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tenure = t
	return t, nil
}

// forgetOutputs has all that is known of the outputs read again.
func (o *owner[S]) forgetOutputs(t *tenure) {
	t.set, t.fresh = o.view.Triggers(), time.Now()
	t.lasts, t.ends = map[target]uint64{}, map[target]int64{}
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

// each asks all shards, some at a time, and returns the answers and errors by shard.
func (o *owner[S]) each(ctx context.Context, of func(shard uint32) *question) ([]*answer, []error) {
	answers, errs := make([]*answer, o.place.Shards), make([]error, o.place.Shards)
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
		answers[n], errs[n] = o.service.ask(ctx, q)
		return nil
	})
	return answers, errs
}

// wanted returns the question from where a shard is heard on.
func (o *owner[S]) wanted(t *tenure, kind string) func(shard uint32) *question {
	return func(shard uint32) *question {
		o.mu.Lock()
		defer o.mu.Unlock()
		from := t.engine.Wanted(shard)
		return &question{Kind: kind, End: from.End, Key: []byte(from.Key)}
	}
}

// hear takes a page of each shard. full: one has more.
func (o *owner[S]) hear(ctx context.Context, t *tenure) (full bool, err error) {
	answers, errs := o.each(ctx, o.wanted(t, handOver))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := Status{Windowed: o.status.Windowed, Keys: o.status.Keys, Error: o.status.Error}
	for n, a := range answers {
		if errs[n] != nil {
			s.Waits = fmt.Sprintf("shard %d: %v", n, errs[n])
			continue
		}
		s.RemovedUnread, s.Lost, s.Left = s.RemovedUnread+a.Removed, s.Lost+a.Lost, s.Left+a.Left
		if a.Paused != "" {
			s.Waits = fmt.Sprintf("shard %d: %s", n, a.Paused)
		}
		switch err := t.engine.Take(uint32(n), a.data); {
		case errors.Is(err, view.ErrAhead):
		case err != nil:
			return false, fmt.Errorf("shard %d: %w", n, err)
		default:
			full = full || len(a.data) >= fullPage
		}
	}
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
	o.mu.Unlock()
	rows := make([]aggregate.Row, len(results))
	for i := range results {
		rows[i] = results[i].Row
	}
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
	sent := make([]string, o.place.Shards)
	_, errs := o.each(ctx, func(shard uint32) *question {
		o.mu.Lock()
		defer o.mu.Unlock()
		ack, ok := t.engine.Ack(shard)
		if !ok || !again && t.acks[shard] == string(ack) {
			return nil
		}
		sent[shard] = string(ack)
		return &question{Kind: takeAck, data: ack}
	})
	for n, ack := range sent {
		if ack != "" && errs[n] == nil {
			t.acks[uint32(n)] = ack
		}
	}
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

// learn reads the last messages about some rows that are not known yet.
func (o *owner[S]) learn(ctx context.Context, t *tenure, rows []aggregate.Row) error {
	if len(t.lasts) > maxLasts {
		clear(t.lasts)
		clear(t.ends)
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
		of := about[at]
		t.lasts[at] = is.Offset
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
		o.mu.Lock()
		defer o.mu.Unlock()
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
	rows, offsets, took, err := o.present(ctx)
	if err != nil {
		o.note(func(s *Status) { s.Waits = err.Error() })
		return took, ctx.Err()
	}
	if time.Since(t.fresh) > alertsAgain {
		o.mu.Lock()
		o.forgetOutputs(t)
		o.mu.Unlock()
	}
	o.note(func(s *Status) { s.Keys = len(rows) })
	for some := range slices.Chunk(rows, rowsAtOnce) {
		if err := o.permitted(); err != nil {
			return took, err
		}
		if err := o.learn(ctx, t, some); err != nil {
			return took, err
		}
		o.mu.Lock()
		alerts, err := t.set.JudgePresent(some, offsets)
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

// present returns the present values of all keys, as of the next offsets of the shards. took is for
// how long shards worked on them. If some shard does not answer that is the time of the slowest
// answer: the others have worked, and the wait for this one is no work.
func (o *owner[S]) present(ctx context.Context) (rows []aggregate.Row, offsets map[uint32]uint64, took time.Duration, err error) {
	o.mu.Lock()
	t := o.tenure
	o.mu.Unlock()
	began := time.Now()
	if t == nil {
		return nil, nil, 0, errReading
	}
	answers, errs := o.each(ctx, o.wanted(t, present))
	if ctx.Err() != nil {
		return nil, nil, 0, ctx.Err()
	}
	of := map[uint32][]byte{}
	for _, a := range answers {
		if a != nil {
			took = max(took, a.took)
		}
	}
	for n, a := range answers {
		if errs[n] != nil {
			return nil, nil, took, fmt.Errorf("shard %d: %w", n, errs[n])
		}
		of[uint32(n)] = a.data
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	rows, offsets, err = t.engine.Present(of)
	return rows, offsets, time.Since(began), err
}
