package coordination

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// manyCopies returns copies of restored shards, two of each Topic. Some 10,000 fill a part.
func manyCopies(n int) []Suspect {
	all := make([]Suspect, n)
	for i := range all {
		all[i] = Suspect{Topic: fmt.Sprintf("%032x", i/2), Shard: i % 2, Epoch: 1 << 33, End: 1 << 40, State: 1 << 30, Whole: true, Known: 1 << 33, StateEpoch: 1 << 33}
	}
	return all
}

// reported returns how many copies, from the first one on, a State says are reported in a
// generation, and an error if it says something else of them, or anything of a later one.
func (s *State) reported(broker string, generation int64, all []Suspect) (n int, err error) {
	for ; n < len(all) && s.ReportedIn(broker, all[n].Topic) == generation; n++ {
		if said, ok := s.Reported(broker, all[n].Topic, all[n].Shard); !ok || said != all[n] {
			return n, fmt.Errorf("copy %d of %d is said to be reported, and is not: %+v", n, len(all), said)
		}
	}
	for i := n; i < len(all); i++ {
		if s.ReportedIn(broker, all[i].Topic) != 0 {
			return n, fmt.Errorf("copy %d is said to be reported, and %d is not", i, n)
		}
	}
	return n, nil
}

// decoded returns the State after parts of a report were written.
func decoded(t *testing.T, parts ...string) *State {
	t.Helper()
	s := &State{reports: map[string][]report{}}
	for _, part := range parts {
		if len(part) > maxReport {
			t.Fatalf("a part of %d bytes", len(part))
		}
		r, err := decodeReport(&mvccpb.KeyValue{Key: []byte("reports/a"), Value: []byte(part)})
		if err != nil {
			t.Fatal(err)
		}
		s.reports["a"] = append(s.reports["a"], r)
	}
	return s
}

// TestAReportThatDoesNotFit: a broker has more copies of restored shards than one report holds.
// Those of the first Topics are reported. Nobody takes the others for missing, and they follow when
// the first ones have leaders.
func TestAReportThatDoesNotFit(t *testing.T) {
	left := manyCopies(55_000)
	reports := 0
	for len(left) > 0 {
		if reports++; reports > 10 {
			t.Fatalf("%d copies are left after %d reports", len(left), reports)
		}
		parts, err := encodeReport(3, left)
		if err != nil || len(parts) > maxReportParts {
			t.Fatalf("a report of %d parts, error %v", len(parts), err)
		}
		in, err := decoded(t, parts...).reported("a", 3, left)
		if err != nil {
			t.Fatal(err)
		}
		if in < min(len(left), 30_000) {
			t.Fatalf("a report has %d of %d copies", in, len(left))
		}
		left = left[in:]
	}
	if reports < 2 {
		t.Errorf("%d reports", reports)
	}
}

// TestAReportThatIsBeingReplaced: while the parts of a report are replaced one after the other, a
// copy is reported as one of both reports has it, or not at all.
func TestAReportThatIsBeingReplaced(t *testing.T) {
	all := manyCopies(13_000)
	shifted := func(n int) []Suspect { // its parts end elsewhere
		some := slices.Clone(all)
		for i := range some[:n] {
			some[i].Known, some[i].StateEpoch = 0, 0
		}
		return some
	}
	for name, lists := range map[string][2][]Suspect{
		"longer":     {all[:3], all},
		"shorter":    {all, all[:3]},
		"empty":      {all, nil},
		"more fits":  {all, shifted(len(all))},
		"less fits":  {shifted(len(all)), all},
		"from below": {all, shifted(2_000)},
		"gone below": {all, all[3_000:]},
	} {
		var parts [2][]string
		for i, list := range lists {
			var err error
			if parts[i], err = encodeReport(3, list); err != nil {
				t.Fatal(err)
			}
		}
		said := func(list []Suspect) map[suspectID]Suspect {
			in := map[suspectID]Suspect{}
			for _, one := range list {
				in[suspectID{one.Topic, one.Shard}] = one
			}
			return in
		}
		before, after := said(lists[0]), said(lists[1])
		for step := 1; step <= max(len(parts[0]), len(parts[1])); step++ { // the first part is written, and so on; then old ones are deleted
			s := decoded(t, slices.Concat(parts[1][:min(step, len(parts[1]))], parts[0][min(step, len(parts[0])):])...)
			for _, one := range all {
				id := suspectID{one.Topic, one.Shard}
				got, ok := s.Reported("a", one.Topic, one.Shard)
				was, had := before[id]
				is, has := after[id]
				switch known := s.ReportedIn("a", one.Topic) != 0; {
				case step >= len(parts[1]):
					if !known || ok != has || got != is {
						t.Fatalf("%s: %v is in the report: %v, %v, %+v; want %v, %+v", name, id, known, ok, got, has, is)
					}
				case !known && ok, known && ok && (!had || got != was) && (!has || got != is), known && !ok && had && has:
					t.Fatalf("%s, step %d: %v is in the report: %v, %v, %+v", name, step, id, known, ok, got)
				}
			}
		}
	}
}

// TestALargeReportIsKnownAtOnce: a broker reports more copies than fit into one value of etcd. They
// are all known at once, though none of their shards gets a leader. A report that is short again
// leaves nothing behind, and a later registration has the first part from its first moment.
func TestALargeReportIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	seen := c.watchState(t)
	joinedA := c.join(t, broker("a"))
	all := manyCopies(13_000)
	const generation = 7
	report := func(by Replica, copies []Suspect) {
		t.Helper()
		if err := c.Report(ctx, by, generation, copies); err != nil {
			t.Fatal(err)
		}
		seen.wait("the report", func(s *State) bool {
			n, err := s.reported("a", generation, copies)
			return n == len(copies) && err == nil && s.ReportedIn("a", "zzz") == generation
		})
	}
	first := Replica{"a", joinedA.incarnation()}
	report(first, all)
	parts := c.keys(t, c.reportKey("a"))
	if parts < 2 {
		t.Fatalf("the report is in %d keys", parts)
	}

	if err := c.Evict(ctx, first); err != nil {
		t.Fatal(err)
	}
	again := Replica{"a", joinedA.incarnation()}
	for _, s := range seen.all() {
		if b, ok := s.Broker("a"); ok && b.Replica() == again && s.ReportedIn("a", all[0].Topic) != generation {
			t.Errorf("at revision %d it was there without the first part of its report", s.Revision)
		}
	}
	report(again, all)
	report(again, all[:5])
	if left := c.keys(t, c.reportKey("a")); left != 1 {
		t.Errorf("a short report is in %d keys", left)
	}
	report(again, all[1_000:])
	report(again, nil)
	if left := c.keys(t, c.reportKey("a")); left != 1 {
		t.Errorf("an empty report is in %d keys", left)
	}
	joinedA.leave()
	seen.wait("no broker", func(s *State) bool { return len(s.Brokers) == 0 })
	if left := c.keys(t, c.reportKey("a")); left != 0 {
		t.Errorf("%d parts of its report outlived the broker", left)
	}
}
