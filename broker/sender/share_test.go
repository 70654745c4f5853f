package sender

import (
	"math/rand/v2"
	"testing"
)

// TestASenderMayHoldItsShare: of what is free, or the least; nothing beyond half as much again.
func TestASenderMayHoldItsShare(t *testing.T) {
	s := share{amount{1000, 500}, amount{30, 20}}
	exceeded := func(one, all, room, least int64) bool {
		return one > 0 && (2*all > 3*room || one > least && one > shareOfFree*(room-all))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		one := amount{r.Int64N(1200), r.Int64N(600)}
		if r.IntN(2) == 0 {
			one = amount{r.Int64N(40), r.Int64N(25)}
		}
		all := amount{one.bytes + r.Int64N(1200), one.messages + r.Int64N(600)}
		want := exceeded(one.bytes, all.bytes, 1000, 30) || exceeded(one.messages, all.messages, 500, 20)
		if s.exceeded(one, all) != want {
			t.Fatalf("%v of %v: exceeded is %v", one, all, !want)
		}
		if s.overfull(all) != (all.bytes > 2000 || all.messages > 1000) {
			t.Fatalf("overfull of %v is %v", all, s.overfull(all))
		}
	}
}

// TestAloneASenderMayUseMostOfTheRoom: so a single busy shard is as fast as with all of it.
func TestAloneASenderMayUseMostOfTheRoom(t *testing.T) {
	s := share{amount{OutboxBytes, OutboxMessages}, amount{leastBytes, leastMessages}}
	if few := (amount{OutboxBytes * 8 / 9, OutboxMessages * 8 / 9}); s.exceeded(few, few) {
		t.Errorf("it may not hold %v", few)
	}
	if s.exceeded(amount{1, OutboxMessages}, amount{1, OutboxMessages}) != true {
		t.Error("it may hold all of it")
	}
}

// TestGreedySendersLeaveRoom: however many senders take all that they may, and are answered
// nothing, a sender that comes next may hold something, and all stay within half as much again.
func TestGreedySendersLeaveRoom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := share{amount{1 << 20, 1 << 20}, amount{1 << 10, 1 << 10}}
		const step = 512
		holds := make([]amount, 1+r.IntN(100))
		var all amount
		for going := true; going; {
			going = false
			for _, i := range r.Perm(len(holds)) {
				if s.exceeded(holds[i], all) {
					continue
				}
				going = true
				n := 1 + r.Int64N(step)
				holds[i].bytes, all.bytes = holds[i].bytes+n, all.bytes+n
			}
		}
		if most := s.room.bytes + int64(len(holds))*(s.least.bytes+step); all.bytes > min(most, s.room.bytes*3/2+step) {
			t.Fatalf("seed %d: %d hold %d together", seed, len(holds), all.bytes)
		}
		small, large := holds[0].bytes, holds[0].bytes
		for _, h := range holds {
			small, large = min(small, h.bytes), max(large, h.bytes)
		}
		if large > 2*small+2*s.least.bytes+2*step {
			t.Fatalf("seed %d: of %d the smallest holds %d, the largest %d", seed, len(holds), small, large)
		}
		if next := (amount{s.least.bytes, 1}); s.exceeded(next, amount{all.bytes + next.bytes, 1}) {
			t.Fatalf("seed %d: beside %d there is no room for another", seed, len(holds))
		}
	}
}
