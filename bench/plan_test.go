package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// walk checks what holds for every schedule and returns the sequences of each publisher.
func walk(t *testing.T, s schedule) [][]slot {
	t.Helper()
	by := make([][]slot, s.publishers())
	last := time.Duration(0)
	for i := range s.len() {
		m := s.slot(i)
		if m.due < last {
			t.Fatalf("slot %d is due at %v, before its predecessor at %v", i, m.due, last)
		}
		last = m.due
		if m.sequence != len(by[m.publisher]) {
			t.Fatalf("slot %d has sequence %d of publisher %d, want %d", i, m.sequence, m.publisher, len(by[m.publisher]))
		}
		if warm := i < warmSlots(s); warm != (m.sequence < s.warmSequences()) {
			t.Fatalf("slot %d: warm-up by slot is %v, by sequence not", i, warm)
		}
		by[m.publisher] = append(by[m.publisher], m)
	}
	for p, slots := range by {
		if len(slots) != s.perPublisher() {
			t.Fatalf("publisher %d has %d messages, want %d", p, len(slots), s.perPublisher())
		}
	}
	return by
}

func TestForwardSendsAtASteadyRateOutOfStep(t *testing.T) {
	s := newTicking(100, 5, 2*time.Second, 10*time.Second, 1)
	by := walk(t, s)
	if s.warm != 10 || s.ticks != 60 {
		t.Errorf("%d warm-up and %d ticks, want 10 of 60", s.warm, s.ticks)
	}
	early := 0
	for p, slots := range by {
		for i := 1; i < len(slots); i++ {
			if d := slots[i].due - slots[i-1].due; d != 200*time.Millisecond {
				t.Fatalf("publisher %d waits %v between messages", p, d)
			}
		}
		if slots[0].due < 100*time.Millisecond {
			early++
		}
	}
	if early < 30 || early > 70 {
		t.Errorf("%d of 100 phases lie in the first half of the period", early)
	}
	if again := newTicking(100, 5, 2*time.Second, 10*time.Second, 1); !slices.Equal(again.phase, s.phase) {
		t.Error("the same seed gives another schedule")
	}
	if other := newTicking(100, 5, 2*time.Second, 10*time.Second, 2); slices.Equal(other.phase, s.phase) {
		t.Error("another seed gives the same schedule")
	}
}

func TestFanoutPublishesTopicsInTurn(t *testing.T) {
	s := &rounds{pace: 10 * time.Millisecond, topics: 3, each: 10, warm: 1, count: 3}
	walk(t, s)
	var topics []int
	for i := range 30 {
		m := s.slot(30 + i)
		topics = append(topics, m.publisher)
		if m.due != time.Duration(30+i)*10*time.Millisecond {
			t.Fatalf("message %d of the second round is due at %v", i, m.due)
		}
	}
	if want := append(append(slices.Repeat([]int{0}, 10), slices.Repeat([]int{1}, 10)...), slices.Repeat([]int{2}, 10)...); !slices.Equal(topics, want) {
		t.Errorf("publishers of a round: %v", topics)
	}
}

func TestForwardPlan(t *testing.T) {
	made, err := Forward{
		Groups: []int{1, 100}, PublishersPerGroup: 10, Rate: 5, PayloadBytes: 32,
		Warmup: 2 * time.Second, Duration: 10 * time.Second, Client: ClientNATS,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	w := made[1]
	if len(w.topics) != 1000 || len(w.subscribers) != 100 || w.schedule.len() != 60_000 {
		t.Errorf("%d publishers, %d subscribers, %d messages", len(w.topics), len(w.subscribers), w.schedule.len())
	}
	if p := w.Parameters; p.OfferedMessages != 5000 || p.OfferedDeliveries != 5000 {
		t.Errorf("offered %v messages and %v deliveries a second, want 5000", p.OfferedMessages, p.OfferedDeliveries)
	}
	heard := map[int]bool{}
	for _, l := range w.subscribers {
		for _, source := range l.sources {
			if heard[source] || !strings.HasPrefix(w.topics[source], strings.TrimSuffix(l.subjects[0], "*")) {
				t.Fatalf("subscriber of %s expects publisher %d of %s", l.subjects[0], source, w.topics[source])
			}
			heard[source] = true
		}
	}
	if len(heard) != 1000 {
		t.Errorf("%d publishers are heard", len(heard))
	}
}

func TestFanoutPlanSpreadsSubscribersAsItsSourceDid(t *testing.T) {
	made, err := Fanout{
		Subscribers: []int{10, 10_000}, MessagesPerTopic: 10, PayloadBytes: 50,
		Warmup: time.Second, Duration: 20 * time.Second, Client: ClientLight,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	by := map[int]int{}
	for _, l := range made[1].subscribers {
		for _, source := range l.sources {
			by[source]++
		}
	}
	if by[0] != 5000 || by[1] != 5000 || by[2] != 5000 {
		t.Errorf("subscribers of each topic: %v", by)
	}
	small, large := made[0].Parameters, made[1].Parameters
	if small.PaceNS != int64(10*time.Millisecond) || large.PaceNS != int64(200*time.Millisecond) {
		t.Errorf("paces %v and %v", time.Duration(small.PaceNS), time.Duration(large.PaceNS))
	}
	if large.OfferedDeliveries != 25_000 {
		t.Errorf("offered %v deliveries a second", large.OfferedDeliveries)
	}
	if small.WarmupRounds != 4 || small.Rounds != 66 || large.WarmupRounds != 1 || large.Rounds != 3 {
		t.Errorf("rounds %d + %d and %d + %d", small.WarmupRounds, small.Rounds, large.WarmupRounds, large.Rounds)
	}
}

func TestUnmeasurablePlansNameTheOptionToChange(t *testing.T) {
	forward := func(change func(*Forward)) error {
		f := Forward{Groups: []int{1}, PublishersPerGroup: 10, Rate: 5, PayloadBytes: 32, Duration: time.Second, Client: ClientNATS}
		change(&f)
		_, err := f.Workloads()
		return err
	}
	fanout := func(change func(*Fanout)) error {
		f := Fanout{Subscribers: []int{10}, MessagesPerTopic: 10, PayloadBytes: 50, Duration: time.Second, Client: ClientLight}
		change(&f)
		_, err := f.Workloads()
		return err
	}
	for want, err := range map[string]error{
		"no number of groups":             forward(func(f *Forward) { f.Groups = nil }),
		"number of groups is 0":           forward(func(f *Forward) { f.Groups = []int{1, 0} }),
		"publishers per group is 0":       forward(func(f *Forward) { f.PublishersPerGroup = 0 }),
		"rate is 0":                       forward(func(f *Forward) { f.Rate = 0 }),
		"payload is 31 bytes; give 32":    forward(func(f *Forward) { f.PayloadBytes = 31 }),
		"duration is 0s":                  forward(func(f *Forward) { f.Duration = 0 }),
		"warm-up is -1s":                  forward(func(f *Forward) { f.Warmup = -time.Second }),
		`client is "x"; give nats or`:     forward(func(f *Forward) { f.Client = "x" }),
		"shorten the duration":            forward(func(f *Forward) { f.Groups, f.Rate, f.Duration = []int{1000}, 1000, time.Hour }),
		"number of subscribers is 100001": fanout(func(f *Fanout) { f.Subscribers = []int{100_001} }),
		"messages per topic is 0":         fanout(func(f *Fanout) { f.MessagesPerTopic = 0 }),
		"pace is -1ns":                    fanout(func(f *Fanout) { f.Pace = -1 }),
		"rounds is -1":                    fanout(func(f *Fanout) { f.Rounds = -1 }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something about %q", err, want)
		}
	}
}
