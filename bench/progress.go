package bench

import (
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	progressEvery = 100 * time.Millisecond
	progressWidth = 79 // narrower than any terminal, so that a line never wraps
	clearLine     = "\r\x1b[K"
)

// Progress keeps one line of a terminal current. Set may be called from anywhere, often, and
// never waits for the terminal.
type Progress struct {
	out  io.Writer
	mu   sync.Mutex
	text string
	quit chan struct{}
	done chan struct{}
}

// StartProgress writes to a terminal until Stop.
func StartProgress(out io.Writer) *Progress {
	p := &Progress{out: out, quit: make(chan struct{}), done: make(chan struct{})}
	go p.show()
	return p
}

// Set replaces the line.
func (p *Progress) Set(text string) {
	p.mu.Lock()
	p.text = text
	p.mu.Unlock()
}

// Stop removes the line.
func (p *Progress) Stop() {
	close(p.quit)
	<-p.done
}

func (p *Progress) show() {
	defer close(p.done)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	shown := ""
	for {
		select {
		case <-p.quit:
			if shown != "" {
				fmt.Fprint(p.out, clearLine)
			}
			return
		case <-tick.C:
		}
		p.mu.Lock()
		text := cut(p.text, progressWidth)
		p.mu.Unlock()
		if text != shown {
			fmt.Fprint(p.out, clearLine, text)
			shown = text
		}
	}
}

// cut shortens text to width characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:width-1]) + "…"
}
