package session

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// notable logs what clients do wrong, at most maxNotable lines a second, so that none can fill the
// log.
type notable struct {
	log    *slog.Logger
	mu     sync.Mutex
	second int64
	lines  int
	left   int // lines that were left out since
}

const maxNotable = 10

// Info logs a line, or leaves it out.
func (n *notable) Info(text string, args ...any) { n.write(slog.LevelInfo, text, args) }

// Warn is Info for what concerns other clients, too.
func (n *notable) Warn(text string, args ...any) { n.write(slog.LevelWarn, text, args) }

func (n *notable) write(level slog.Level, text string, args []any) {
	n.mu.Lock()
	if now := time.Now().Unix(); now != n.second {
		n.second, n.lines = now, 0
	}
	if n.lines == maxNotable {
		n.left++
		n.mu.Unlock()
		return
	}
	n.lines++
	left := n.left
	n.left = 0
	n.mu.Unlock()
	if left > 0 {
		args = append(args, "left out", left)
	}
	n.log.Log(context.Background(), level, text, args...)
}
