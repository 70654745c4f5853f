package work

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelQueue is what a FairQueue does, said without heaps: by looking at all items.
type modelQueue struct {
	items   []modelItem // in the order in which they came
	running map[Client]int
	turns   map[Client]int // of connections, and of users as connection 0
	turn    int
}

type modelItem struct {
	of           Client
	number, size int
}

func userOf(of Client) Client { return Client{User: of.User} }

// count adds up something of the items of a client, or of a user.
func (m *modelQueue) count(of Client, what func(modelItem) int) (n int) {
	for _, one := range m.items {
		if one.of == of || userOf(one.of) == of {
			n += what(one)
		}
	}
	return n
}

func (m *modelQueue) runs(of Client) (n int) {
	for client, running := range m.running {
		if client == of || userOf(client) == of || of == (Client{}) {
			n += running
		}
	}
	return n
}

func one(modelItem) int     { return 1 }
func bytes(i modelItem) int { return i.size }

func (m *modelQueue) serve(of Client) {
	m.turn++
	m.turns[of], m.turns[userOf(of)] = m.turn, m.turn
	m.running[of]++
}

func (m *modelQueue) append(item modelItem) {
	for _, of := range []Client{item.of, userOf(item.of)} {
		if m.count(of, one) == 0 {
			m.turn++
			m.turns[of] = m.turn
		}
	}
	m.items = append(m.items, item)
}

// mayRun reports whether an item of a client may run, apart from whose turn it is.
func (m *modelQueue) mayRun(of Client, p places) bool {
	all, user, own := m.runs(Client{}), m.runs(userOf(of)), m.running[of]
	if all >= p.all || user >= p.user || own >= p.connection {
		return false
	}
	lastOfAll, lastOfUser := all == p.all-1 && p.user < p.all, user == p.user-1 && p.connection < p.user
	return (!lastOfAll || user == 0) && (!lastOfUser || own == 0)
}

// next returns the index of the item whose turn it is, or -1.
func (m *modelQueue) next(p places) int {
	best := -1
	rank := func(i int) []int {
		of := m.items[i].of
		return []int{m.runs(userOf(of)), m.turns[userOf(of)], m.running[of], m.turns[of]}
	}
	for i, item := range m.items {
		if m.mayRun(item.of, p) && (best < 0 || slices.Compare(rank(i), rank(best)) < 0) {
			best = i
		}
	}
	return best
}

// heaviest reports whether no user has more than that of a client, and none of its connections more
// than the client.
func (m *modelQueue) heaviest(of Client, what func(modelItem) int) bool {
	for _, item := range m.items {
		if m.count(userOf(item.of), what) > m.count(userOf(of), what) || item.of.User == of.User && m.count(item.of, what) > m.count(of, what) {
			return false
		}
	}
	return true
}

// dropped removes what was dropped, and reports whether it had to be that.
func (m *modelQueue) dropped(number int, what func(modelItem) int) error {
	i := slices.IndexFunc(m.items, func(item modelItem) bool { return item.number == number })
	if i < 0 {
		return fmt.Errorf("item %d, which did not wait", number)
	}
	of := m.items[i].of
	if slices.ContainsFunc(m.items[i+1:], func(item modelItem) bool { return item.of == of }) {
		return fmt.Errorf("item %d, which was not the newest of its connection", number)
	}
	if !m.heaviest(of, what) {
		return fmt.Errorf("item %d, though others had more", number)
	}
	m.items = slices.Delete(m.items, i, i+1)
	return nil
}

// TestFairQueuesDoWhatTheModelSays: who runs, who waits, who is dropped and who is refused, with
// arbitrary pushes, ends and removals of several users with several connections each.
func TestFairQueuesDoWhatTheModelSays(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		all, most, mostBytes := 1+random.IntN(12), random.IntN(20), random.IntN(2)*200
		q, m := NewFairQueue[int](all, most, mostBytes), &modelQueue{running: map[Client]int{}, turns: map[Client]int{}}
		p := newPlaces(all)
		var shares []*Share[int]
		var places []*Queued[int]
		ran := 0
		for number := range 600 {
			if len(shares) > 0 && random.IntN(3) == 0 { // one ends
				i := random.IntN(len(shares))
				ended := shares[i]
				m.running[ended.client]--
				item, share, ok := q.Next(ended)
				if want := m.next(p); ok != (want >= 0) || ok && item != m.items[want].number {
					t.Fatalf("seed %d, step %d: the next is %d, %v; want index %d of %v", seed, number, item, ok, want, m.items)
				} else if ok {
					of := m.items[want].of
					m.items = slices.Delete(m.items, want, want+1)
					m.serve(of)
					places = slices.DeleteFunc(places, func(one *Queued[int]) bool { return one.of == nil })
					shares[i] = share
					ran++
				} else {
					q.Leave(ended)
					shares = slices.Delete(shares, i, i+1)
				}
				if more := m.next(p); more >= 0 {
					t.Fatalf("seed %d, step %d: %v waits and may run", seed, number, m.items[more])
				}
				continue
			}
			if i := random.IntN(8); i < len(places) && places[i].of != nil { // one gives up
				gone := places[i].item
				q.Remove(places[i])
				m.items = slices.DeleteFunc(m.items, func(item modelItem) bool { return item.number == gone })
				continue
			}
			of := Client{1 + random.Uint64N(1+random.Uint64N(6)), 1 + random.Uint64N(1+random.Uint64N(5))}
			share, ok := q.Start(of)
			if want := m.mayRun(of, p); ok != want {
				t.Fatalf("seed %d, step %d: %v starts: %v", seed, number, of, ok)
			} else if ok {
				m.serve(of)
				shares = append(shares, share)
				continue
			}
			item := modelItem{of, number, random.IntN(60)}
			m.append(item)
			queued, out := q.Push(of, number, item.size)
			for _, other := range out {
				what := bytes
				if most > 0 && len(m.items) > most {
					what = one
				} else if mostBytes == 0 || m.total() <= mostBytes {
					t.Fatalf("seed %d, step %d: item %d was dropped, and there is room", seed, number, other)
				}
				if err := m.dropped(other, what); err != nil {
					t.Fatalf("seed %d, step %d: dropped %v: %v", seed, number, err, m.items)
				}
			}
			switch {
			case queued != nil && (most > 0 && len(m.items) > most || mostBytes > 0 && m.total() > mostBytes):
				t.Fatalf("seed %d, step %d: %d items of %d bytes wait", seed, number, len(m.items), m.total())
			case queued != nil:
				places = append(places, queued)
			case most > 0 && len(m.items) > most && m.heaviest(of, one) || mostBytes > 0 && m.total() > mostBytes && m.heaviest(of, bytes):
				m.items = m.items[:len(m.items)-1]
			default:
				t.Fatalf("seed %d, step %d: %v was refused, and others have more: %v", seed, number, of, m.items)
			}
			if q.Len() != len(m.items) || q.bytes != m.total() || q.running != m.runs(Client{}) {
				t.Fatalf("seed %d, step %d: %d items of %d bytes", seed, number, q.Len(), q.bytes)
			}
		}
		if ran == 0 {
			t.Errorf("seed %d: nothing that waited ran", seed)
		}
	}
}

func (m *modelQueue) total() (n int) {
	for _, item := range m.items {
		n += item.size
	}
	return n
}

// TestEachUserHasItsShareInARound: users with 1, 10, 100 … connections always have work. In each
// round each user is served as often as any, and so is each connection in rounds of its user.
func TestEachUserHasItsShareInARound(t *testing.T) {
	for _, all := range []int{1, 2, 8, 64} {
		q := NewFairQueue[Client](all, 0, 0)
		random := rand.New(rand.NewPCG(uint64(all), 1))
		connections := []uint64{1, 10, 100, 1, 30}
		var running []*Share[Client]
		for user, n := range connections {
			for connection := range n {
				for range 2*all/int(n) + 3 {
					of := Client{uint64(user), connection}
					if share, ok := q.Start(of); ok {
						running = append(running, share)
					} else {
						q.Push(of, of, 1)
					}
				}
			}
		}
		users, clients, holds := map[uint64]int{}, map[Client]int{}, map[uint64]int{}
		for step := range 20_000 {
			if len(running) == 0 {
				t.Fatalf("%d places: nothing runs", all)
			}
			i := 0 // one of the same length each, and then of any
			if step > 10_000 {
				i = random.IntN(len(running))
			}
			ended := running[i]
			running = slices.Delete(running, i, i+1)
			of := ended.client
			queued, _ := q.Push(of, of, 1) // it asks for more
			if queued == nil {
				t.Fatal("refused")
			}
			item, share, ok := q.Next(ended)
			if !ok {
				q.Leave(ended)
				continue
			}
			running = append(running, share)
			if users[item.User]++; step <= 10_000 {
				clients[item]++
			}
			clear(holds)
			for _, one := range running {
				holds[one.client.User]++
			}
			for user := range connections {
				if step > 2000 && holds[uint64(user)] > len(running)/len(connections)+1 {
					t.Fatalf("%d places, step %d: user %d has %d", all, step, user, holds[uint64(user)])
				}
			}
			if step == 10_000 {
				checkShares(t, all, users, clients, connections)
			}
		}
	}
}

// checkShares checks how often users and connections were served.
func checkShares(t *testing.T, all int, users map[uint64]int, clients map[Client]int, connections []uint64) {
	t.Helper()
	total := 0
	for _, n := range users {
		total += n
	}
	for user, n := range connections {
		part := total / len(connections)
		if got := users[uint64(user)]; got < part-all-len(connections) || got > part+all+len(connections) {
			t.Errorf("%d places: user %d was served %d times of %d", all, user, got, total)
		}
		for connection := range n {
			got, part := clients[Client{uint64(user), connection}], users[uint64(user)]/int(n)
			if got < part-all || got > part+all {
				t.Errorf("%d places: connection %d of user %d was served %d times, and others %d", all, connection, user, got, part)
			}
		}
	}
}

// TestANewUserWaitsForOneOfEachOther: users with deep queues have all of a single place. A user
// that comes is served after one item of each of them at most, and a new connection after one of
// each connection of its user.
func TestANewUserWaitsForOneOfEachOther(t *testing.T) {
	q := NewFairQueue[Client](1, 0, 0)
	place, _ := q.Start(Client{})
	const users, connections = 5, 7
	for range 20 {
		for user := range uint64(users) {
			for connection := range uint64(connections) {
				of := Client{1 + user, connection}
				q.Push(of, of, 1)
			}
		}
	}
	waits := func(of Client) (rounds int) {
		q.Push(of, of, 1)
		for {
			var item Client
			if item, place, _ = q.Next(place); item == of {
				return rounds
			}
			rounds++
		}
	}
	for round := range 10 {
		if n := waits(Client{100 + uint64(round), 1}); n > users {
			t.Errorf("a new user waits for %d items", n)
		}
	}
	if n := waits(Client{1, 100}); n > users*(connections+1) {
		t.Errorf("a new connection waits for %d items", n)
	}
}
