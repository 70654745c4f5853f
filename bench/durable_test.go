package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// smallDurable ends after its messages, long before its time.
func smallDurable(t *testing.T, publishers, window int, client string) Workload {
	t.Helper()
	made, err := Durable{Publishers: []int{publishers}, Replicas: []int{1}, Connect: ConnectSpread, PayloadBytes: 40, Duration: time.Minute, Client: client}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	w := made[0]
	w.Parameters.Window, w.durable.window, w.durable.most = window, window, 240
	return w
}

func TestDurableRunOnAFaultlessServer(t *testing.T) {
	t.Parallel()
	for _, client := range []string{ClientNATS, ClientLight} {
		for _, shape := range [][2]int{{1, 1}, {24, 1}, {1, 16}} {
			t.Run(fmt.Sprint(client, shape), func(t *testing.T) {
				// The first probes find nobody: the stream takes a moment to be there.
				j := &fakeStreams{notYet: 2}
				run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallDurable(t, shape[0], shape[1], client), testLimits, quietly)
				if run.faulty() {
					t.Fatalf("a server that does everything right is blamed: %q, %+v, %+v", run.Error, run.Acks, run.Deliveries)
				}
				if want := (Acks{Published: 240, Acked: 240}); *run.Acks != want {
					t.Errorf("acks %+v", run.Acks)
				}
				if want := (Deliveries{Expected: 240, Received: 240}); run.Deliveries != want {
					t.Errorf("the stream was read back as %+v", run.Deliveries)
				}
				if l := run.Latency; l.Min <= 0 || l.P50 < l.Min || l.P99 < l.P50 || l.Max < l.P999 || l.Count < 200 {
					t.Errorf("latency %+v", l)
				}
				if run.AckRate <= 0 || run.HDR == "" {
					t.Errorf("something is missing: %+v", run)
				}
				if name := j.left(); name != "" {
					t.Errorf("the stream %s is left", name)
				}
			})
		}
	}
}

func TestEachFaultOfAStreamIsCountedExactly(t *testing.T) {
	t.Parallel()
	// It strikes once, whichever publisher gets that far: on a busy machine one may send all the
	// others' share.
	only := func(what streamFate) func(stamp) streamFate {
		var struck atomic.Bool
		return func(s stamp) streamFate {
			if s.sequence == 7 && struck.CompareAndSwap(false, true) {
				return what
			}
			return storeAndAck
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range []struct {
		name       string
		fate       streamFate
		acks       Acks       // besides what was published and acked rightly
		found      Deliveries // besides what was expected and received
		onlyLight  bool       // nats.go hides it
		onlyWindow bool
		says       string
	}{
		{name: "an ack is lost", fate: storeOnly, acks: Acks{Unanswered: 1}},
		{name: "acknowledged and not stored", fate: ackOnly, found: Deliveries{Lost: 1}},
		{name: "acknowledged twice", fate: ackTwice, acks: Acks{Duplicated: 1}, onlyLight: true},
		{name: "acknowledged out of order", fate: ackAfterNext, acks: Acks{OutOfOrder: 1}, onlyLight: true, onlyWindow: true},
		{name: "acknowledged by another stream", fate: ackFromAnother, acks: Acks{Wrong: 1}, says: `stream "another"`},
		{name: "one sequence for two messages", fate: ackSameSequence, acks: Acks{Wrong: 1}, found: Deliveries{Unexpected: 1}, says: "was given to two messages"},
		{name: "a sequence that can't be", fate: ackTooHigh, acks: Acks{Wrong: 1}, found: Deliveries{Unexpected: 1}, says: "has the sequence 1000"},
		{name: "taken for a duplicate", fate: ackAsDuplicate, acks: Acks{Wrong: 1}, says: "taken for a duplicate"},
		{name: "answered with nonsense", fate: ackNonsense, acks: Acks{Refused: 1}},
		{name: "refused", fate: refuseMessage, acks: Acks{Refused: 1}, says: "maximum bytes exceeded"},
		{name: "stored twice", fate: storeTwice, found: Deliveries{Duplicated: 1}, says: "message 7 of publisher "},
		{name: "stored damaged", fate: storeDamaged, found: Deliveries{Lost: 1, Unexpected: 1}, says: "damaged"},
		{name: "stored what nobody published", fate: storeForeign, found: Deliveries{Unexpected: 1}, says: "not one that was published"},
		{name: "stored out of order", fate: storeBeforePrevious, found: Deliveries{OutOfOrder: 1, Unexpected: 2}, says: "and its ack said"},
	} {
		for _, client := range []string{ClientNATS, ClientLight} {
			for _, window := range []int{1, 16} {
				if c.onlyLight && client != ClientLight || c.onlyWindow && window == 1 {
					continue
				}
				publishers := 1 + 2*(window%16) // three that wait, or one with a window
				if c.fate == storeBeforePrevious {
					publishers = 1 // so that the message before is its own
				}
				w, j := smallDurable(t, publishers, window, client), &fakeStreams{fate: only(c.fate)}
				target := startFakeServer(t, &fakeServer{streams: j})
				wg.Go(func() { // they mostly wait: all at once
					run := measure(t.Context(), target, w, lossLimits, quietly)
					name := fmt.Sprintf("%s with %s, window %d", c.name, client, window)
					if run.Acks == nil {
						t.Errorf("%s: %q", name, run.Error)
						return
					}
					// Refusals end a run, and a publisher that waits for ever sends no more.
					acks, found := c.acks, c.found
					acks.Published = run.Acks.Published
					acks.Acked = acks.Published - acks.Unanswered - acks.Refused
					found.Expected, found.Received = acks.Acked, acks.Acked-found.Lost
					if *run.Acks != acks {
						t.Errorf("%s: got %+v\nwant %+v (error %q)", name, *run.Acks, acks, run.Error)
					}
					if run.Deliveries != found {
						t.Errorf("%s: got %+v\nwant %+v (error %q)", name, run.Deliveries, found, run.Error)
					}
					if !strings.Contains(run.Error, c.says) {
						t.Errorf("%s: the error %q has no %q", name, run.Error, c.says)
					}
					if !run.faulty() {
						t.Errorf("%s: the run passes as faultless", name)
					}
					if left := j.left(); left != "" {
						t.Errorf("%s: the stream %s is left", name, left)
					}
				})
			}
		}
	}
}

// TestLostAckStopsOnlyItsPublisher: a lost ack of one publisher does not delay the others.
func TestLostAckStopsOnlyItsPublisher(t *testing.T) {
	t.Parallel()
	j := &fakeStreams{fate: func(s stamp) streamFate {
		if s.publisher == 1 && s.sequence == 3 {
			return storeOnly
		}
		return storeAndAck
	}}
	started := time.Now()
	run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallDurable(t, 3, 1, ClientLight), lossLimits, quietly)
	if took := time.Since(started); took > 10*lossLimits.Drain {
		t.Errorf("it waited %v for the ack", took)
	}
	if want := (Acks{Published: 240, Acked: 239, Unanswered: 1}); run.Acks == nil || *run.Acks != want {
		t.Errorf("got %+v, want %+v", run.Acks, want)
	}
	if !strings.Contains(run.Error, "left 1 messages unanswered") {
		t.Errorf("error %q", run.Error)
	}
}

func TestStreamIsDeletedHoweverTheRunEnds(t *testing.T) {
	t.Parallel()
	at := func(what streamFate) func(stamp) streamFate {
		return func(s stamp) streamFate {
			if s.sequence == 9 {
				return what
			}
			return storeAndAck
		}
	}
	for _, client := range []string{ClientNATS, ClientLight} {
		j := &fakeStreams{fate: at(hangUp)}
		run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallDurable(t, 1, 1, client), testLimits, quietly)
		if j.left() != "" || run.Error == "" || run.Acks.Unanswered != 1 || run.Deliveries.Received != 9 {
			t.Errorf("%s, cut off: left %q, error %q, %+v, %+v", client, j.left(), run.Error, run.Acks, run.Deliveries)
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		j = &fakeStreams{}
		w := smallDurable(t, 4, 1, client)
		w.durable.most = maxDurableMessages
		run = measure(ctx, startFakeServer(t, &fakeServer{streams: j}), w, testLimits, func(phase string) {
			if strings.HasPrefix(phase, "measuring") {
				cancel()
			}
		})
		if j.left() != "" || !run.Partial || run.faulty() || run.Latency.Count > 0 && run.AckRate == 0 {
			t.Errorf("%s, interrupted: left %q, partial %v, error %q, %+v", client, j.left(), run.Partial, run.Error, run.Acks)
		}
	}
}

func TestStreamThatMiscountsItself(t *testing.T) {
	t.Parallel()
	j := &fakeStreams{claims: 1}
	run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallDurable(t, 3, 1, ClientLight), testLimits, quietly)
	if !strings.Contains(run.Error, "it says that it holds 242 messages, and 241 were read") {
		t.Errorf("error %q", run.Error)
	}
}

func TestStreamThatCannotBeMade(t *testing.T) {
	t.Parallel()
	j := &fakeStreams{refuse: "no space left"}
	run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallDurable(t, 1, 1, ClientLight), testLimits, quietly)
	if !strings.Contains(run.Error, "make the stream bench-") || !strings.Contains(run.Error, "no space left") || run.Acks != nil || !run.Partial {
		t.Errorf("error %q, acks %+v", run.Error, run.Acks)
	}
}

func TestServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	with, without := startFakeServer(t, &fakeServer{streams: &fakeStreams{}}), startFakeServer(t, &fakeServer{})
	with.Name, without.Name = "with", "without"
	durable := smallDurable(t, 2, 1, ClientLight)
	c := Campaign{
		Workloads: []Workload{durable}, Server: with, Against: []Target{without}, Repeat: 1, Wait: testutil.Patience, Limits: testLimits, Status: quietly,
	}
	if _, err := c.Run(t.Context()); !errors.Is(err, ErrNoStreams) || !strings.Contains(err.Error(), "without does not speak JetStream") {
		t.Errorf("durable alone: %v", err)
	}
	durable.durable.optional = true
	c.Workloads = []Workload{smallForward(t, ClientLight), durable}
	r, err := c.Run(t.Context())
	if err != nil || r.Err() != nil || len(r.Results) != 1 || len(r.Skipped) != 1 {
		t.Fatalf("with others: %v, %+v", err, r)
	}
	if table := string(tableOf(t, r, false)); !strings.Contains(table, "Left out: durable: without does not speak JetStream.") {
		t.Errorf("the table does not say so:\n%s", table)
	}
	c.Against = nil
	r, err = c.Run(t.Context())
	if err != nil || r.Err() != nil || len(r.Results) != 2 || len(r.Skipped) != 0 || r.Results[1].Measured[0].AckRate == 0 {
		t.Errorf("on the server that has it: %v, %+v", err, r)
	}
	if len(c.Workloads) != 2 {
		t.Error("the campaign itself was changed")
	}
}

func TestDurablePlans(t *testing.T) {
	d := Durable{Publishers: []int{1, 32}, Replicas: []int{1, 3}, Connect: ConnectSpread, Window: 100, PayloadBytes: 128, Duration: time.Second, Client: ClientLight}
	made, err := d.Workloads()
	if err != nil || len(made) != 6 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	for i, want := range [][3]int{{1, 1, 1}, {32, 1, 1}, {1, 100, 1}, {1, 1, 3}, {32, 1, 3}, {1, 100, 3}} {
		if p := made[i].durable; [3]int{p.publishers, p.window, p.replicas} != want || p.most != maxDurableMessages {
			t.Errorf("plan %d is %+v, want %v", i, p, want)
		}
	}
	d.Publishers = nil
	if made, err := d.Workloads(); err != nil || len(made) != 2 || made[0].durable.window != 100 {
		t.Errorf("only the window: %+v, %v", made, err)
	}
	for _, wrong := range []func(*Durable){
		func(d *Durable) { d.Window = 0 }, func(d *Durable) { d.Window = -1 }, func(d *Durable) { d.Window = 1 << 20 },
		func(d *Durable) { d.Publishers = []int{0} }, func(d *Durable) { d.Publishers = []int{20_000} }, func(d *Durable) { d.PayloadBytes = 31 },
		func(d *Durable) { d.Client = "other" }, func(d *Durable) { d.Duration = 0 }, func(d *Durable) { d.Replicas = nil },
		func(d *Durable) { d.Replicas = []int{3, 0} }, func(d *Durable) { d.Replicas = []int{6} }, func(d *Durable) { d.Connect = "" },
	} {
		bad := d
		if wrong(&bad); true {
			if _, err := bad.Workloads(); err == nil {
				t.Errorf("%+v passes", bad)
			}
		}
	}
}
