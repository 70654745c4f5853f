package replica

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/log"
)

// copyLog is a log in these tests: the epoch of each record's batch, which with the offset
// identifies the record.
type copyLog struct {
	start  uint64
	epochs []uint64 // of the records from start on
}

func (l *copyLog) end() uint64 { return l.start + uint64(len(l.epochs)) }

func (l *copyLog) lineage() Lineage {
	in := Lineage{Start: l.start, End: l.end()}
	for i, e := range l.epochs {
		if i == 0 || l.epochs[i-1] != e {
			in.Epochs = append(in.Epochs, log.Epoch{Epoch: e, Start: l.start + uint64(i)})
		}
	}
	return in
}

func (l *copyLog) clone() *copyLog { return &copyLog{l.start, slices.Clone(l.epochs)} }

// carry carries out Compare's verdicts until it is Copy, and returns them.
func (l *copyLog) carry(leader *copyLog) (verdicts []Verdict) {
	for range 10 {
		v := Compare(leader.lineage(), l.lineage())
		verdicts = append(verdicts, v)
		switch v.Verb {
		case Copy:
			return verdicts
		case Truncate:
			l.epochs = l.epochs[:v.At-l.start]
		case Reset:
			l.start, l.epochs = v.At, nil
		}
	}
	return verdicts
}

// made returns a log from offset 1 with the given numbers of records of each epoch: made(1, 3, 2,
// 5) has three of epoch 1 and five of epoch 2.
func made(epochs ...uint64) *copyLog {
	l := &copyLog{start: 1}
	for i := 0; i < len(epochs); i += 2 {
		for range epochs[i+1] {
			l.epochs = append(l.epochs, epochs[i])
		}
	}
	return l
}

func (l *copyLog) from(start uint64) *copyLog {
	return &copyLog{start, slices.Clone(l.epochs[start-l.start:])}
}

func TestCompareFindsWhereLogsDiverge(t *testing.T) {
	for _, c := range []struct {
		story            string
		leader, follower *copyLog
		want             []Verdict
	}{
		{"a new follower of a new leader", made(), made(), []Verdict{{Copy, 1}}},
		{"a new follower", made(1, 5), made(), []Verdict{{Copy, 1}}},
		{"a new follower of one that has trimmed", made(1, 5).from(4), made(), []Verdict{{Reset, 4}, {Copy, 4}}},
		{"one that was away", made(1, 5, 2, 5), made(1, 3), []Verdict{{Copy, 4}}},
		{"one that was away for epochs", made(1, 5, 2, 5, 7, 1), made(1, 5, 2, 1), []Verdict{{Copy, 7}}},
		{"the former leader, with what nobody else got", made(1, 5, 2, 1), made(1, 8), []Verdict{{Truncate, 6}, {Copy, 6}}},
		// KIP-101, scenario 1: a follower whose watermark is lower than what was acknowledged
		// restarts. It keeps its records, since only epochs count, and so they are there when it
		// leads next.
		{"a restart behind the watermark", made(1, 2), made(1, 2), []Verdict{{Copy, 3}}},
		// KIP-101, scenario 2: both lose power. The follower returns first, with less, leads, and
		// appends other records at offsets that the former leader had not synced: equal lengths,
		// different records.
		{"equal lengths and different records", made(1, 1, 2, 1), made(1, 2), []Verdict{{Truncate, 2}, {Copy, 2}}},
		// KIP-279: two fast failovers. The follower led in an epoch that the leader does not know.
		// The leader's last epoch below that one is not where the logs diverge, since the follower
		// has less of it.
		{"an epoch that the leader doesn't know", made(1, 10, 3, 5), made(1, 7, 2, 8), []Verdict{{Truncate, 8}, {Copy, 8}}},
		{"two such epochs", made(1, 10, 4, 5), made(1, 6, 2, 4, 3, 9), []Verdict{{Truncate, 7}, {Copy, 7}}},
		{"epochs that interleave", made(1, 4, 3, 4, 5, 4), made(1, 4, 2, 2, 4, 9), []Verdict{{Truncate, 5}, {Copy, 5}}},
		{"an older leader that came to lead again, with less", made(1, 4), made(1, 4, 2, 3), []Verdict{{Truncate, 5}, {Copy, 5}}},
		{"nothing in common", made(2, 4), made(1, 3), []Verdict{{Reset, 1}, {Copy, 1}}},
		{"a leader that lost everything, which etcd lets lead", made(), made(1, 3), []Verdict{{Reset, 1}, {Copy, 1}}},
		// The leader trims, and followers learn of it later.
		{"a leader that has trimmed what both have", made(1, 9, 2, 9).from(12), made(1, 9, 2, 4), []Verdict{{Copy, 14}}},
		{"a leader that has trimmed all that both have", made(1, 9, 2, 9).from(12), made(1, 9), []Verdict{{Reset, 12}, {Copy, 12}}},
		{"and up to where the follower ends", made(1, 9, 2, 9).from(10), made(1, 9), []Verdict{{Reset, 10}, {Copy, 10}}},
		{"a follower that has trimmed more", made(1, 9, 2, 9), made(1, 9, 2, 4).from(12), []Verdict{{Copy, 14}}},
		{"and what parts them as well", made(1, 9, 3, 9), made(1, 11, 2, 9).from(12), []Verdict{{Reset, 1}, {Copy, 1}}},
		{"a leader that has trimmed everything", made(1, 9).from(10), made(1, 9), []Verdict{{Reset, 10}, {Copy, 10}}},
		{"a follower that has", made(1, 9), made(1, 9).from(10), []Verdict{{Reset, 1}, {Copy, 1}}},
		{"both have", made(1, 9).from(10), made(1, 9).from(10), []Verdict{{Copy, 10}}},
	} {
		follower := c.follower.clone()
		if got := follower.carry(c.leader); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.story, got, c.want)
		}
	}
}

// TestCompareResetsBelowAPartialLineage: a follower sends its newest MaxLineage epochs at most. If
// the leader knows none of these, the follower's log is reset.
func TestCompareResetsBelowAPartialLineage(t *testing.T) {
	var epochs []uint64
	for e := range uint64(2 * MaxLineage) {
		epochs = append(epochs, e+1, 1)
	}
	leader, follower := made(epochs...), made(epochs[:3*MaxLineage]...).lineage()
	follower.Epochs = follower.Epochs[len(follower.Epochs)-MaxLineage:]
	if got, want := Compare(leader.lineage(), follower), (Verdict{Copy, 3*MaxLineage/2 + 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	other := made(1, 5)
	if got, want := Compare(other.lineage(), follower), (Verdict{Reset, 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// shared returns up to which offset two logs are equal, from where both retain records; 0 if
// nowhere.
func shared(a, b *copyLog) uint64 {
	at := max(a.start, b.start)
	if at > a.end() || at > b.end() {
		return 0
	}
	for at < a.end() && at < b.end() && a.epochs[at-a.start] == b.epochs[at-b.start] {
		at++
	}
	return at
}

// TestCompareMakesPrefixesAndKeepsSharedRecords: random histories: the leader of each epoch appends
// to its log, and others copy some of it after they have carried out Compare's verdicts. Then a
// follower's log is a prefix of its leader's, and has lost nothing that both shared.
func TestCompareMakesPrefixesAndKeepsSharedRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := []*copyLog{made(), made(), made(), made()}
		epoch := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "epochs") {
			epoch += uint64(rapid.IntRange(1, 2).Draw(t, "next"))
			leader := logs[rapid.IntRange(0, len(logs)-1).Draw(t, "leader")]
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				for range rapid.IntRange(0, 3).Draw(t, "appended") {
					leader.epochs = append(leader.epochs, epoch)
				}
				if rapid.IntRange(0, 9).Draw(t, "trim") == 0 {
					n := rapid.IntRange(0, len(leader.epochs)).Draw(t, "trimmed")
					leader.start, leader.epochs = leader.start+uint64(n), leader.epochs[n:]
				}
				follower := logs[rapid.IntRange(0, len(logs)-1).Draw(t, "follower")]
				if follower == leader {
					continue
				}
				before := follower.clone()
				both := shared(leader, follower)
				verdicts := follower.carry(leader)
				for i, v := range verdicts {
					switch {
					case i == len(verdicts)-1 && v.Verb != Copy:
						t.Fatalf("%+v of %+v never ends: %v", before, leader, verdicts)
					case v.Verb == Reset && both > max(leader.start, before.start):
						t.Fatalf("%+v begins anew, which shares up to %d with its leader %+v", before, both, leader)
					}
				}
				if len(verdicts) > 3 { // truncated to nothing, then reset to where the leader's log starts
					t.Fatalf("%+v asked %d times of %+v: %v", before, len(verdicts), leader, verdicts)
				}
				if both > max(leader.start, before.start) && (follower.end() < both || follower.start != before.start) {
					t.Fatalf("%+v shared up to %d with %+v, and is %+v", before, both, leader, follower)
				}
				if at := shared(leader, follower); at != follower.end() {
					t.Fatalf("%+v is no prefix of its leader %+v: they part at %d; it was %+v", follower, leader, at, before)
				}
				more := leader.epochs[follower.end()-leader.start:]
				follower.epochs = append(follower.epochs, more[:rapid.IntRange(0, len(more)).Draw(t, "copied")]...)
				if rapid.IntRange(0, 5).Draw(t, "told") == 0 && leader.start > follower.start && leader.start <= follower.end() {
					follower.epochs = follower.epochs[leader.start-follower.start:]
					follower.start = leader.start
				}
			}
		}
	})
}

// TestWhereAnotherLogShowsThatAnEpochBeginsEarlier: another log has earlier records of an epoch of
// this one. Epochs of one log only, and offsets that this log does not retain, show nothing.
func TestWhereAnotherLogShowsThatAnEpochBeginsEarlier(t *testing.T) {
	own := Lineage{Start: 10, End: 40, Epochs: []log.Epoch{{Epoch: 2, Start: 12}, {Epoch: 4, Start: 23}, {Epoch: 5, Start: 30}}}
	for name, at := range map[string]struct{ other, want []log.Epoch }{
		"the same beginnings":  {own.Epochs, nil},
		"an earlier beginning": {[]log.Epoch{{Epoch: 2, Start: 12}, {Epoch: 4, Start: 20}}, []log.Epoch{{Epoch: 4, Start: 20}}},
		"a later one":          {[]log.Epoch{{Epoch: 4, Start: 25}}, nil},
		"another epoch":        {[]log.Epoch{{Epoch: 3, Start: 20}}, nil},
		"before the start":     {[]log.Epoch{{Epoch: 2, Start: 9}}, nil},
	} {
		if got := own.earlier(Lineage{Start: 1, End: 50, Epochs: at.other}); !slices.Equal(got, at.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
