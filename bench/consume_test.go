package bench

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestConsumePlans(t *testing.T) {
	good := Consume{
		Consumers: []int{1, 16}, Batches: []int{1, 500}, Replicas: []int{1, 3}, Messages: 1000, AckWait: 30 * time.Second,
		PayloadBytes: 128, Duration: time.Second, Client: ClientLight,
	}
	made, err := good.Workloads()
	if err != nil || len(made) != 8 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	if last := made[7]; last.consume.consumers != 16 || last.consume.batch != 500 || last.consume.replicas != 3 || last.consume.pending != 16_000 || last.sockets() != 18 {
		t.Errorf("%+v", last.consume)
	}
	if first := made[0]; first.consume.pending != leastAckPending {
		t.Errorf("%+v", first.consume)
	}
	push := good
	push.Push = true
	if made, err = push.Workloads(); err != nil || len(made) != 4 || made[1].consume.batch != 0 || made[1].consume.pending != 16*pushPending {
		t.Errorf("%d plans, %v", len(made), err)
	}
	for want, change := range map[string]func(*Consume){
		"number of consumers is 0":         func(c *Consume) { c.Consumers = []int{0} },
		"number of consumers is 1001":      func(c *Consume) { c.Consumers = []int{1001} },
		"batch is 0 messages":              func(c *Consume) { c.Batches = []int{0} },
		"batch is 65537 messages":          func(c *Consume) { c.Batches = []int{65537} },
		"no number of messages in a batch": func(c *Consume) { c.Batches = nil },
		"number of messages is 0":          func(c *Consume) { c.Messages = 0 },
		"rate is 0.5":                      func(c *Consume) { c.Rate = 0.5 },
		"shorten the duration":             func(c *Consume) { c.Rate, c.Duration = 1_000_000, time.Hour },
		"bound of unacknowledged messages": func(c *Consume) { c.AckPending = -1 },
		"ack wait is 10ms":                 func(c *Consume) { c.AckWait = 10 * time.Millisecond },
		"replicas is 6":                    func(c *Consume) { c.Replicas = []int{6} },
		"payload is 31":                    func(c *Consume) { c.PayloadBytes = 31 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// taken is an account of a run with three messages, and a function that takes one of them.
func taken(t *testing.T, ackWait time.Duration) (*takenAccount, func(consumer int, attempt uint64, number uint32)) {
	t.Helper()
	const run, size = 4711, 40
	a := newTakenAccount(run, size, 2, ackWait)
	a.probes = 1
	a.expect(3, 0)
	return a, func(consumer int, attempt uint64, number uint32) {
		payload := make([]byte, size)
		stamp{run: run, sequence: number, due: now()}.put(payload)
		a.take(consumer, attempt, payload, now())
	}
}

// TestTheTakenAccountJudgesEveryDelivery: each message has to come once, or again with a mark and
// after the ack wait; each consumer takes first deliveries in order.
func TestTheTakenAccountJudgesEveryDelivery(t *testing.T) {
	whole := Deliveries{Expected: 3, Received: 3}
	for _, c := range []struct {
		what    string
		ackWait time.Duration
		takes   func(a *takenAccount, take func(int, uint64, uint32))
		found   Deliveries
		again   int64
		says    string
	}{
		{"once each, by two consumers", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(1, 1, 2)
			take(0, 1, 1)
		}, whole, 0, ""},
		{"again after the ack wait", 0, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(0, 1, 1)
			take(0, 1, 2)
			take(0, 2, 1)
		}, whole, 1, ""},
		{"only a second attempt came", 0, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(0, 1, 2)
			take(0, 2, 1)
		}, whole, 1, ""},
		{"again too early", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(0, 1, 1)
			take(0, 1, 2)
			take(0, 2, 1)
		}, Deliveries{Expected: 3, Received: 3, Unexpected: 1}, 1, "before the ack wait of 1h"},
		{"twice without a mark", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(1, 1, 0)
			take(1, 1, 1)
			take(1, 1, 2)
		}, Deliveries{Expected: 3, Received: 3, Duplicated: 1}, 0, "message 0 was delivered twice"},
		{"one is missing", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 0)
			take(0, 1, 2)
		}, Deliveries{Expected: 3, Received: 2, Lost: 1}, 0, ""},
		{"out of order", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 1)
			take(0, 1, 0)
			take(0, 1, 2)
		}, Deliveries{Expected: 3, Received: 3, OutOfOrder: 1}, 0, "consumer 1 took message 0 after 1"},
		{"never published", time.Hour, func(_ *takenAccount, take func(int, uint64, uint32)) {
			take(0, 1, 3)
		}, Deliveries{Expected: 3, Unexpected: 1, Lost: 3}, 0, "message 3 was never published"},
		{"damaged", time.Hour, func(a *takenAccount, _ func(int, uint64, uint32)) {
			payload := make([]byte, 40)
			stamp{run: a.run}.put(payload)
			payload[39]++
			a.take(0, 1, payload, now())
		}, Deliveries{Expected: 3, Unexpected: 1, Lost: 3}, 0, "damaged"},
		{"of another size", time.Hour, func(a *takenAccount, _ func(int, uint64, uint32)) {
			payload := make([]byte, 41)
			stamp{run: a.run}.put(payload)
			a.take(0, 1, payload, now())
		}, Deliveries{Expected: 3, Unexpected: 1, Lost: 3}, 0, "damaged, or not one"},
		{"a probe, twice", time.Hour, func(a *takenAccount, _ func(int, uint64, uint32)) {
			payload := make([]byte, headerBytes)
			stamp{kind: kindProbe, run: a.run}.put(payload)
			a.take(0, 1, payload, now())
			a.take(0, 1, payload, now())
		}, Deliveries{Expected: 3, Unexpected: 1, Lost: 3}, 0, "a probe was delivered twice"},
	} {
		a, take := taken(t, c.ackWait)
		c.takes(a, take)
		found, again, fault := a.close(3)
		if found != c.found || again != c.again {
			t.Errorf("%s: %+v, %d again", c.what, found, again)
		}
		if (fault == nil) != (c.says == "") || fault != nil && !strings.Contains(fault.Error(), c.says) {
			t.Errorf("%s: it says %v", c.what, fault)
		}
		complete := false
		select {
		case <-a.complete:
			complete = true
		default:
		}
		if complete != (found.Received == 3) {
			t.Errorf("%s: complete is %v", c.what, complete)
		}
	}
}

// TestThePhasesOfAnAccountFollowEachOther: the second phase continues the numbers of the first one,
// and only its latencies from the given number on are recorded.
func TestThePhasesOfAnAccountFollowEachOther(t *testing.T) {
	a, take := taken(t, time.Hour)
	a.measureFrom = 3
	for n := range uint32(3) {
		take(0, 1, n)
	}
	complete := a.expect(130, 5)
	for n := uint32(3); n < 133; n++ {
		select {
		case <-complete:
			t.Fatalf("complete before message %d", n)
		default:
		}
		take(1, 1, n)
	}
	<-complete
	if found, _, err := a.close(133); found != (Deliveries{Expected: 133, Received: 133}) || err != nil || a.latency.count != 128 {
		t.Errorf("%+v, %v, %d latencies", found, err, a.latency.count)
	}
}

func TestDeliveryAttemptsOfReplySubjects(t *testing.T) {
	for reply, want := range map[string]uint64{
		"$JS.ACK.S.C.1.17.17.1700000000000000000.3":            1,
		"$JS.ACK.S.C.12.17.17.1700000000000000000.3":           12,
		"$JS.ACK._.HASH.S.C.2.17.17.1700000000000000000.3":     2,
		"$JS.ACK._.HASH.S.C.2.17.17.1700000000000000000.3.xyz": 2,
		"$JS.ACK.S.C.0.17.17.1.3":                              0,
		"$JS.ACK.S.C.x.17.17.1.3":                              0,
		"$JS.ACK.S.C.1":                                        0,
	} {
		if n, ok := deliveryAttempt([]byte(reply)); n != want && ok || ok != (want > 0) {
			t.Errorf("%s: %d, %v", reply, n, ok)
		}
	}
}

func TestAPullThatEndsEarlyIsAskedForAgain(t *testing.T) {
	made, err := Consume{Consumers: []int{1}, Batches: []int{10}, Replicas: []int{1}, Messages: 1, AckWait: time.Minute, PayloadBytes: 40, Duration: time.Second, Client: ClientLight}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	c := &lightConsumer{run: &consumeRun{plan: made[0].consume, workload: made[0]}, inbox: "inbox"}
	c.ask()
	for _, status := range []string{"100 Idle Heartbeat\r\n\r\n", "408 Request Timeout\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 0\r\n\r\n"} {
		c.onReplied(nil, []byte("NATS/1.0 "+status), nil)
	}
	if c.asked != 3 || c.failed != nil {
		t.Errorf("%d are asked for, %v", c.asked, c.failed)
	}
	c.out = nil
	if c.ask(); c.asked != 10 || !strings.Contains(string(c.out), `{"batch":7,`) {
		t.Errorf("%d are asked for by %q", c.asked, c.out)
	}
	c.onReplied(nil, []byte("NATS/1.0 409 Consumer Deleted\r\n\r\n"), nil)
	if c.failed == nil || !strings.Contains(c.failed.Error(), "Consumer Deleted") {
		t.Error(c.failed)
	}
}

// sampleOf is a report of one workload on two servers, whose runs the function fills in. The second
// server is slower by scale 2.
func sampleOf(t *testing.T, w []Workload, fill func(run *Run, size int, scale float64)) *Report {
	t.Helper()
	r := sampleReport(t, true)
	r.Results = nil
	for _, w := range w {
		result := newResult(w, []Target{{Name: "carillon"}, {Name: "nats-server"}})
		for which := range result.Measured {
			for repeat := range r.Environment.Repeat {
				scale := float64(which + 1)
				run := sampleRun(repeat+1, 4000, time.Duration(scale*100)*time.Microsecond)
				fill(&run, w.Size, scale*(1+float64(repeat)/10))
				result.Measured[which].Runs = append(result.Measured[which].Runs, run)
			}
		}
		result.summarize()
		r.Results = append(r.Results, result)
	}
	return r
}

func TestReportOfConsume(t *testing.T) {
	made, err := Consume{
		Consumers: []int{1, 16}, Batches: []int{500}, Replicas: []int{1}, Messages: 500_000, AckWait: 30 * time.Second,
		PayloadBytes: 128, Warmup: time.Second, Duration: 5 * time.Second, Client: ClientLight,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := sampleOf(t, made, func(run *Run, size int, scale float64) {
		run.Consume = &ConsumeFigures{
			Taken: 500_000, Rate: 300_000 / scale, PacedRate: 30_000, Paced: 150_000, Client: CPU{Cores: 0.2, PerDelivery: 700},
			Server: &CPU{Cores: 1, PerDelivery: 2600 * scale}, PacedClient: CPU{Cores: 0.5, PerDelivery: 9000}, PacedServer: &CPU{Cores: 0.5, PerDelivery: 21_000 * scale},
		}
		if size == 16 && scale >= 2 {
			run.Consume.Redelivered = 2
		}
	})
	r.Results[1].Measured[1].Runs[0].Deliveries.Lost = 3
	r.Results[1].summarize()
	golden(t, "consume.txt", tableOf(t, r, false))
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "consume 16, batch 500 on nats-server: 3 lost") {
		t.Error(err)
	}
	m, q := r.Results[1].Measured[1].Consume, r.Results[1].Ratio.Consume
	if m.Redelivered != 6 || m.Taken != 1_500_000 || q.Rate < 1.99 || q.Rate > 2.01 || q.ServerCPU < 0.49 || q.ServerCPU > 0.51 {
		t.Errorf("%+v %+v", m, q)
	}
}

// smallConsume takes 50 messages, and then 40 at a fixed rate.
func smallConsume(t *testing.T, client string, ackWait time.Duration) Workload {
	t.Helper()
	made, err := Consume{
		Consumers: []int{2}, Batches: []int{10}, Replicas: []int{1}, Messages: 50, Rate: 400, AckWait: ackWait,
		PayloadBytes: 40, Duration: 100 * time.Millisecond, Client: client,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0]
}

func TestConsumeRunOnAFaultlessServer(t *testing.T) {
	t.Parallel()
	for _, client := range []string{ClientNATS, ClientLight} {
		j := &fakeStreams{notYet: 2}
		run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), smallConsume(t, client, time.Hour), testLimits, quietly)
		if want := (Deliveries{Expected: 90, Received: 90}); run.faulty() || run.Deliveries != want {
			t.Fatalf("%s: %q, %+v", client, run.Error, run.Deliveries)
		}
		if f := run.Consume; f.Taken != 50 || f.Rate <= 0 || f.Paced != 40 || run.Latency.Count != 40 || run.Latency.Min <= 0 || run.HDR == "" {
			t.Errorf("%s: %+v %+v", client, f, run.Latency)
		}
		if name := j.left(); name != "" {
			t.Errorf("%s: the stream %s is left", client, name)
		}
	}
}

// TestFaultsOfAConsumerFailTheRun: whatever a server does wrong with one message, of either phase,
// the run counts it and names it.
func TestFaultsOfAConsumerFailTheRun(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range []struct {
		what  string
		fate  handOutFate
		found Deliveries // besides the expected ones
		says  string
	}{
		{"a message is not delivered", handOutNever, Deliveries{Lost: 1}, "published messages did not come"},
		{"a message is delivered twice", handOutTwice, Deliveries{Duplicated: 1}, "was delivered twice, without a mark"},
		{"a second attempt comes at once", handOutMarked, Deliveries{Unexpected: 1}, "before the ack wait of 1h"},
		{"a message is delivered again at once", handOutAgain, Deliveries{Unexpected: 1}, "before the ack wait of 1h"},
		{"a message is damaged", handOutDamaged, Deliveries{Lost: 1, Unexpected: 1}, "damaged"},
		{"an ack is ignored", handOutForgotten, Deliveries{}, "0 undelivered and 1 unacknowledged ones"},
	} {
		for _, number := range []uint32{7, 60} {
			for _, client := range []string{ClientNATS, ClientLight} {
				j := &fakeStreams{handOut: func(s stamp) handOutFate {
					if s.sequence == number {
						return c.fate
					}
					return handOutOnce
				}}
				target := startFakeServer(t, &fakeServer{streams: j})
				wg.Go(func() {
					run := measure(t.Context(), target, smallConsume(t, client, time.Hour), lossLimits, quietly)
					found := run.Deliveries
					found.Expected, found.Received = 0, 0
					if !run.faulty() || found != c.found || !strings.Contains(run.Error, c.says) {
						t.Errorf("%s, message %d, client %s: %q, %+v", c.what, number, client, run.Error, run.Deliveries)
					}
					if name := j.left(); name != "" {
						t.Errorf("%s: the stream %s is left", c.what, name)
					}
				})
			}
		}
	}
}

func TestRedeliveriesAfterTheAckWaitAreCounted(t *testing.T) {
	t.Parallel()
	j := &fakeStreams{handOut: func(s stamp) handOutFate {
		if s.sequence == 60 {
			return handOutAgain
		}
		return handOutOnce
	}}
	w := smallConsume(t, ClientLight, time.Second)
	w.consume.ackWait = 0
	run := measure(t.Context(), startFakeServer(t, &fakeServer{streams: j}), w, testLimits, quietly)
	if run.faulty() || run.Consume.Redelivered != 1 {
		t.Errorf("%q, %+v, %d again", run.Error, run.Deliveries, run.Consume.Redelivered)
	}
}
