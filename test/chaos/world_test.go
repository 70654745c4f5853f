//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// world is a cluster under load, with what was told to its clients.
type world struct {
	*cluster
	js       jetstream.JetStream
	orders   *checker.History
	accounts *checker.History
	loads    []*checker.Load
	swappers *swappers
}

var consumers = []string{"billing", "audit"}

// window is how long ids of messages are remembered: clocks jump less far.
const window = 2 * time.Hour

// rest is how fast publishers go: some hundred messages a second together.
const rest = 25 * time.Millisecond

func begin(t *testing.T, program string) *world {
	t.Helper()
	w := &world{cluster: startCluster(t, lan, program), orders: checker.NewHistory("orders"), accounts: checker.NewHistory("accounts")}
	w.js = w.connect()
	for _, h := range []*checker.History{w.orders, w.accounts} {
		must(t, eventually("create stream "+h.Stream, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := w.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: h.Stream, Subjects: []string{h.Stream + ".>"}, Replicas: brokers, Duplicates: window})
			return err
		}))
	}
	for _, name := range consumers {
		must(t, eventually("create consumer "+name, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := w.js.CreateOrUpdateConsumer(ctx, "orders", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: checker.AckWait, MaxAckPending: 256})
			return err
		}))
	}
	must(t, writeFile(w.bootstrap, "formed\n"))
	must(t, w.whole(w.js, "orders", "accounts"))
	for n := range brokers {
		w.load(checker.Workload{URL: w.url(n), Sync: 1, Again: 1, Rest: rest, Options: append(slices.Clone(clientOptions), nats.IgnoreDiscoveredServers())})
	}
	w.load(checker.Workload{URL: w.urls(), Sync: 1, Again: 1, Async: 1, Rest: rest, Consumers: consumers, Options: clientOptions})
	var err error
	w.swappers, err = startSwappers(t.Context(), w.accounts, []string{w.url(0), w.url(1), w.url(2), w.urls()})
	must(t, err)
	t.Cleanup(w.swappers.end)
	return w
}

func (w *world) load(load checker.Workload) {
	w.t.Helper()
	l, err := w.orders.Start(w.t.Context(), load)
	must(w.t, err)
	w.loads = append(w.loads, l)
	w.t.Cleanup(l.Stop)
}

// suffer puts the world through one round of faults, and waits until it is whole and at work again.
func (w *world) suffer(round Round) error {
	errs := make([]error, len(round))
	var steps sync.WaitGroup
	began := time.Now()
	for i, s := range round {
		steps.Go(func() {
			time.Sleep(s.At - time.Since(began))
			errs[i] = w.inflict(s)
		})
	}
	steps.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return w.recovers()
}

func (w *world) recovers() error {
	healed := time.Now()
	if err := w.whole(w.js, "orders", "accounts"); err != nil {
		return err
	}
	orders, accounts := w.orders.Progress().Acked, w.accounts.Progress().Acked
	err := eventually("publishing goes on", func() error {
		if now := w.orders.Progress().Acked; now < orders+50 {
			return fmt.Errorf("%d messages were acknowledged", now-orders)
		}
		if now := w.accounts.Progress().Acked; now < accounts+5 {
			return fmt.Errorf("%d conditional messages were acknowledged", now-accounts)
		}
		return nil
	})
	w.note("whole and at work after %v: %s; %s", time.Since(healed).Round(time.Millisecond), w.orders, w.accounts)
	return err
}

// judge ends the load and returns all that is wrong.
func (w *world) judge() (wrong []error) {
	for _, l := range w.loads {
		l.Stop()
	}
	w.swappers.end()
	find := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	find(w.orders.Drain(ctx, w.js, consumers...))
	last := map[string]uint64{} // what was read, by stream
	histories := map[string]*checker.History{"orders": w.orders, "accounts": w.accounts}
	for name, h := range histories {
		entries, err := h.Read(ctx, w.js)
		find(err)
		verdict := h.Judge(entries)
		w.note("%s; %s", h, verdict)
		find(verdict.Err())
		if len(entries) > 0 {
			last[name] = entries[len(entries)-1].Seq
		}
		if name == "accounts" {
			find(w.swappers.judge(entries))
			w.note("%s", w.swappers)
		}
	}
	find(w.whole(w.js, "orders", "accounts"))
	// Nobody publishes or acknowledges any more. What stands on the disks then, stands there when all die at once.
	find(w.pauseAll([]int{0, 1, 2}))
	for n := range brokers {
		w.processes[n].end(syscall.SIGKILL)
	}
	copies := map[string][]Copy{}
	for n := range brokers {
		logs, err := logsOf(n, w.processes[n].volume.Dir)
		find(err)
		for name, c := range logs {
			copies[name] = append(copies[name], c)
			if len(c.Damaged) > 0 && !w.flipped[n] {
				find(fmt.Errorf("log %s of %s is damaged, and no bit was flipped: %v", name, c.Broker, c.Damaged))
			}
		}
	}
	for name, all := range copies {
		known := uint64(0)
		h := w.historyOf(all, histories)
		if h != nil {
			known = last[h.Stream] + 1
		}
		for _, difference := range CompareCopies(all, known) {
			find(fmt.Errorf("log %s: %s", name, difference))
		}
		if len(all) != brokers {
			find(fmt.Errorf("log %s stands on %d brokers, want %d", name, len(all), brokers))
		}
		if h == nil {
			continue
		}
		for _, c := range all {
			var entries []checker.Entry
			for _, r := range c.Records {
				entries = append(entries, checker.Entry{Seq: r.Offset, Payload: []byte(r.Content[r.Header:])})
			}
			var told []checker.Range
			for _, d := range c.Damaged {
				told = append(told, checker.Range{From: d.From, Next: d.Next})
			}
			if err := h.Judge(entries, told...).Err(); err != nil {
				find(fmt.Errorf("the copy of %s on %s: %w", h.Stream, c.Broker, err))
			}
		}
	}
	for _, crash := range w.crashes() {
		find(errors.New(crash))
	}
	return wrong
}

// historyOf is that of the stream whose data these are, or nil.
func (w *world) historyOf(copies []Copy, histories map[string]*checker.History) *checker.History {
	for _, c := range copies {
		if len(c.Records) > 0 {
			name, _, _ := strings.Cut(c.Records[0].Subject, ".")
			return histories[name]
		}
	}
	return nil
}

// live is a whole life of a world, with so many of the rounds that are planned.
func live(t *testing.T, program string, seed uint64, next func() Round, rounds int) (wrong []error) {
	t.Helper()
	t.Logf("CHAOS_SEED=%d", seed)
	w := begin(t, program)
	for range rounds {
		round := next()
		w.note("round: %s", round)
		if err := w.suffer(round); err != nil {
			wrong = append(wrong, fmt.Errorf("after %s: %w", round, err))
			break
		}
	}
	wrong = append(wrong, w.judge()...)
	t.Logf("%s; %s; %s", w.orders, w.accounts, w.swappers)
	return wrong
}
