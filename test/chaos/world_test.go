//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// world is a cluster under load, with the answers that its clients got.
type world struct {
	*cluster
	orders   *checker.Topic // of one shard
	clicks   *checker.Topic // of several
	accounts *checker.Topic // of one, for conditional publishes
	others   []*kept        // of one shard each, without consumers
	ids      map[string]*kept
	loads    []*checker.Load
	outputs  int       // Topics that Views write into
	swappers *swappers // nil: there are none
	readers  *snapshots
}

const (
	replicas = 3
	shards   = 4 // of clicks
)

var consumers = []string{"billing", "audit"}

// window is the deduplication window: clocks jump by less.
const window = 2 * time.Hour

// rest is the pause of publishers to one shard, and slow that of publishers to each of several:
// some hundred messages a second together.
const (
	rest = 25 * time.Millisecond
	slow = 6 * rest
)

// worldOptions are the options of one world.
type worldOptions struct {
	program   string
	faulty    int           // the broker with the disk whose faults the test controls
	megabytes int64         // of the other disks
	window    time.Duration // the deduplication window
	swaps     bool          // with conditional publishes, which take time to judge
	views     bool          // with Views of clicks
}

// usually returns the options of most worlds.
func usually(program string, faulty int) worldOptions {
	return worldOptions{program: program, faulty: faulty, megabytes: volumeMegabytes, window: window, swaps: true, views: true}
}

func begin(t *testing.T, o worldOptions) *world {
	t.Helper()
	w := &world{
		cluster: startNodes(t, lan, o),
		orders:  checker.NewTopic("orders", 1), clicks: checker.NewTopic("clicks", shards), accounts: checker.NewTopic("accounts", 1),
		others: keptOtherwise(), ids: map[string]*kept{},
	}
	for _, of := range w.topics() {
		testutil.Must(t, within(patience, "create topic "+of.Name, func() error {
			request, other := admin.CreateRequest{}, w.keptAs(of)
			if other != nil {
				request = other.how
			}
			request.Stream.Subjects, request.Stream.Replicas, request.Stream.DuplicateWindow = []string{of.Name + ".>"}, replicas, o.window
			request.Shards = len(of.Shards)
			made, err := ask[admin.TopicInfo](w.cluster, admin.TopicCreateSubject+of.Name, request)
			if err == nil && other != nil {
				w.ids[made.Topic.ID] = other
				if other.spared {
					w.spared = append(w.spared, made.Topic.ID)
				}
			}
			return err
		}))
		for _, h := range of.Shards {
			w.streams = append(w.streams, h.Stream)
		}
	}
	for _, of := range []*checker.Topic{w.orders, w.clicks} {
		for _, name := range consumers {
			testutil.Must(t, within(patience, "create consumer "+name, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), answerTime)
				defer cancel()
				_, err := w.js.CreateOrUpdateConsumer(ctx, of.Name, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: checker.AckWait, MaxAckPending: 256})
				return err
			}))
		}
	}
	if o.views {
		testutil.Must(t, w.createViews())
	}
	testutil.Must(t, writeFile(w.bootstrap, "formed\n"))
	testutil.Must(t, w.whole())
	for n := range brokers { // the last one starts when it joins
		here := append(slices.Clone(clientOptions), nats.IgnoreDiscoveredServers())
		w.load(w.orders, checker.Workload{URL: w.url(n), Sync: 1, Again: 1, Rest: rest, Options: here})
		w.load(w.clicks, checker.Workload{URL: w.url(n), Sync: 1, Again: 1, Rest: slow, Header: readingHeader, Options: here})
	}
	w.load(w.orders, checker.Workload{URL: w.urls(), Sync: 1, Again: 1, Async: 1, Rest: rest, Consumers: consumers, Options: clientOptions})
	w.load(w.clicks, checker.Workload{URL: w.urls(), Async: 1, Rest: slow, Consumers: consumers, Header: readingHeader, Options: clientOptions})
	for _, k := range w.others {
		w.load(k.Topic, checker.Workload{URL: w.urls(), Sync: 1, Again: 1, Rest: rest, Options: clientOptions})
	}
	var err error
	if o.swaps {
		w.swappers, err = startSwappers(t.Context(), w.accounts.Shards[0], []string{w.url(0), w.url(1), w.url(2), w.urls()})
		testutil.Must(t, err)
		t.Cleanup(w.swappers.end)
	} else {
		w.load(w.accounts, checker.Workload{URL: w.urls(), Sync: 1, Again: 1, Rest: slow, Options: clientOptions})
	}
	w.readers, err = startSnapshots(t.Context(), w.urls(), w.snapped()...)
	testutil.Must(t, err)
	t.Cleanup(w.readers.end)
	return w
}

// snapped returns the Topics whose snapshots are taken: one of several shards, and one whose
// records are removed meanwhile.
func (w *world) snapped() []*checker.Topic {
	all := []*checker.Topic{w.clicks}
	for _, k := range w.others {
		if k.least > 0 {
			all = append(all, k.Topic)
		}
	}
	return all
}

func (w *world) topics() []*checker.Topic {
	all := []*checker.Topic{w.orders, w.clicks, w.accounts}
	for _, k := range w.others {
		all = append(all, k.Topic)
	}
	return all
}

// keptAs returns a Topic's entry of keptOtherwise, or nil.
func (w *world) keptAs(of *checker.Topic) *kept {
	for _, k := range w.others {
		if k.Topic == of {
			return k
		}
	}
	return nil
}

// keptIn returns the entry of keptOtherwise for a shard's history, or nil.
func (w *world) keptIn(h *checker.History) *kept {
	for _, k := range w.others {
		if k.Shards[0] == h {
			return k
		}
	}
	return nil
}

// histories returns the histories of all shards.
func (w *world) histories() (all []*checker.History) {
	for _, of := range w.topics() {
		all = append(all, of.Shards...)
	}
	return all
}

func (w *world) load(of *checker.Topic, load checker.Workload) {
	w.t.Helper()
	l, err := of.Start(w.t.Context(), load)
	testutil.Must(w.t, err)
	w.loads = append(w.loads, l)
	w.t.Cleanup(l.Stop)
}

// suffer runs one round of faults, and waits until the cluster is whole and acknowledges again.
func (w *world) suffer(round Round) error {
	errs := make([]error, len(round))
	var steps sync.WaitGroup
	began := time.Now()
	for i, s := range round {
		steps.Go(func() {
			time.Sleep(s.At - time.Since(began))
			if s.Kind == Hang && len(round) == 1 {
				errs[i] = w.handsOver(s)
			} else {
				errs[i] = w.inflict(s)
			}
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
	if err := w.whole(); err != nil {
		return err
	}
	before := map[string]int{}
	for _, h := range w.histories() {
		before[h.Stream] = h.Progress().Acked
	}
	enough := map[*checker.Topic]int{w.orders: 50, w.clicks: 10, w.accounts: 5}
	err := within(patience, "publishing goes on", func() error {
		for _, of := range w.topics() {
			for _, h := range of.Shards {
				if n := h.Progress().Acked - before[h.Stream]; n < max(enough[of], 5) {
					return fmt.Errorf("%d messages to %s were acknowledged", n, h.Stream)
				}
			}
		}
		return nil
	})
	w.note("whole and at work after %v: %s", time.Since(healed).Round(time.Millisecond), w)
	return err
}

func (w *world) String() string {
	var all []string
	for _, h := range w.histories() {
		all = append(all, h.String())
	}
	return strings.Join(all, "; ")
}

// judge stops the load and returns all findings.
func (w *world) judge() (wrong []error) {
	wrong = w.readers.judge(w, w.snapped()...)
	for _, l := range w.loads {
		l.Stop()
	}
	if w.swappers != nil {
		w.swappers.end()
	}
	find := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	find(w.orders.Drain(ctx, w.js, consumers...))
	find(w.clicks.Drain(ctx, w.js, consumers...))
	last := map[*checker.History]uint64{} // the last offset that was read
	for _, h := range w.histories() {
		entries, err := h.Read(ctx, w.js)
		if err != nil { // the replicas' logs are judged all the same
			find(err)
			continue
		}
		verdict := w.verdict(h, entries)
		w.note("%s; %s", h, verdict)
		find(verdict.Err())
		wrong = append(wrong, w.readers.compare(h, entries)...)
		if len(entries) > 0 {
			last[h] = entries[len(entries)-1].Seq
		}
		if h == w.accounts.Shards[0] && w.swappers != nil {
			find(w.swappers.judge(entries))
			w.note("%s", w.swappers)
		}
	}
	find(w.whole())
	if w.outputs > 0 {
		find(w.judgeViews())
	}
	find(w.settled())
	// The clients have stopped, so all processes may be killed at once: what is on the disks then
	// is final.
	find(w.pauseAll(w.there()))
	for n := range brokers {
		w.processes[n].kill()
	}
	copies := map[string][]Copy{}
	for _, n := range w.there() {
		logs, err := ReadLogs(nodeName(n), filepath.Join(w.processes[n].volume.Path(), "data"))
		find(err)
		for name, c := range logs {
			id, _, _ := strings.Cut(name, "-")
			if k := w.ids[id]; k != nil && k.inMemory {
				continue
			}
			copies[name] = append(copies[name], c)
			if len(c.Damaged) > 0 && !w.flipped[n] {
				find(fmt.Errorf("log %s of %s is damaged, and no bit was flipped: %v", name, c.Broker, c.Damaged))
			}
		}
	}
	for name, all := range copies {
		known := uint64(0)
		h := w.historyOf(all)
		if h != nil {
			known = last[h] + 1
		}
		for _, difference := range CompareCopies(all, known) {
			find(fmt.Errorf("log %s: %s", name, difference))
		}
		if len(all) != replicas {
			find(fmt.Errorf("log %s stands on %d brokers, want %d", name, len(all), replicas))
		}
		if h == nil {
			continue
		}
		for _, c := range all {
			switch k := w.keptIn(h); {
			case k == nil || k.least == 0 && k.holds(w.harms):
				find(c.Judge(h))
			case k.holds(w.harms):
				find(c.Judge(h, checker.Range{Next: c.Start})) // the stream that was read shows whether more is gone
			}
		}
	}
	want := 2 * (len(w.histories()) + w.outputs)
	for _, k := range w.others {
		if k.inMemory {
			want -= 2
		}
	}
	if len(copies) != want { // data and cursors
		find(fmt.Errorf("there are %d logs, want %d", len(copies), want))
	}
	for _, crash := range w.crashes() {
		find(errors.New(crash))
	}
	return wrong
}

// verdict judges the entries of a shard by its promises.
func (w *world) verdict(h *checker.History, entries []checker.Entry) *checker.Verdict {
	k := w.keptIn(h)
	switch {
	case k == nil || k.least == 0 && k.holds(w.harms):
		return h.Judge(entries)
	case !k.holds(w.harms):
		return &checker.Verdict{Read: len(entries)}
	}
	// Messages beyond the retention may be gone, but no others.
	if acked := h.Progress().Acked; len(entries) < min(k.least, acked) {
		return h.Judge(entries)
	}
	return h.Judge(entries, checker.Range{Next: entries[0].Seq})
}

// historyOf returns the history of the shard of these copies of records, or nil.
func (w *world) historyOf(copies []Copy) *checker.History {
	for _, c := range copies {
		if len(c.Records) == 0 {
			continue
		}
		name, _, _ := strings.Cut(c.Records[0].Subject, ".")
		for _, of := range w.topics() {
			if of.Name == name {
				return of.Shards[c.Shard]
			}
		}
	}
	return nil
}

// live runs a world from its start to its end, with so many of the planned rounds.
func live(t *testing.T, program string, seed uint64, faulty int, next func() Round, rounds int) (wrong []error) {
	t.Helper()
	t.Logf("CHAOS_SEED=%d", seed)
	w := begin(t, usually(program, faulty))
	for range rounds {
		round := next()
		w.note("round: %s", round)
		if err := w.suffer(round); err != nil {
			wrong = append(wrong, fmt.Errorf("after %s: %w", round, err))
			break
		}
	}
	wrong = append(wrong, w.judge()...)
	t.Logf("%s; %s; %s", w, w.swappers, w.readers)
	return wrong
}
