package log

import (
	"context"
	"errors"

	"github.com/carillon-mq/carillon/broker/env"
)

// Scrub reads the sealed segments from front to end and returns what is damaged. It changes
// nothing. It stops with ctx, between two segments.
func (l *Log) Scrub(ctx context.Context) ([]CorruptError, error) {
	l.mu.Lock()
	var sealed []*segment
	for _, s := range l.segments {
		if s.closed && s.index == nil {
			sealed = append(sealed, s)
		}
	}
	l.mu.Unlock()
	var out []CorruptError
	for _, s := range sealed {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		found, err := l.scrub(s)
		if err != nil {
			return out, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (l *Log) scrub(s *segment) ([]CorruptError, error) {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		if l.Start() >= s.end {
			return nil, nil // it went meanwhile
		}
		return nil, err
	}
	defer l.disk.handles.release(s)
	whole := func(reason string) []CorruptError {
		return []CorruptError{{File: s.path, From: s.base, Next: s.end, Reason: reason}}
	}
	found, err := l.survey(s, f)
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return whole(err.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	var out []CorruptError
	for _, d := range found.damages {
		out = append(out, CorruptError{File: s.path, Pos: d.pos, From: d.from, Next: d.next, Reason: d.reason})
	}
	if c, ok := f.(sealed); ok && c.check() != nil {
		out = append(out, CorruptError{File: s.path, From: s.end, Next: s.end, Reason: c.check().Error()})
	}
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	if _, err := fresh.readFooter(f, l.secret); err != nil && len(out) == 0 {
		out = append(out, CorruptError{File: s.path, Pos: s.pos, From: s.end, Next: s.end, Reason: err.Error()})
	}
	return out, nil
}
