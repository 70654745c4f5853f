package sender

import (
	"math/rand/v2"
	"testing"
)

// TestASenderMayHoldItsShare: by the rules of share, in bytes and in messages.
func TestASenderMayHoldItsShare(t *testing.T) {
	s := share{amount{1000, 500}, amount{30, 20}}
	exceeded := func(one, party, all, room, least int64) bool {
		ordinary := one+party <= 16*(room-all)
		byLeast := one <= least && party <= 2*(2*room-all)
		return one > 0 && !ordinary && !byLeast
	}
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[bool]int{}
	for range 50_000 {
		one := amount{r.Int64N(1200), r.Int64N(600)}
		if r.IntN(2) == 0 {
			one = amount{r.Int64N(40), r.Int64N(25)}
		}
		party := amount{one.bytes + r.Int64N(1200), one.messages + r.Int64N(600)}
		all := amount{party.bytes + r.Int64N(1200), party.messages + r.Int64N(600)}
		want := exceeded(one.bytes, party.bytes, all.bytes, 1000, 30) || exceeded(one.messages, party.messages, all.messages, 500, 20)
		seen[want]++
		if s.exceeded(one, party, all) != want {
			t.Fatalf("%v of %v of %v: exceeded is %v", one, party, all, !want)
		}
		if full := party.bytes > 8*(2000-all.bytes) || party.messages > 8*(1000-all.messages); s.overfull(party, all) != full {
			t.Fatalf("overfull with %v of %v is %v", party, all, !full)
		}
	}
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Errorf("exceeded: %v", seen)
	}
}

// TestASenderThatMayGoOnMayWithLess: what makes wake-ups rare is that the bound rises only as a
// sender or its party holds less.
func TestASenderThatMayGoOnMayWithLess(t *testing.T) {
	s := share{amount{1000, 500}, amount{30, 20}}
	r := rand.New(rand.NewPCG(5, 2))
	for range 50_000 {
		one, party := amount{1 + r.Int64N(60), 1}, amount{r.Int64N(2500), 1}
		less, lessParty := amount{r.Int64N(one.bytes + 1), 1}, amount{r.Int64N(party.bytes + 1), 1}
		if s.until(less, lessParty).bytes < s.until(one, party).bytes {
			t.Fatalf("%v of %v: %v; %v of %v: %v", one, party, s.until(one, party), less, lessParty, s.until(less, lessParty))
		}
	}
	if none := s.until(nobody, amount{}); (amount{}).within(none) {
		t.Errorf("nobody waits until all hold %v", none)
	}
}

// TestAloneASenderMayUseMostOfTheRoom: so a single busy shard is as fast as with all of it.
func TestAloneASenderMayUseMostOfTheRoom(t *testing.T) {
	s := share{amount{OutboxBytes, OutboxMessages}, amount{leastBytes, leastMessages}}
	if few := (amount{OutboxBytes * 8 / 9, OutboxMessages * 8 / 9}); s.exceeded(few, few, few) {
		t.Errorf("it may not hold %v", few)
	}
	if all := (amount{1, OutboxMessages}); !s.exceeded(all, all, all) {
		t.Error("it may hold all of it")
	}
}

// greedy are the members of parties that take all that they may, and are answered nothing.
type greedy struct {
	share
	holds   []amount // of the members of the last party
	party   int64
	all     int64
	largest int64 // of what one takes at once
}

// fill adds a party of so many members, and has each take what it may, in any order.
func (g *greedy) fill(r *rand.Rand, members int) {
	g.holds, g.party = make([]amount, members), 0
	for going := true; going; {
		going = false
		for _, i := range r.Perm(members) {
			party, all := amount{bytes: g.party}, amount{bytes: g.all}
			if g.exceeded(g.holds[i], party, all) || g.overfull(party, all) {
				continue
			}
			going = true
			n := 1 + r.Int64N(g.largest)
			g.holds[i].bytes += n
			g.party += n
			g.all += n
		}
	}
}

// TestGreedySendersShareAlike: however many senders of one party take all that they may, all stay
// within the room, a sender that comes next may hold the least, and none has far more than another.
func TestGreedySendersShareAlike(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		g := greedy{share: share{amount{1 << 20, 1 << 20}, amount{1 << 10, 1 << 10}}, largest: 512}
		g.fill(r, 1+r.IntN(100))
		if most := g.room.bytes + int64(len(g.holds))*(g.least.bytes+g.largest); g.all > most {
			t.Fatalf("seed %d: %d hold %d together", seed, len(g.holds), g.all)
		}
		small, large := g.holds[0].bytes, g.holds[0].bytes
		for _, h := range g.holds {
			small, large = min(small, h.bytes), max(large, h.bytes)
		}
		if large > 2*small+2*g.least.bytes+2*g.largest {
			t.Fatalf("seed %d: of %d the smallest holds %d, the largest %d", seed, len(g.holds), small, large)
		}
		if next := g.least.bytes; g.exceeded(amount{next, 1}, amount{g.party + next, 1}, amount{g.all + next, 1}) {
			t.Fatalf("seed %d: beside %d there is no room for another", seed, len(g.holds))
		}
	}
}

// TestGreedyPartiesLeaveRoom: each party of senders that are answered nothing leaves a third of
// what is left of the second room, and a ninth of it if more senders come than find the least. So a
// party that comes later may hold something, and is not refused.
func TestGreedyPartiesLeaveRoom(t *testing.T) {
	for _, c := range []struct{ parties, members, leaves int }{{5, 2000, 3}, {3, 100_000, 9}} {
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 8))
			g := greedy{share: share{amount{1 << 20, 1 << 20}, amount{1 << 10, 1 << 10}}, largest: 64}
			members := c.members
			for nth := range c.parties {
				left := 2*g.room.bytes - g.all
				g.fill(r, members)
				members /= c.leaves
				if now := 2*g.room.bytes - g.all; now < left/int64(c.leaves)-g.largest {
					t.Fatalf("seed %d: party %d of %d leaves %d of %d", seed, nth, c.members, now, left)
				}
				if !g.exceeded(amount{1, 1}, amount{g.party + 1, 1}, amount{g.all + 1, 1}) {
					t.Fatalf("seed %d: party %d holds %d, and takes more", seed, nth, g.party)
				}
				other := g.least.bytes
				if held := (amount{other, 1}); g.exceeded(held, held, amount{g.all + other, 1}) || g.overfull(held, amount{g.all + other, 1}) {
					t.Fatalf("seed %d: behind party %d there is no room for another", seed, nth)
				}
			}
		}
	}
}

// TestAPartyWithOneSenderIsNotCrowdedOut: beside a party with a thousand busy senders, one sender
// of another party may hold half as much as all of these.
func TestAPartyWithOneSenderIsNotCrowdedOut(t *testing.T) {
	s := share{amount{OutboxBytes, OutboxMessages}, amount{}}
	r := rand.New(rand.NewPCG(3, 3))
	const many, read = 1000, 4 << 10
	var one amount
	others := make([]amount, many)
	var party, all amount
	for range 400_000 { // all are answered and go on, as they may
		i := r.IntN(2 * many)
		if i >= many {
			if n := min(one.bytes, r.Int64N(2*read)); r.IntN(4) == 0 {
				one.bytes, all.bytes = one.bytes-n, all.bytes-n
			} else if !s.exceeded(one, one, all) {
				one.bytes, all.bytes = one.bytes+read, all.bytes+read
			}
			continue
		}
		if n := min(others[i].bytes, r.Int64N(2*read)); r.IntN(4) == 0 {
			others[i].bytes, party.bytes, all.bytes = others[i].bytes-n, party.bytes-n, all.bytes-n
		} else if !s.exceeded(others[i], party, all) {
			others[i].bytes, party.bytes, all.bytes = others[i].bytes+read, party.bytes+read, all.bytes+read
		}
	}
	if one.bytes < party.bytes/3 {
		t.Errorf("it holds %d KiB, the others %d KiB together", one.bytes>>10, party.bytes>>10)
	}
}
