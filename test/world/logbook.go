package world

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// logbook keeps the last lines that brokers log.
type logbook struct {
	w     *world
	mu    sync.Mutex
	lines []string
}

const loggedLines = 400

// of returns the log handler of one process.
func (b *logbook) of(l *life) slog.Handler { return &logHandler{b: b, l: l} }

type logHandler struct {
	b     *logbook
	l     *life
	attrs []slog.Attr
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	if h.l.dead.Load() {
		return nil
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%12v  %s %s %s", h.b.w.now(), h.l, r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&line, " %s=%v", a.Key, a.Value)
		return true
	})
	if strings.HasPrefix(r.Message, "Giving up records that are damaged here") {
		h.gaveUp(&r)
	}
	h.b.mu.Lock()
	h.b.lines = append(h.b.lines, line.String())
	if len(h.b.lines) > loggedLines {
		h.b.lines = h.b.lines[len(h.b.lines)-loggedLines:]
	}
	h.b.mu.Unlock()
	if h.b.w.trace != nil {
		fmt.Fprintln(h.b.w.trace, line.String())
	}
	return nil
}

// gaveUp tells the judge which records a leader gives up.
func (h *logHandler) gaveUp(r *slog.Record) {
	var topic string
	var shard int
	var from, next uint64
	part := ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "part":
			part = a.Value.String()
		case "topic_id":
			topic = a.Value.String()
		case "shard":
			shard = int(a.Value.Int64())
		case "from":
			from = a.Value.Uint64()
		case "up_to":
			next = a.Value.Uint64()
		}
		return true
	})
	if part == "data" {
		h.b.w.judge.gaveUp(topic, shard, from, next)
	}
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.b, h.l, append(h.attrs, attrs...)}
}
func (h *logHandler) WithGroup(string) slog.Handler { return h }

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}
