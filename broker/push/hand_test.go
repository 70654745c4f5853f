package push

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func handOf(concurrency, records int) *hand {
	return newHand(rules{concurrency: concurrency, most: 100, records: records, batchBytes: math.MaxInt, backoff: []time.Duration{10}, maxDeliver: 3}, same)
}

func (h *hand) give(now int64, subject string, offsets ...uint64) {
	for _, o := range offsets {
		h.take(&item{offset: o, delivered: 1, subject: subject}, now)
	}
}

func offsets(batch []*item) (all []uint64) {
	for _, i := range batch {
		all = append(all, i.offset)
	}
	return all
}

func (h *hand) begins(t *testing.T, now int64, want ...uint64) []*item {
	t.Helper()
	batch, _ := h.begin(now, 100)
	if got := offsets(batch); !slices.Equal(got, want) {
		t.Fatalf("at %d a request begins with %v, want %v", now, got, want)
	}
	return batch
}

func TestASubjectHasOneRequestUnderWay(t *testing.T) {
	h := handOf(3, 1)
	h.give(0, "a", 1, 2)
	h.give(0, "b", 3)
	first := h.begins(t, 0, 1)
	h.begins(t, 0, 3)
	h.begins(t, 0)
	h.ended(first, false, answer{kind: accepted}, 0)
	h.begins(t, 0, 2)
}

func TestAFailedRecordHoldsItsSubjectOnly(t *testing.T) {
	h := handOf(1, 1)
	h.give(0, "a", 1, 2)
	h.give(0, "b", 3, 4)
	h.ended(h.begins(t, 0, 1), false, answer{kind: refusedIt}, 0)
	h.ended(h.begins(t, 0, 3), false, answer{kind: accepted}, 0)
	h.ended(h.begins(t, 0, 4), false, answer{kind: accepted}, 0)
	h.begins(t, 9)
	if at := h.due(9); at != 10 {
		t.Errorf("something is due at %d", at)
	}
	batch := h.begins(t, 10, 1)
	batch[0].delivered = 3
	if v := h.ended(batch, false, answer{kind: refusedIt}, 10); v[0] != givenUp {
		t.Errorf("after its last attempt the verdict is %d", v[0])
	}
	h.begins(t, 10, 2)
}

func TestAnOutageUsesUpNoAttempts(t *testing.T) {
	h := handOf(1, 1)
	for n := range uint64(10) {
		h.give(0, fmt.Sprint(n), n+1)
	}
	down := answer{kind: unavailable}
	now := int64(0)
	for range circuitFailures {
		batch, _ := h.begin(now, 1)
		batch[0].counted = true
		h.ended(batch, false, down, now)
	}
	if !h.circuit.open || h.open(math.MaxInt) {
		t.Fatal("the circuit is closed, or more is taken")
	}
	var probed []uint64
	for range 20 {
		now = h.due(now)
		batch, probe := h.begin(now, 1)
		if len(batch) != 1 || !probe {
			t.Fatalf("at %d there is no probe", now)
		}
		batch[0].delivered = 3 // the last attempt
		if v := h.ended(batch, probe, down, now); v[0] != retried {
			t.Fatalf("a record was given up in an outage")
		}
		probed = append(probed, batch[0].offset)
	}
	slices.Sort(probed)
	if n := len(slices.Compact(probed)); n < 10 {
		t.Errorf("only %d records were probes: one that breaks the endpoint could keep it shut for ever", n)
	}
	now = h.due(now)
	batch, probe := h.begin(now, 1)
	h.ended(batch, probe, answer{kind: accepted}, now)
	if h.circuit.open {
		t.Error("the circuit is open after a probe that was taken")
	}
}

// TestAnOutageGivesUpNothingWithFewAttempts: the circuit opens before the last attempt counts.
func TestAnOutageGivesUpNothingWithFewAttempts(t *testing.T) {
	for most := 1; most <= 5; most++ {
		h := handOf(1, 1)
		h.maxDeliver = most
		h.give(0, "a", 1)
		now := int64(0)
		for range 20 {
			now = max(now, h.due(now))
			batch, probe := h.begin(now, 1)
			if !probe && !batch[0].counted && h.circuit.failures > 0 {
				batch[0].delivered++
			}
			batch[0].counted = true
			v := h.ended(batch, probe, answer{kind: unavailable}, now)
			if v[0] == spared {
				h.begins(t, h.due(now))
				h.release(batch[0])
			}
			if v[0] != retried && v[0] != spared {
				t.Fatalf("with %d attempts the record was given up", most)
			}
		}
		if !h.circuit.open {
			t.Errorf("with %d attempts the circuit is closed", most)
		}
		// A working endpoint that fails at this record only.
		h.ended(h.begins(t, h.due(now), 1), true, answer{kind: unsent}, now)
		h.give(now, "b", 2)
		h.items[0], h.items[1] = h.items[1], h.items[0]
		now = max(now, h.due(now))
		h.ended(h.begins(t, now, 2), true, answer{kind: accepted}, now)
		h.items[0].delivered = uint64(most)
		if v := h.ended(h.begins(t, now, 1), false, answer{kind: unavailable}, now); v[0] != givenUp {
			t.Errorf("with %d attempts it is kept although others work", most)
		}
	}
}

// TestARecordThatBreaksTheEndpointDoesNotStopOthers: other subjects are looked for behind it.
func TestARecordThatBreaksTheEndpointDoesNotStopOthers(t *testing.T) {
	h := handOf(1, 1)
	h.give(0, "a", 1, 2, 3, 4, 5, 6, 7, 8)
	h.circuit.trip(0)
	if !h.open(math.MaxInt) {
		t.Fatal("only one subject is probed")
	}
	h.give(0, "b", 9)
	now := h.due(0)
	h.ended(h.begins(t, now, 1), true, answer{kind: unavailable, took: true}, now)
	now = h.due(now)
	h.ended(h.begins(t, now, 9), true, answer{kind: accepted}, now)
	if h.circuit.open {
		t.Error("the circuit is open")
	}
}

// TestTheOnlySubjectEndsByItsProbes: after an hour, if the endpoint takes connections.
func TestTheOnlySubjectEndsByItsProbes(t *testing.T) {
	for _, took := range []bool{true, false} {
		h := handOf(1, 1)
		h.give(0, "a", 1, 2)
		h.circuit.trip(0)
		now, ended := int64(0), false
		for now < int64(2*probeTime) && !ended {
			now = h.due(now)
			batch, probe := h.begin(now, 1)
			if batch[0].strict {
				batch[0].delivered, batch[0].counted = batch[0].delivered+1, true
			}
			v := h.ended(batch, probe, answer{kind: unavailable, took: took}, now)[0]
			if v == spared {
				h.release(batch[0])
				batch[0].delivered--
			}
			ended = v == givenUp
			if ended && now < int64(probeTime) {
				t.Fatalf("given up after %s", time.Duration(now))
			}
		}
		if ended != took {
			t.Errorf("with a connection %v it ended %v", took, ended)
		}
	}
}

func TestAClearedHandKeepsTheLinesUnderWay(t *testing.T) {
	h := handOf(2, 1)
	h.give(0, "a", 1, 2)
	batch := h.begins(t, 0, 1)
	h.clear()
	h.give(0, "a", 1)
	h.begins(t, 0)
	h.ended(batch, false, answer{kind: unsent}, 0)
	h.begins(t, 0, 1)
	if len(h.items) != 1 || len(h.lines) != 1 || h.bytes != 1 {
		t.Errorf("it has %d records in %d lines, and %d bytes", len(h.items), len(h.lines), h.bytes)
	}
}

func TestABatchIsAllOrNothing(t *testing.T) {
	h := handOf(2, 3)
	h.give(0, "a", 1, 2)
	h.give(0, "b", 3, 4)
	batch := h.begins(t, 0, 1, 2, 3)
	h.begins(t, 0) // 4 waits for 3
	h.ended(batch, false, answer{kind: refusedIt}, 0)
	h.begins(t, 0)
	for range 2 { // alone now, and first those before others of their subject
		h.begins(t, 10, []uint64{1, 3}[h.sending])
	}
}

func TestABatchWaitsForMore(t *testing.T) {
	h := handOf(2, 3)
	h.wait = 50
	h.give(7, "a", 1)
	h.begins(t, 56)
	if at := h.due(7); at != 57 {
		t.Errorf("it is due at %d", at)
	}
	h.give(20, "b", 2, 3)
	h.begins(t, 20, 1, 2, 3)
	h.give(30, "c", 4)
	h.begins(t, 80, 4)
}

func TestOrderOfSubjectsHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := handOf(rapid.IntRange(1, 4).Draw(t, "concurrency"), rapid.IntRange(1, 4).Draw(t, "records"))
		type request struct {
			batch []*item
			probe bool
		}
		var underWay []request
		next, now := uint64(1), int64(0)
		settled := map[uint64]bool{}
		given := map[string][]uint64{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				subject := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "subject")
				h.give(now, subject, next)
				given[subject] = append(given[subject], next)
				next++
			case 1:
				batch, probe := h.begin(now, 3)
				if batch == nil {
					break
				}
				in := map[uint64]bool{}
				for _, i := range batch {
					for _, r := range underWay {
						if slices.ContainsFunc(r.batch, func(o *item) bool { return o.subject == i.subject }) {
							t.Fatalf("two requests of subject %s", i.subject)
						}
					}
					for _, earlier := range given[i.subject] {
						if earlier < i.offset && !settled[earlier] && !in[earlier] {
							t.Fatalf("%d is sent before %d was settled", i.offset, earlier)
						}
					}
					in[i.offset] = true
				}
				underWay = append(underWay, request{batch, probe})
			case 2:
				if len(underWay) == 0 {
					break
				}
				n := rapid.IntRange(0, len(underWay)-1).Draw(t, "which")
				r := underWay[n]
				underWay = slices.Delete(underWay, n, n+1)
				a := answer{kind: kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind"))}
				for n, v := range h.ended(r.batch, r.probe, a, now) {
					r.batch[n].delivered++
					settled[r.batch[n].offset] = v != retried
				}
			case 3:
				now += rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "time")
			}
		}
		// Everything is sent in the end.
		for range 1000 {
			for _, r := range underWay {
				for n, v := range h.ended(r.batch, r.probe, answer{kind: accepted}, now) {
					settled[r.batch[n].offset] = v == acknowledged
				}
			}
			underWay = nil
			if len(h.items) == 0 {
				return
			}
			if at := h.due(now); at > now && at < math.MaxInt64 {
				now = at
			}
			for batch, probe := h.begin(now, 3); batch != nil; batch, probe = h.begin(now, 3) {
				underWay = append(underWay, request{batch, probe})
			}
		}
		t.Fatalf("%d records are left", len(h.items))
	})
}
