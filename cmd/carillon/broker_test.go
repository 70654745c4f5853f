package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestBrokersArePrinted(t *testing.T) {
	started := time.Now().Add(-3*time.Hour - time.Minute)
	members := []admin.Member{
		{Broker: admin.Broker{ID: "aa", Name: "main-0"}, Zone: "z1", Version: "1.2.0", Started: started, Controller: true, Leads: 4, Holds: 12, InSync: 12},
		{Broker: admin.Broker{ID: "bb", Name: "main-1"}, Version: "1.2.0", Started: started, Holds: 12, InSync: 11, Suspect: 1, Drain: coordination.DrainLeadership},
		{Broker: admin.Broker{ID: "cc", Name: "main-2"}, Started: started, Leads: 1, Holds: 3, InSync: 3, Drain: coordination.DrainAll},
		{Broker: admin.Broker{ID: "dd", Name: "main-3"}, Started: started, Drain: coordination.DrainAll},
		{Broker: admin.Broker{ID: "ee", Away: true}, Holds: 2, Drain: coordination.DrainAll, Blocked: 2, Why: "no other broker can take it"},
	}
	looks(t, func(w *bytes.Buffer) error { return printBrokers(w, members) }, `
NAME     ID   ZONE   VERSION   AGE   LEADS   HOLDS   IN SYNC   SUSPECT   STATUS
main-0   aa   z1     1.2.0     3h    4       12      12        0         member, controller
main-1   bb   -      1.2.0     3h    0       12      11        1         member, drained of leadership
main-2   cc   -      -         3h    1       3       3         0         member, draining
main-3   dd   -      -         3h    0       0       0         0         member, drained
-        ee   -      -         -     0       2       0         0         away, drain blocked for 2
`)
	for _, tc := range []struct {
		of    admin.Member
		ended bool
		want  string
	}{
		{members[1], false, "broker main-1 is to lead nothing: it leads 0 shards and holds 12 replicas\n"},
		{members[0], true, "broker main-0 is drained no longer: it leads 4 shards and holds 12 replicas\n"},
		{members[1], true, "the drain of broker main-1 is ended, but it is about to stop, and leads nothing until it is back\n"},
		{members[4], false, "broker ee (away) is to lead and hold nothing: it leads 0 shards and holds 2 replicas\n2 of them can't leave; no other broker can take it\n"},
	} {
		var got bytes.Buffer
		if err := printDrain(&got, &tc.of, tc.ended); err != nil || got.String() != tc.want {
			t.Errorf("it prints %q, %v; want %q", got.String(), err, tc.want)
		}
	}
}

func TestTheOrderOfNames(t *testing.T) {
	order := []string{"a", "main", "main-1", "main-2", "main-10", "other-0"}
	for i, a := range order {
		for j, b := range order {
			if got := byNumber(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

// TestBrokersFromTheCommandLine: brokers are listed, drained and undrained through any of them, by
// name or by id.
func TestBrokersFromTheCommandLine(t *testing.T) {
	shifted := filepath.Join(t.TempDir(), "shift")
	shift := func(by time.Duration) {
		t.Helper()
		err := os.WriteFile(shifted+".new", []byte(by.String()), 0o600)
		if err = errors.Join(err, os.Rename(shifted+".new", shifted)); err != nil {
			t.Fatal(err)
		}
	}
	shift(0)
	t.Setenv(testClock, shifted)
	dev, urls := startDevBrokers(t, 3, "--data", t.TempDir())
	defer dev.end()
	type brokersList struct{ Brokers []admin.Member }
	s := shell{t, urls[1]}
	var all []admin.Member
	soon(t, "all brokers are members and one is the controller", func() bool {
		all = read[brokersList](s, "brokers").Brokers
		controllers := 0
		for _, m := range all {
			if m.Controller {
				controllers++
			}
		}
		return len(all) == 3 && controllers == 1
	})
	for n, m := range all {
		if m.Name != fmt.Sprintf("dev-%d", n) || m.ID == "" || m.Away || m.Drain != "" || m.Incarnation == 0 || time.Since(m.Started) > 2*time.Minute || m.Client != strings.TrimPrefix(urls[n], "nats://") {
			t.Errorf("broker %d is %+v", n, m)
		}
	}
	if got := s.does("brokers ls"); strings.Count(got, "\n") != 4 || !strings.HasPrefix(got, "NAME ") {
		t.Errorf("the list is\n%s", got)
	}

	// Whatever is drained gets nothing, and is said to be, by the others too.
	s.prints("broker dev-2 is to lead and hold nothing: it leads 0 shards and holds 0 replicas\n", "brokers drain dev-2")
	s.prints("broker dev-2 is to lead and hold nothing: it leads 0 shards and holds 0 replicas\n", "brokers drain", all[2].ID)
	if got := s.does("brokers"); !strings.Contains(got, "drained\n") {
		t.Errorf("the list is\n%s", got)
	}
	for i := range 4 {
		s.does(fmt.Sprintf("topic create t%d --replicas 1", i))
	}
	all = read[brokersList](s, "brokers list").Brokers
	if all[0].Leads != 2 || all[1].Holds != 2 || all[1].InSync != 2 || all[2].Leads+all[2].Holds != 0 || all[2].Drain != coordination.DrainAll {
		t.Errorf("of four topics they have %+v", all)
	}
	for line, want := range map[string]string{
		"__complete brokers drain": "dev-0\ndev-1\n:4\n", "__complete brokers undrain": "dev-2\n:4\n",
		"__complete brokers drain dev-0": ":4\n",
	} {
		s.offers(want, line)
	}
	if m := read[admin.Member](s, "brokers drain dev-2 --leadership"); m.Drain != coordination.DrainLeadership || m.Name != "dev-2" {
		t.Errorf("its drain became %+v", m)
	}
	for range 2 {
		if got := s.does("brokers undrain dev-2"); !strings.HasPrefix(got, "broker dev-2 is drained no longer: it leads ") {
			t.Errorf("it prints %s", got)
		}
	}
	other := shell{t, urls[2]}
	soon(t, "another broker knows it, too", func() bool { return read[brokersList](other, "brokers").Brokers[2].Drain == "" })
	s.fails(exitFailure, `there is no broker "dev-3"`, "brokers drain dev-3")
	s.fails(exitFailure, `there is no broker "dev-3"`, "brokers undrain dev-3")

	// Who leaves the number of replicas to the brokers gets three.
	s.fails(exitFailure, "4 replicas are asked for", "topic create wide --replicas 4")
	s.does("topic create three")
	v := read[topicView](s, "topic show three")
	if len(v.Shards) != 1 || len(v.Shards[0].Replicas) != 3 || v.Shards[0].Want != 3 || v.Shards[0].MinInSync != 2 {
		t.Errorf("it is %+v", v.Shards)
	}
	useClocks(s, shift)
}

// useClocks needs three brokers that replicate something, so that they tell each other their
// clocks.
func useClocks(s shell, shift func(time.Duration)) {
	s.Helper()
	const year = 365 * 24 * time.Hour
	type clocks struct{ Brokers []clockView }
	all := func(ok func(v clockView) bool) bool {
		views := read[clocks](s, "brokers clocks").Brokers
		return len(views) == 3 && !slices.ContainsFunc(views, func(v clockView) bool { return v.Clock == nil || !ok(v) })
	}
	soon(s.T, "each broker knows another one's clock", func() bool {
		return all(func(v clockView) bool {
			return v.Clock.Votes >= 2 && v.Clock.Sure == v.Clock.Votes && v.Clock.Doubt == clock.None
		})
	})
	shift(year)
	soon(s.T, "all brokers doubt the time, since their clocks jumped", func() bool {
		return all(func(v clockView) bool {
			return v.Clock.Doubt == clock.Jumped && v.Clock.Vote == "held" && v.Clock.Jumps == 1
		})
	})
	out, errs, _ := s.types("", "brokers clock")
	if strings.Count(out, " +365d") != 3 || strings.Count(out, "ClockJumped\n") != 3 || !strings.Contains(errs, "365d ahead of this machine's") || strings.Count(errs, "confirm-clock --all") != 1 {
		s.Errorf("it prints\n%s%s", out, errs)
	}

	// What is a year off is confirmed only by who insists; one of three is not enough.
	s.fails(exitFailure, "(if that is this machine's, confirm with --force)", "brokers confirm-clock --all --yes")
	if _, errs, code := s.types("n\n", "brokers confirm-clock dev-1 --force"); code != exitFailure || !strings.Contains(errs, "Take these clocks for right?") || !strings.Contains(errs, "no clock was confirmed") {
		s.Errorf("exit code %d: %s", code, errs)
	}
	s.fails(exitFailure, `there is no broker "dev-7"`, "brokers confirm-clock dev-1 dev-7 --yes")
	s.fails(exitUsage, "or --all", "brokers confirm-clock")
	s.fails(exitUsage, "or --all", "brokers confirm-clock dev-1 --all")
	if out, errs, code := s.types("y\n", "brokers confirm-clock dev-1 --force"); code != 0 || !strings.Contains(errs, "the clock of broker dev-1 is confirmed") || strings.Count(out, "held") != 2 || !strings.Contains(out, "sure") {
		s.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if out, errs, code := s.types("", "brokers confirm-clock --all --force --yes"); code != 0 || strings.Contains(out, "held") {
		s.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	soon(s.T, "no broker doubts the time", func() bool { // the command waits for that for some seconds only
		out, errs, code := s.types("", "brokers clock")
		return code == 0 && !strings.Contains(out, "ClockJumped") && !strings.Contains(errs, "doubt")
	})
}

func TestClocksArePrinted(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	views := []clockView{
		{Broker: admin.Broker{ID: "aa", Name: "main-0"}, asked: at, Clock: &admin.BrokerClock{Clock: at, Time: at, Away: -time.Millisecond, Vote: "sure", Votes: 3, Sure: 1, Doubt: clock.Jumped, Why: "two jumped"}},
		{Broker: admin.Broker{ID: "bb", Name: "main-1"}, asked: at, Clock: &admin.BrokerClock{Clock: at.Add(-time.Hour), Time: at, Away: -time.Hour, Vote: "held", Jumps: 2, Votes: 3, Sure: 1, Doubt: clock.Jumped, Why: "two jumped"}},
		{Broker: admin.Broker{ID: "cc", Name: "main-2"}, asked: at, Clock: &admin.BrokerClock{Clock: at.Add(1500 * time.Millisecond), Time: at, Away: 1500 * time.Millisecond, Vote: "late", Votes: 1, Doubt: clock.Implausible, Why: "it is late"}},
		{Broker: admin.Broker{ID: "dd", Away: true}, Error: "it is away"},
	}
	looks(t, func(w *bytes.Buffer) error { return printClocks(w, views) }, `
NAME     CLOCK                      AHEAD     VOTE   JUMPS   SURE   IN DOUBT
main-0   2026-11-22T12:00:00.000Z   0s        sure   0       1/3    ClockJumped
main-1   2026-11-22T11:00:00.000Z   -1h0m0s   held   2       1/3    ClockJumped
main-2   2026-11-22T12:00:01.500Z   +1.5s     late   0       0/1    ClockImplausible
dd       -                          -         -      -       -      -
`)
	want := []string{
		"the clock of broker main-1 is 1h0m0s behind this machine's, which says 2026-11-22T12:00:00.000Z",
		"broker dd: it is away",
		"the time is in doubt, and nothing is deleted by its age: two jumped",
		"the time is in doubt, and nothing is deleted by its age: it is late",
		"correct the clocks that are wrong; when all are right: carillon brokers confirm-clock --all",
	}
	if got := clockNotes(views); !slices.Equal(got, want) {
		t.Errorf("the notes are %q", got)
	}
	if got := clockNotes(views[3:]); len(got) != 1 {
		t.Errorf("of one that is away: %q", got)
	}
}

// TestABrokerThatIsAwayIsNamedByItsID: an absent broker with replicas is listed, and drained, by
// its id.
func TestABrokerThatIsAwayIsNamedByItsID(t *testing.T) {
	brokers := []coordination.Broker{{ID: "b0", Incarnation: 3, Name: "main-0"}, {ID: "b1", Incarnation: 4, Name: "main-0"}}
	made := &coordination.Topic{Name: "orders", ID: "id", Generation: 1, Created: time.Now(), Owner: coordination.Owner{Kind: coordination.ClientOwner},
		Spec: coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1, Replicas: 3}}
	shard := &coordination.Shard{Topic: "id", Epoch: 2, Leader: "b0", Replicas: []string{"b0", "b1", "b2"}, InSync: []coordination.Replica{{Broker: "b0", Incarnation: 3}}}
	state := coordination.NewState(9, brokers, []*coordination.Topic{made}, []*coordination.Shard{shard}, nil).
		With(map[string]coordination.DrainMode{"b2": coordination.DrainAll}, map[string][]coordination.Suspect{"b1": {{Topic: "id"}}})
	s := serveState(t, state)
	out, errs, _ := s.types("", "brokers")
	if !strings.Contains(out, "away, drain blocked for 1") || !strings.Contains(errs, "broker b2 (away): ") || !strings.Contains(errs, "can't leave broker b2") {
		t.Errorf("it prints\n%s%s", out, errs)
	}
	if got := s.does("topic list"); !strings.Contains(got, "1/3") || !strings.Contains(got, "not served: NotEnoughInSync") || !strings.Contains(got, "b2 (away),main-0 (suspect)") {
		t.Errorf("the list is\n%s", got)
	}
	if got := s.does("topic show orders"); !strings.Contains(got, "1 of 3, at least 2: main-0") || !strings.Contains(got, "publishing waits") {
		t.Errorf("it is shown as\n%s", got)
	}
	s.fails(exitFailure, "2 brokers are named main-0 (give the id of one: b0, b1)", "brokers drain main-0")
	s.fails(exitFailure, "not ready to change anything", "brokers drain b2")
	s.offers("b0\nb1\n:4\n", "__complete brokers drain")
}

// TestAnotherNATSServerHasNoBrokers: on another NATS server the commands about brokers fail, and
// only JetStream requests are sent.
func TestAnotherNATSServerHasNoBrokers(t *testing.T) {
	_, s := serveNothing(t)
	s.fails(exitFailure, "no Carillon broker", "brokers")
	s.fails(exitFailure, "no Carillon broker", "brokers drain a")
	s.fails(exitFailure, "it has no word for --min-in-sync", "topic create a --min-in-sync 1")
}
