package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// devGrace is how long a broker has to end after SIGTERM: more than it takes to hand over what
	// it leads, to have clients leave, and to close its logs. Then it is killed.
	devGrace = 15 * time.Second
	// A broker that died is started again after a pause that doubles between these two; it is the
	// short one again after a life of devSettled.
	devMinPause, devMaxPause = 100 * time.Millisecond, 5 * time.Second
	devSettled               = 10 * time.Second
	// longestLine is where a line of a broker's output is cut.
	longestLine = 64 << 10
)

// devBroker is one broker of a cluster on a laptop, through all the lives of its process.
type devBroker struct {
	name, dir              string
	client, http           string // addresses
	program                string
	arguments, environment []string
	output                 *prefixed
	log                    *slog.Logger

	ready atomic.Bool // it has been, in some life
}

// supervise starts the broker, and again when it dies, until ctx ends; then it has it stopped. One
// that refuses to start in the first place is the end of all.
func (b *devBroker) supervise(ctx context.Context, failed context.CancelCauseFunc) {
	// Where the system kills a process with its parent, what counts is the thread that started it:
	// this one lives for as long as there is a process.
	runtime.LockOSThread()
	var pause time.Duration
	for {
		started := time.Now()
		err := b.live(ctx)
		if ctx.Err() != nil {
			if err != nil {
				b.log.Warn("A broker did not stop in order", "broker", b.name, "error", err)
			}
			return
		}
		if exit := (*exec.ExitError)(nil); !b.ready.Load() && !(errors.As(err, &exit) && !exit.Exited()) {
			failed(fmt.Errorf("broker %s could not start: %w (its last line says why)", b.name, endOf(err)))
			return
		}
		ran := time.Since(started)
		pause = nextPause(pause, ran)
		b.log.Warn("A broker ended and is started again", "broker", b.name, "why", endOf(err),
			"ran", ran.Round(time.Millisecond), "after", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// nextPause is how long a broker that ran for so long is not started again, after the pause before
// that life.
func nextPause(last, ran time.Duration) time.Duration {
	if ran >= devSettled {
		return devMinPause
	}
	return min(max(2*last, devMinPause), devMaxPause)
}

// endOf is why a process that nobody stopped has ended.
func endOf(err error) error {
	if err == nil {
		return errors.New("it ended by itself")
	}
	return err
}

// live is one process, from its start to its end.
func (b *devBroker) live(ctx context.Context) (err error) {
	cmd := exec.CommandContext(ctx, b.program, b.arguments...)
	cmd.Env, cmd.Stdout, cmd.Stderr = b.environment, b.output, b.output
	cmd.SysProcAttr = devProcess()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = devGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	if err := writePid(b.dir, pid); err != nil {
		b.log.Error("Nobody will find a broker by its pid", "broker", b.name, "pid", pid, "error", err)
	}
	b.log.Info("Started a broker", "broker", b.name, "pid", pid)
	err = cmd.Wait()
	b.output.flush()
	if exit := (*exec.ExitError)(nil); ctx.Err() != nil && !errors.As(err, &exit) {
		err = nil // it was told to end, and did
	}
	if gone := removePid(b.dir); gone != nil {
		b.log.Error("A pid file is left that means nothing", "broker", b.name, "error", gone)
	}
	b.log.Info("A broker has ended", "broker", b.name, "pid", pid)
	return err
}

// prefixed writes the lines of one broker, with its name, where others write theirs.
type prefixed struct {
	mu   *sync.Mutex // of all that write there
	to   io.Writer
	name string
	rest []byte // a line that has no end yet
}

func (p *prefixed) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	for {
		line, rest, ended := bytes.Cut(p.rest, []byte{'\n'})
		if !ended && len(line) < longestLine {
			return len(data), nil
		}
		p.line(line)
		p.rest = append(p.rest[:0], rest...)
	}
}

func (p *prefixed) flush() {
	if len(p.rest) > 0 {
		p.line(p.rest)
		p.rest = p.rest[:0]
	}
}

// line writes one; a JSON object stays one.
func (p *prefixed) line(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if object, ok := bytes.CutPrefix(line, []byte(`{"`)); ok {
		fmt.Fprintf(p.to, "{\"process\":%q,\"%s\n", p.name, object)
		return
	}
	fmt.Fprintf(p.to, "%s: %s\n", p.name, line)
}
