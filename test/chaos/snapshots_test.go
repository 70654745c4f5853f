//go:build e2e && linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// snapshots is clients that take snapshots of Topics repeatedly, read each twice, and keep what
// they read.
type snapshots struct {
	stop context.CancelFunc
	work sync.WaitGroup
	nc   *nats.Conn

	mu            sync.Mutex
	held          map[*checker.History]*Held // the newest snapshot that was read in full
	taken, failed int
	wrong         []error
}

const (
	// snapshotLease is the shortest lease: a snapshot that a fault keeps from being renewed ends
	// soon.
	snapshotLease = 2 * time.Second
	// snapshotTime bounds taking a snapshot, and each reading. A fault may last longer; then the
	// next snapshot may succeed.
	snapshotTime = 15 * time.Second
)

// startSnapshots takes snapshots of these Topics, whose records are removed by retention only.
func startSnapshots(ctx context.Context, url string, topics ...*checker.Topic) (*snapshots, error) {
	nc, err := checker.Connect(url, "chaos, snapshots", clientOptions...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &snapshots{stop: cancel, nc: nc, held: map[*checker.History]*Held{}}
	for _, of := range topics {
		s.work.Go(func() {
			for ctx.Err() == nil {
				err := s.take(ctx, of, time.Duration(rand.Int64N(int64(snapshotLease))))
				s.mu.Lock()
				if s.taken++; err != nil {
					s.failed++
				}
				s.mu.Unlock()
				pause(ctx, time.Second)
			}
		})
	}
	return s, nil
}

func (s *snapshots) end() {
	s.stop()
	s.work.Wait()
	s.nc.Close()
}

func (s *snapshots) find(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Errorf(format, args...))
}

// take takes one snapshot, and reads it twice with a pause in between. It returns an error that
// kept it from reading, which is no broken promise.
func (s *snapshots) take(ctx context.Context, of *checker.Topic, between time.Duration) error {
	acked := map[*checker.History]uint64{}
	for _, h := range of.Shards {
		acked[h] = h.LastAcked()
	}
	asked, cancel := context.WithTimeout(ctx, snapshotTime)
	snapshot, err := client.TakeSnapshot(asked, s.nc, of.Name, client.SnapshotOptions{Lease: snapshotLease})
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = snapshot.Close(closing)
		cancel()
	}()
	if n := len(snapshot.Shards()); n != len(of.Shards) {
		s.find("a snapshot of %s has %d shards", of.Name, n)
		return nil
	}
	var all []*Held
	for n, h := range of.Shards {
		held, err := read(ctx, snapshot, n, h)
		if err != nil {
			return err
		}
		for _, wrong := range JudgeHeld(held, acked[h]) {
			s.find("%s", wrong)
		}
		all = append(all, held)
	}
	pause(ctx, between)
	for n, h := range of.Shards {
		again, err := read(ctx, snapshot, n, h)
		if err != nil {
			return err
		}
		for _, wrong := range JudgeAgain(all[n], again.Records, 0) {
			s.find("read again: %s", wrong)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, h := range of.Shards {
		s.held[h] = all[n]
	}
	return nil
}

// read reads one shard's part to its end.
func read(ctx context.Context, snapshot *client.Snapshot, n int, h *checker.History) (*Held, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	part := snapshot.Shards()[n]
	held := &Held{Stream: h.Stream, Start: part.Start, High: part.High, Records: map[uint64][]byte{}}
	reader, err := snapshot.Reader(n, 0, client.ReaderOptions{})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		record, err := reader.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return held, nil
		case err != nil:
			return nil, err
		}
		held.Records[record.Offset] = bytes.Clone(record.Data)
	}
}

// judge takes a last snapshot of each Topic in a healthy cluster under load, which has to be held
// as long as its reader wants. It returns all findings, and ends s.
func (s *snapshots) judge(w *world, topics ...*checker.Topic) []error {
	s.stop()
	s.work.Wait()
	for _, of := range topics {
		if err := within(patience, "a snapshot of "+of.Name+" is held", func() error { return s.take(w.t.Context(), of, snapshotLease/2) }); err != nil {
			s.find("%w", err)
		}
	}
	s.nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

// compare compares the snapshots of a shard with the shard at the end.
func (s *snapshots) compare(h *checker.History, entries []checker.Entry) (wrong []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.held[h]; held != nil {
		later, from := byOffset(entries)
		for _, text := range JudgeAgain(held, later, from) {
			wrong = append(wrong, errors.New(text))
		}
	}
	return wrong
}

func (s *snapshots) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d snapshots, of which %d could not be held or read", s.taken, s.failed)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
