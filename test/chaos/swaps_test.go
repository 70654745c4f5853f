//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// swappers are clients that publish conditionally on a few subjects, so that they conflict, and
// keep the answers.
type swappers struct {
	history *checker.History
	began   time.Time
	stop    context.CancelFunc
	work    sync.WaitGroup
	conns   []*nats.Conn

	mu     sync.Mutex
	swaps  []Swap
	values []checker.Value
}

const registers = 3

func startSwappers(ctx context.Context, h *checker.History, urls []string) (*swappers, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &swappers{history: h, began: time.Now(), stop: cancel}
	for i, url := range urls {
		nc, err := checker.Connect(url, "chaos, swaps", append([]nats.Option{nats.ReconnectBufSize(-1)}, clientOptions...)...)
		if err != nil {
			s.end()
			return nil, err
		}
		s.conns = append(s.conns, nc)
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
		if err != nil {
			s.end()
			return nil, err
		}
		s.work.Go(func() { s.run(ctx, i, nc, js) })
	}
	return s, nil
}

func (s *swappers) end() {
	s.stop()
	s.work.Wait()
	for _, nc := range s.conns {
		nc.Close()
	}
}

var wrongLast = regexp.MustCompile(`wrong last sequence: (\d+)`)

func (s *swappers) run(ctx context.Context, client int, nc *nats.Conn, js jetstream.JetStream) {
	publisher, life := s.history.NewPublisher(), nc.Stats().Reconnects
	last := [registers]uint64{}
	for ctx.Err() == nil {
		if now := nc.Stats().Reconnects; now != life { // order is promised only within one connection
			publisher, life = s.history.NewPublisher(), now
		}
		if !nc.IsConnected() {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		r := rand.IntN(registers)
		v := s.history.Intend(publisher)
		swap := Swap{Client: client, Subject: fmt.Sprintf("%s.r%d", s.history.Stream, r), Expected: last[r], Description: v.String(), Call: time.Since(s.began)}
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		ack, err := js.Publish(asked, swap.Subject, checker.Encode(s.history.Stream, v), jetstream.WithRetryAttempts(0), jetstream.WithExpectLastSequencePerSubject(swap.Expected))
		cancel()
		swap.Back = time.Since(s.began)
		if nc.Stats().Reconnects != life {
			s.history.Unordered(v)
		}
		api, refused := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil:
			swap.Outcome, swap.Stored, last[r] = Done, ack.Sequence, ack.Sequence
			s.history.Acked(v, ack.Sequence)
		case refused && wrongLast.MatchString(api.Description):
			swap.Outcome = Refused
			s.history.Refused(v, api.Description)
			last[r], _ = strconv.ParseUint(wrongLast.FindStringSubmatch(api.Description)[1], 10, 64)
		}
		s.mu.Lock()
		s.swaps, s.values = append(s.swaps, swap), append(s.values, v)
		s.mu.Unlock()
		pause := 20 * time.Millisecond
		if swap.Outcome == Unknown {
			pause = 50 * time.Millisecond
		}
		time.Sleep(pause + time.Duration(rand.IntN(20))*time.Millisecond)
	}
}

// judge compares the answers with the log at the end.
func (s *swappers) judge(entries []checker.Entry) error {
	at := map[checker.Value]uint64{}
	for _, e := range entries {
		if v, err := checker.Decode(s.history.Stream, e.Payload); err == nil {
			at[v] = e.Seq
		}
	}
	for i := range s.swaps {
		if s.swaps[i].Outcome == Unknown {
			s.swaps[i].Stored = at[s.values[i]]
		}
	}
	return Linearizable(s.swaps, time.Minute)
}

func (s *swappers) String() string {
	told := [3]int{}
	for _, swap := range s.swaps {
		told[swap.Outcome]++
	}
	return fmt.Sprintf("%d conditional publishes acknowledged, %d refused, %d without an answer", told[Done], told[Refused], told[Unknown])
}
