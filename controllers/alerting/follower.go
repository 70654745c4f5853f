package alerting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/client"
)

// Source is one shard of a Topic with alerts of one trigger.
type Source struct {
	Trigger string
	Topic   string
	Shard   int
	ID      string // of the Topic: another one of that name has another
}

// key is the Source whatever Topic has the name.
func (s Source) key() Source {
	s.ID = ""
	return s
}

// follower tells of the alerts of one Broker's Views. It remembers where each shard is read on. One
// goroutine uses it at a time.
type follower struct {
	budget *Budget
	// write writes an event. An alert whose event fails is told as a part of a count.
	write func(context.Context, *v1alpha1.View, Event) error
	log   *slog.Logger
	now   func() time.Time

	views   map[types.UID]*followed
	trouble trouble // of the connection
	next    int     // the source with which the next turn begins
	came    bool    // there was something to read in the last turn
}

// followed is a View whose alerts become events.
type followed struct {
	manifest *v1alpha1.View
	limiter  *limiter
	places   map[Source]*place // by their keys
}

// place is where a Source is read on.
type place struct {
	id      string // of the Topic
	begun   bool   // offset is known
	offset  uint64
	trouble trouble
}

// turn reads each source once, unless time or bytes run out: the next turn goes on there then.
func (f *follower) turn(ctx context.Context, all []wanted, connect func(context.Context) (*connection, error)) error {
	f.came = false
	f.take(all)
	err := f.read(ctx, all, connect)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.trouble.note(err, f.now())
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	for _, v := range f.views {
		if len(v.places) == 0 {
			continue // it is not wanted any more
		}
		counted := *v.limiter
		if e, ok := v.limiter.rest(f.now()); ok && !f.tell(ctx, v, e) {
			v.limiter.restore(&counted)
		}
	}
	return err
}

// pause returns the time until the next turn, after one that succeeded and that time before it.
func (f *follower) pause(before time.Duration) time.Duration {
	if f.came {
		return turnEvery
	}
	return min(max(2*before, turnEvery), restEvery)
}

// take begins with new Views and sources, and forgets those that are not wanted any more. A View
// that has just had events keeps its bound: its Broker could have it go and come.
func (f *follower) take(all []wanted) {
	views := map[types.UID]*followed{}
	for i := range all {
		w := &all[i]
		was := f.views[w.manifest.UID]
		if was == nil {
			was = &followed{limiter: newLimiter(f.budget)}
		}
		v := &followed{manifest: w.manifest, limiter: was.limiter, places: map[Source]*place{}}
		for _, s := range w.sources {
			p := was.places[s.key()]
			switch {
			case p == nil:
				p = &place{id: s.ID}
			case p.id != s.ID: // made again while it was followed: all that is in it is new
				p = &place{id: s.ID, begun: p.begun, trouble: p.trouble}
			}
			v.places[s.key()] = p
		}
		views[w.manifest.UID] = v
	}
	for uid, v := range f.views {
		if views[uid] == nil && v.limiter.spent(f.now()) {
			views[uid] = &followed{manifest: v.manifest, limiter: v.limiter}
		}
	}
	f.views = views
}

// unread returns why alerts of a View can't be read; empty: they can. known is false before it has
// been tried for long enough.
func (f *follower) unread(w *wanted) (why string, known bool) {
	v := f.views[w.manifest.UID]
	if v == nil {
		return "", false
	}
	known = f.trouble.since.IsZero()
	if f.trouble.why != "" {
		return f.trouble.why, true
	}
	for _, s := range w.sources {
		p := v.places[s.key()]
		if p.trouble.why != "" {
			return fmt.Sprintf("shard %d of topic %s: %s", s.Shard, s.Topic, p.trouble.why), true
		}
		known = known && p.begun && p.trouble.since.IsZero()
	}
	return "", known
}

func (f *follower) read(ctx context.Context, all []wanted, connect func(context.Context) (*connection, error)) error {
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		cancel() // otherwise Close waits until a broker takes what was not sent
		conn.Close()
	}()
	type task struct {
		*followed
		Source
	}
	var tasks []task
	for i := range all {
		for _, s := range all[i].sources {
			tasks = append(tasks, task{f.views[all[i].manifest.UID], s})
		}
	}
	bytes := turnBytes
	for range tasks {
		t := tasks[f.next%len(tasks)]
		f.next = (f.next + 1) % len(tasks)
		n, err := f.source(conn, t.followed, t.Source)
		if conn.ctx.Err() != nil { // it is about no source alone
			if broken := conn.broken(); broken != nil {
				return broken
			}
			if ctx.Err() != nil {
				return nil // the time is over, and others go on
			}
			return errors.Join(errors.New("the connection was lost"), err)
		}
		if now, p := f.now(), t.places[t.key()]; err != nil {
			if p.trouble.since.IsZero() {
				f.log.Warn("Alerts can't be read", "view", t.manifest.Name, "namespace", t.manifest.Namespace, "topic", t.Topic, "shard", t.Shard, "error", cause(err))
			}
			p.trouble.note(err, now)
		} else {
			p.trouble.note(nil, now)
		}
		if bytes -= n; bytes <= 0 {
			break
		}
	}
	return nil
}

// source reads what has come to one shard, and returns how many bytes that were, as maxSpent
// counts.
func (f *follower) source(conn *connection, v *followed, s Source) (bytes int, err error) {
	start, high, err := conn.ends(s)
	if err != nil {
		return 0, err
	}
	p := v.places[s.key()]
	if !p.begun {
		p.begun, p.offset = true, high
		return 0, nil
	}
	p.offset = min(p.offset, high) // the Topic was made again, and its manifests are behind
	pass := func(to uint64) {
		if to = min(to, high); to > p.offset {
			v.limiter.passed += to - p.offset
			p.offset = to
		}
	}
	pass(start)
	if p.offset == high {
		return 0, nil
	}
	f.came = true
	r, err := client.NewReader(conn.Conn, s.Topic, s.Shard, p.offset, client.ReaderOptions{
		Full: true, MaxBytes: readBytes, Ahead: 1, Subjects: s.subjects(v.manifest.Name), End: high,
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	prefix := s.prefix(v.manifest.Name)
	for range sourceReads {
		batch, err := conn.batch(r)
		bytes += lineCost
		var wrong *client.ReadError
		switch {
		case errors.Is(err, io.EOF):
			p.offset = high
			return bytes, nil
		case errors.As(err, &wrong) && wrong.Code == client.TooLarge:
			pass(max(wrong.Offset, p.offset) + 1) // no alert is so large
		case errors.As(err, &wrong) && wrong.Code == client.Damaged:
			pass(max(wrong.Next, p.offset+1))
		case errors.Is(conn.broken(), errMessage):
			pass(high) // it is not known which record that was
			return bytes, err
		case err != nil:
			return bytes, err
		default:
			for record := range batch.Views() {
				if a, ok := parse(prefix, s.Trigger, string(record.Subject), record.Data); ok {
					if e, ok := v.limiter.tell(a, f.now()); ok && !f.tell(conn.ctx, v, e) {
						v.limiter.count(a)
					}
				}
			}
			bytes += batch.Size()
			p.offset = min(r.Offset(), high)
		}
		if p.offset == high {
			return bytes, nil
		}
		if err != nil {
			r.Seek(p.offset)
		}
	}
	pass(high)
	return bytes, nil
}

// batch returns the next answer, and waits at most answerWithin for it.
func (c *connection) batch(r *client.Reader) (*client.Batch, error) {
	ctx, cancel := context.WithTimeout(c.ctx, answerWithin)
	defer cancel()
	b, err := r.Batch(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		return b, err
	}
	if denied := c.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		return nil, denied
	}
	return nil, fmt.Errorf("no broker has answered within %s: the shard may have no leader", answerWithin)
}

// ends returns the first offset of a shard that is kept, and the one after the last.
func (c *connection) ends(s Source) (start, high uint64, err error) {
	r, err := client.NewReader(c.Conn, s.Topic, s.Shard, math.MaxUint64, client.ReaderOptions{MaxBytes: readBytes, Ahead: 1})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = r.Close() }()
	_, err = c.batch(r)
	if wrong := (*client.ReadError)(nil); errors.As(err, &wrong) && wrong.Code == client.OutOfRange {
		return wrong.Start, wrong.High, nil
	}
	return 0, 0, cmp.Or(err, errors.New("the broker has records at the greatest offset"))
}

// tell reports whether an event was written.
func (f *follower) tell(ctx context.Context, v *followed, e Event) bool {
	err := f.write(ctx, v.manifest, e)
	if err != nil && !errors.Is(err, context.Canceled) {
		f.log.Warn("Writing the event of an alert failed", "view", v.manifest.Name, "namespace", v.manifest.Namespace, "error", err)
	}
	return err == nil
}
