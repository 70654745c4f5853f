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
	// devGrace is the time from SIGTERM to SIGKILL: longer than handing over leadership,
	// disconnecting clients and closing logs take.
	devGrace = 15 * time.Second
	// devMinPause and devMaxPause bound the pause before a broker is restarted, which doubles.
	// After a life of devSettled it is the short one again.
	devMinPause, devMaxPause = 100 * time.Millisecond, 5 * time.Second
	devSettled               = 10 * time.Second
	// longestLine is the length at which a line of a broker's output is cut.
	longestLine = 64 << 10
)

// devBroker is one broker of a cluster on a laptop, over all its processes.
type devBroker struct {
	name, dir              string
	client, web, http      string // addresses; web may be empty
	program                string
	arguments, environment []string
	output                 *prefixed
	log                    *slog.Logger

	ready atomic.Bool // it has been ready, in some life
}

// supervise starts the broker, restarts it when it dies, and stops it when ctx ends. If the first
// start fails, the whole command fails.
func (b *devBroker) supervise(ctx context.Context, failed context.CancelCauseFunc) {
	// Linux kills a process when the thread that started it ends, so this goroutine keeps its
	// thread.
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

// nextPause returns the pause before the next start of a broker that ran for that long, after the
// last pause.
func nextPause(last, ran time.Duration) time.Duration {
	if ran >= devSettled {
		return devMinPause
	}
	return min(max(2*last, devMinPause), devMaxPause)
}

// endOf returns why a process ended by itself.
func endOf(err error) error {
	if err == nil {
		return errors.New("it ended by itself")
	}
	return err
}

// live runs one process to its end.
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
		err = nil // it ended as requested
	}
	if gone := removePid(b.dir); gone != nil {
		b.log.Error("A pid file is left that means nothing", "broker", b.name, "error", gone)
	}
	b.log.Info("A broker has ended", "broker", b.name, "pid", pid)
	return err
}

// prefixed writes the lines of one broker, with its name, to an output that several share.
type prefixed struct {
	mu   *sync.Mutex // shared by all writers of the output
	to   io.Writer
	name string
	rest []byte // an incomplete line
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

// line writes one line. A JSON object stays one.
func (p *prefixed) line(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if object, ok := bytes.CutPrefix(line, []byte(`{"`)); ok {
		fmt.Fprintf(p.to, "{\"process\":%q,\"%s\n", p.name, object)
		return
	}
	fmt.Fprintf(p.to, "%s: %s\n", p.name, line)
}
