package log

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// Pace bounds the rate of background reads, in sum over all logs that share it.
type Pace struct {
	perSecond int64

	mu  sync.Mutex
	due time.Time // when all reads so far fit the rate
}

// NewPace returns a bound in bytes per second; 0: none.
func NewPace(bytesPerSecond int64) *Pace { return &Pace{perSecond: bytesPerSecond} }

// ahead is how far reads may be ahead of their rate, so that small reads don't sleep one by one.
const ahead = 10 * time.Millisecond

// spend waits until n more bytes may be read.
func (p *Pace) spend(ctx context.Context, n int) error {
	if p == nil || p.perSecond <= 0 {
		return ctx.Err()
	}
	now := time.Now()
	p.mu.Lock()
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.perSecond) * float64(time.Second)))
	wait := p.due.Sub(now)
	p.mu.Unlock()
	if wait < ahead {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// paced is a file that is read no faster than a pace allows.
type paced struct {
	env.File
	ctx   context.Context
	pace  *Pace
	path  string
	bytes int64
}

func (p *paced) ReadAt(b []byte, at int64) (int, error) {
	if err := p.pace.spend(p.ctx, len(b)); err != nil {
		return 0, &env.DiskError{Op: "read", Path: p.path, Err: err}
	}
	n, err := p.File.ReadAt(b, at)
	p.bytes += int64(n)
	return n, err
}

// ScrubOptions say where to begin and how fast to read. The zero value is all segments, without a
// bound.
type ScrubOptions struct {
	// From excludes the segments before it. It is Next of the previous report.
	From uint64
	Most int   // segments; 0: all
	Pace *Pace // may be nil
}

// ScrubReport is the result of Scrub.
type ScrubReport struct {
	Damaged  []CorruptError
	Segments int
	Bytes    int64 // as readers see them, whatever the form of the file
	// Next is where to continue, also after an error. After the last sealed segment it is the
	// beginning of the active segment, or the end of the log.
	Next uint64
}

// Scrub reads sealed segments from front to end and returns the damage. It changes nothing but the
// manifest's list of damaged segments. It runs beside everything else, and stops with ctx or when
// the log is closed; then it has to read the segment in which it stopped again. A report with an
// error is true for the segments before Next.
func (l *Log) Scrub(ctx context.Context, o ScrubOptions) (ScrubReport, error) {
	out := ScrubReport{Next: o.From}
	ctx, end, err := l.beginUpkeep(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	l.mu.Lock()
	out.Next = max(o.From, l.start)
	var todo []*segment
	for _, s := range l.segments {
		if s.closed && s.index == nil && s.end > out.Next && (o.Most == 0 || len(todo) < o.Most) {
			todo = append(todo, s)
		}
	}
	l.mu.Unlock()
	for _, s := range todo {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		found, bytes, err := l.scrub(ctx, s, o.Pace)
		out.Bytes += bytes
		if err != nil {
			return out, err
		}
		if len(found) > 0 {
			l.blame(s)
		}
		l.noteChecked(s)
		out.Damaged = append(out.Damaged, found...)
		out.Segments++
		out.Next = s.end
	}
	return out, nil
}

func (l *Log) scrub(ctx context.Context, s *segment, pace *Pace) (out []CorruptError, bytes int64, err error) {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		if l.Start() >= s.end || !l.holdsSegment(s) {
			return nil, 0, nil // it was removed meanwhile
		}
		return nil, 0, err
	}
	defer l.disk.handles.release(s)
	in := &paced{File: f, ctx: ctx, pace: pace, path: s.path}
	whole := func(reason string) []CorruptError {
		return []CorruptError{{File: s.path, From: s.base, Next: s.end, Reason: reason}}
	}
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	found, err := fresh.scan(in, l.secret, false, 0, 0)
	switch disk := (*env.DiskError)(nil); {
	case ctx.Err() != nil:
		return nil, in.bytes, ctx.Err()
	case err != nil && !l.holdsSegment(s):
		return nil, in.bytes, nil // it was cut while it was read
	case errors.As(err, &disk):
		return whole(err.Error()), in.bytes, nil
	case err != nil:
		return nil, in.bytes, err
	}
	for _, d := range found.damages {
		out = append(out, CorruptError{File: s.path, Pos: d.pos, From: d.from, Next: d.next, Reason: d.reason})
	}
	if len(out) > 0 {
		// The next reader then knows the damage. The index of an intact segment is not kept in
		// memory because of a scrub.
		s.lookup.Store(&lookup{index: fresh.index, pos: fresh.pos, damages: found.damages, whole: true})
	}
	if c, ok := f.(sealed); ok && c.check() != nil {
		out = append(out, CorruptError{File: s.path, From: s.end, Next: s.end, Reason: c.check().Error()})
	}
	fresh = &segment{base: s.base, path: s.path, end: s.end}
	if _, err := fresh.readFooter(f, l.secret); err != nil && len(out) == 0 {
		out = append(out, CorruptError{File: s.path, Pos: s.pos, From: s.end, Next: s.end, Reason: err.Error()})
	}
	if len(out) > 0 && !l.holdsSegment(s) {
		return nil, in.bytes, nil
	}
	return out, in.bytes, nil
}
