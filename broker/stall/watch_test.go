package stall

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/limits"
)

// hangFS is a file system whose Create blocks until release is closed.
type hangFS struct {
	env.FS
	release chan struct{}
}

func (h hangFS) Create(path string) (env.File, error) {
	<-h.release
	return h.FS.Create(path)
}

// idle is a committer without rounds.
type idle struct{}

func (idle) RoundSince() time.Time { return time.Time{} }

// TestABrokerGivesUpOnceAndOnlyWithAPeer: a broker without peers waits for its disk for ever. With
// a peer the same stall exceeds the limit, and giveUp is called once.
func TestABrokerGivesUpOnceAndOnlyWithAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := env.Watch(hangFS{crashfs.New(), make(chan struct{})})
		var others atomic.Bool
		w := New(Config{Dir: "/data", FS: fs, Rounds: idle{}, Limit: limits.DiskStallLimit, CanHandOver: others.Load, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gaveUp := make(chan *Error, 2)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx, func(err *Error) { gaveUp <- err })
		}()
		time.Sleep(time.Minute)
		if s := w.Stall(); s.What != "" {
			t.Errorf("nothing is under way, and it says %v", s)
		}
		created := make(chan struct{})
		go func() {
			defer close(created)
			_, _ = fs.Create(filepath.Join("/data", "file"))
		}()
		time.Sleep(time.Minute)
		if s := w.Stall(); s.What != "create of /data/file" || s.For < 55*time.Second || len(gaveUp) > 0 {
			t.Errorf("it says %v, and gave up %d times", s, len(gaveUp))
		}
		others.Store(true)
		<-ended
		if err := <-gaveUp; err.Dir != "/data" || err.Limit != limits.DiskStallLimit || len(gaveUp) > 0 {
			t.Errorf("gave up with %v", err)
		}
		close(fs.FS.(hangFS).release)
		<-created
	})
}

func TestAStallThatEndsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := env.Watch(hangFS{crashfs.New(), make(chan struct{})})
		w := New(Config{Dir: "/data", FS: fs, Rounds: idle{}, Limit: limits.DiskStallLimit, CanHandOver: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx, func(err *Error) { t.Errorf("gave up: %v", err) })
		}()
		go func() { _, _ = fs.Create("/data/file") }()
		time.Sleep(limits.DiskStallLimit - time.Second)
		if s := w.Stall(); s.What == "" {
			t.Error("a stall is not reported")
		}
		close(fs.FS.(hangFS).release)
		time.Sleep(time.Second)
		if s := w.Stall(); s.What != "" {
			t.Errorf("the disk answers, and it says %v", s)
		}
		cancel()
		<-ended
	})
}
