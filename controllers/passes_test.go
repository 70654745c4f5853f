package controllers_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
)

// passes counts the passes of all controllers of an operator. The metrics
// of controller-runtime are those of all operators of the process.
type passes struct {
	began, ended atomic.Int64
}

// passLog counts passes by what controller-runtime logs at its finest level, a line at the begin
// and one at the end of each, and has next log the rest.
type passLog struct {
	passes *passes
	next   slog.Handler
}

func (l passLog) Enabled(context.Context, slog.Level) bool { return true }

func (l passLog) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Message == "Reconciling":
		l.passes.began.Add(1)
	case r.Message == "Reconciler error", strings.HasPrefix(r.Message, "Reconcile "):
		l.passes.ended.Add(1)
	}
	if !l.next.Enabled(ctx, r.Level) {
		return nil
	}
	return l.next.Handle(ctx, r)
}

func (l passLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return passLog{l.passes, l.next.WithAttrs(attrs)}
}

func (l passLog) WithGroup(name string) slog.Handler {
	return passLog{l.passes, l.next.WithGroup(name)}
}
