package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// room is a Budget on a clock of its own.
type room struct {
	*Budget[string]
	now time.Time
}

func newRoom(size int64) *room { return &room{New[string](size), time.Unix(1000, 0)} }

// asks opens a claim named "address number" and asks for size bytes.
func (r *room) asks(owner string, size int64) *Claim[string] {
	var from string
	_, _ = fmt.Sscan(owner, &from)
	c := r.Open(owner, from)
	r.Ask(c, size, 0, r.now)
	return c
}

func (r *room) returns(c *Claim[string]) (granted []string) {
	for _, g := range r.Return(c, r.now) {
		granted = append(granted, g.Owner)
	}
	return granted
}

// passes lets seconds pass, in which claims get bytes per second, and returns who was evicted.
func (r *room) passes(seconds int, rates map[*Claim[string]]int64) (evicted []string) {
	for range seconds {
		r.now = r.now.Add(time.Second)
		for c, rate := range rates {
			c.Arrived(c.arrived.Load() + rate)
		}
		for _, e := range r.Evict(r.now) {
			evicted = append(evicted, e.Owner)
		}
	}
	return evicted
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestAddressesTakeTurns is invariant A2: a hundred operations of one address delay another address
// by the operation that is under way.
func TestAddressesTakeTurns(t *testing.T) {
	r := newRoom(10)
	under := r.asks("filler", 10)
	waiting := map[string]*Claim[string]{}
	for i := range 100 {
		owner := fmt.Sprintf("many %d", i)
		waiting[owner] = r.asks(owner, 5)
	}
	for _, owner := range []string{"one 0", "two 0", "one 1"} {
		waiting[owner] = r.asks(owner, 5)
	}
	equal(t, "first", r.returns(under), "many 0", "one 0")
	equal(t, "then", r.returns(waiting["one 0"]), "two 0")
	equal(t, "then", r.returns(waiting["two 0"]), "one 1")
	equal(t, "many has its share", r.returns(waiting["one 1"]))
	equal(t, "many returns it", r.returns(waiting["many 0"]), "many 1")
}

// TestAnAddressHasItsShareAtMost is invariant A1: what is left is for others, at once.
func TestAnAddressHasItsShareAtMost(t *testing.T) {
	r := newRoom(100)
	for i := range 9 {
		r.asks(fmt.Sprintf("many %d", i), 10)
	}
	if r.Used() != 50 || r.Waiting() != 4 {
		t.Errorf("%d bytes are used, %d wait", r.Used(), r.Waiting())
	}
	if c := r.asks("one 0", 50); c.state != held {
		t.Error("another address waits")
	}
	if c := r.asks("two 0", 1); c.state != waiting {
		t.Error("more than the budget is held")
	}
}

// TestALargeClaimIsHeldAlone is invariant A1, too.
func TestALargeClaimIsHeldAlone(t *testing.T) {
	r := newRoom(100)
	small, beyond := r.asks("a 0", 10), r.asks("b 0", 200)
	c := r.asks("c 0", 10)
	if beyond.state != waiting || c.state != waiting {
		t.Error("they are not alone, or out of turn")
	}
	equal(t, "then", r.returns(small), "b 0")
	equal(t, "then", r.returns(beyond), "c 0")
	if c := r.asks("d 0", 80); c.state != held {
		t.Error("a claim beyond a share is its address's only one, and waits")
	}
}

// TestTheSlowestGiveWay is invariant A4: nobody while nobody waits, nobody at Floor or above, and
// no more than it takes.
func TestTheSlowestGiveWay(t *testing.T) {
	r := newRoom(40)
	dead, slow, fast, still := r.asks("a 0", 10), r.asks("b 0", 10), r.asks("c 0", 10), r.asks("d 0", 10)
	rates := map[*Claim[string]]int64{slow: Floor - 1, fast: Floor, dead: 0, still: 1}
	equal(t, "while nobody waits", r.passes(100, rates))
	waits := r.asks("e 0", 15)
	equal(t, "before Patience", r.passes(1, rates))
	equal(t, "after Patience", r.passes(1, rates), "a 0", "d 0")
	equal(t, "while they leave", r.passes(10, rates))
	equal(t, "the first leaves", r.returns(dead))
	equal(t, "the second leaves", r.returns(still), "e 0")
	rates[waits] = Floor
	r.asks("f 0", 10)
	equal(t, "the third", r.passes(2, rates), "b 0")
	equal(t, "it leaves", r.returns(slow), "f 0")
	r.asks("g 0", 10)
	equal(t, "f has a Window first", r.passes(2, rates), "f 0")
	rates[waits], rates[fast] = 0, Floor
	equal(t, "who stops is slow after a Window", r.passes(1, rates))
}

// TestWhoStopsSendingIsSlow, whatever it has sent before.
func TestWhoStopsSendingIsSlow(t *testing.T) {
	r := newRoom(20)
	c := r.asks("a 0", 10)
	rates := map[*Claim[string]]int64{c: 100 * Floor}
	r.asks("b 0", 15)
	equal(t, "it is fast", r.passes(100, rates))
	rates[c] = 0
	equal(t, "within a Window", r.passes(1, rates))
	equal(t, "after a Window", r.passes(1, rates), "a 0")
}

// TestWhoSendsNearlyAllAtOnceIsSlow a Window later: what came before does not count.
func TestWhoSendsNearlyAllAtOnceIsSlow(t *testing.T) {
	r := newRoom(20)
	c := r.asks("a 0", 10)
	r.asks("b 0", 15)
	equal(t, "all at once", r.passes(1, map[*Claim[string]]int64{c: 100 * Floor}))
	equal(t, "within a Window", r.passes(1, nil))
	equal(t, "after a Window", r.passes(1, nil), "a 0")
}

// TestAPausedBrokerBlamesNobody: what did not arrive while the broker did not run says nothing.
func TestAPausedBrokerBlamesNobody(t *testing.T) {
	r := newRoom(20)
	c := r.asks("a 0", 10)
	r.asks("b 0", 15)
	equal(t, "it is fast", r.passes(3, map[*Claim[string]]int64{c: Floor}))
	r.now = r.now.Add(time.Minute)
	equal(t, "after a pause, and a second", r.passes(2, nil))
	equal(t, "after a Window", r.passes(1, nil), "a 0")
}

// TestAnAddressGivesWayToItselfFirst is invariant A5: another one's slow operation stays if its
// room is of no use to those that wait.
func TestAnAddressGivesWayToItselfFirst(t *testing.T) {
	r := newRoom(40)
	alone := r.asks("alone 0", 10)
	first, second := r.asks("many 0", 10), r.asks("many 1", 10)
	for i := 2; i < 10; i++ {
		r.asks(fmt.Sprintf("many %d", i), 10)
	}
	equal(t, "only its own", r.passes(3, map[*Claim[string]]int64{first: 1}), "many 1", "many 0")
	equal(t, "they leave", append(r.returns(first), r.returns(second)...), "many 2", "many 3")
	fast := map[*Claim[string]]int64{}
	for _, c := range r.held {
		if c != alone {
			fast[c] = Floor
		}
	}
	equal(t, "not the other one's", r.passes(10, fast))
	r.asks("third 0", 20)
	equal(t, "unless it helps", r.passes(2, fast), "alone 0")
}

// check compares a Budget with what its claims say: A1 and A3, and that nothing leaks.
func (r *room) check(t *testing.T, open map[*Claim[string]]bool) {
	t.Helper()
	var used int64
	waits := 0
	byAddress, claims := map[*address[string]]int64{}, map[*address[string]]int{}
	largest := map[*address[string]]int64{}
	for c := range open {
		claims[c.from]++
		switch c.state {
		case held:
			used += c.size
			byAddress[c.from] += c.size
			largest[c.from] = max(largest[c.from], c.size)
			if r.held[c.index] != c {
				t.Fatal("a held claim is not in the list")
			}
		case waiting:
			waits++
			if !slices.Contains(c.from.waiting, c) || !slices.Contains(r.turns, c.from) {
				t.Fatal("a claim waits for no turn")
			}
		}
	}
	if used != r.used || waits != r.waits || len(r.addresses) != len(claims) {
		t.Fatalf("used %d, not %d; %d wait, not %d; %d addresses, not %d", r.used, used, r.waits, waits, len(r.addresses), len(claims))
	}
	if used > r.size && len(r.held) > 1 {
		t.Fatalf("%d bytes are held", used)
	}
	for a, n := range byAddress {
		if n != a.held || n > r.share && n > largest[a] {
			t.Fatalf("%s holds %d bytes, counts %d", a.name, n, a.held)
		}
	}
	for _, a := range r.turns {
		c := a.waiting[0]
		if a.held > 0 && a.held+c.size > r.share {
			continue
		}
		if r.used == 0 || r.used+c.size <= r.size {
			t.Fatalf("%s waits, and there is room", c.Owner)
		}
		break
	}
}

// TestRandomEvents: whatever clients do, all room is accounted for, and comes back.
func TestRandomEvents(t *testing.T) {
	evicted := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRoom(100)
		open := map[*Claim[string]]bool{}
		var all []*Claim[string]
		for range 400 {
			r.now = r.now.Add(time.Duration(rng.IntN(500)) * time.Millisecond)
			var c *Claim[string]
			if len(all) > 0 {
				c = all[rng.IntN(len(all))]
			}
			switch n := rng.IntN(10); {
			case c == nil || n < 2 && len(all) < 40:
				from := fmt.Sprintf("address%d", rng.IntN(6))
				c = r.Open(from, from)
				all, open[c] = append(all, c), true
			case n < 5 && c.state == idle:
				r.Ask(c, 1+rng.Int64N(60), rng.Int64N(10), r.now)
			case n < 7:
				c.Arrived(c.arrived.Load() + rng.Int64N(100<<10))
			case n < 9:
				r.Return(c, r.now)
			default:
				r.Close(c, r.now)
				delete(open, c)
				all = slices.DeleteFunc(all, func(x *Claim[string]) bool { return x == c })
			}
			for _, e := range r.Evict(r.now) {
				evicted++
				if r.Waiting() == 0 || e.Size == 0 || e.Held < Window {
					t.Fatalf("seed %d: evicted %+v", seed, e)
				}
			}
			r.check(t, open)
		}
		for _, c := range all {
			r.Close(c, r.now)
			delete(open, c)
			r.check(t, open)
		}
		if r.used != 0 || len(r.held) != 0 || len(r.turns) != 0 || len(r.addresses) != 0 {
			t.Fatalf("seed %d: something is left: %+v", seed, r.Budget)
		}
	}
	if evicted == 0 {
		t.Error("nobody was evicted")
	}
}

// TestAClaimAllocatesNothing, so that large messages cost no garbage.
func TestAClaimAllocatesNothing(t *testing.T) {
	r := newRoom(100)
	one, two := r.Open("a", "a"), r.Open("b", "b")
	if n := testing.AllocsPerRun(100, func() {
		r.Ask(one, 100, 0, r.now)
		r.Ask(two, 100, 0, r.now)
		one.Arrived(50)
		r.Evict(r.now)
		r.Return(one, r.now)
		r.Return(two, r.now)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
