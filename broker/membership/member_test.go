package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/route"
)

// fakeStore is an etcd that stores silence reports.
type fakeStore struct {
	mu      sync.Mutex
	away    bool
	reports map[[2]coordination.Replica]int
	evicted []coordination.Replica
	since   int64
}

func (s *fakeStore) Join(ctx context.Context, self coordination.Broker, joined func(int64)) error {
	s.mu.Lock()
	s.since = self.Since
	s.mu.Unlock()
	joined(10)
	<-ctx.Done()
	return nil
}

func (s *fakeStore) Evict(_ context.Context, broker coordination.Replica) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted = append(s.evicted, broker)
	return nil
}

func (s *fakeStore) ReportSilent(_ context.Context, by, silent coordination.Replica) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return false, errors.New("etcd is away")
	}
	s.reports[[2]coordination.Replica{by, silent}]++
	return false, nil
}

func (s *fakeStore) WithdrawSilent(_ context.Context, by, heard coordination.Replica) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reports, [2]coordination.Replica{by, heard})
	return nil
}

type fakeLinks struct {
	mu      sync.Mutex
	members []route.Member
	up      int
	leaving string
	silent  []route.Member
	hushed  chan struct{}
}

func (l *fakeLinks) SetMembers(m []route.Member) { l.set(func() { l.members = m }) }
func (l *fakeLinks) Leaving(id string) bool      { return id == l.leaving }

func (l *fakeLinks) Linked() (up, members int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, max(len(l.members)-1, 0)
}

func (l *fakeLinks) Silent() []route.Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

func (l *fakeLinks) Hushed() <-chan struct{} { return l.hushed }

func (l *fakeLinks) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

type fakeClients struct{ urls, web []string }

func (c *fakeClients) SetURLs(urls, web []string) { c.urls, c.web = urls, web }

func newMember() (*Member, *fakeStore, *fakeLinks, *fakeClients) {
	store, links, clients := &fakeStore{reports: map[[2]coordination.Replica]int{}}, &fakeLinks{hushed: make(chan struct{}, 1)}, &fakeClients{}
	m := New("a", clients, slog.New(slog.DiscardHandler))
	m.SetLinks(links)
	return m, store, links, clients
}

var three = []coordination.Broker{{ID: "a", Client: "a:4222"}, {ID: "b", Client: "b:4222", Incarnation: 7}, {ID: "c", Client: "c:4222"}}

// TestClientsOfWebSocketAreToldOfItsPorts: of those members that have one, also if a member comes
// back with one and is otherwise the same.
func TestClientsOfWebSocketAreToldOfItsPorts(t *testing.T) {
	m, _, _, clients := newMember()
	m.SetMembers(three)
	if len(clients.web) > 0 {
		t.Errorf("clients were told of %v", clients.web)
	}
	web := slices.Clone(three)
	web[0].WebSocket, web[2].WebSocket = "a:9222", "c:9222"
	m.SetMembers(web)
	if !slices.Equal(clients.web, []string{"c:9222"}) || !slices.Equal(clients.urls, []string{"b:4222", "c:4222"}) {
		t.Errorf("clients were told of %v and %v", clients.web, clients.urls)
	}
}

// TestClientsAreToldOfOtherMembers: clients are told of all other members, except of those that
// announced that they leave.
func TestClientsAreToldOfOtherMembers(t *testing.T) {
	m, _, links, clients := newMember()
	m.SetMembers(three)
	if !slices.Equal(clients.urls, []string{"b:4222", "c:4222"}) {
		t.Errorf("clients were told of %v", clients.urls)
	}
	links.leaving = "b"
	m.advertise()
	if !slices.Equal(clients.urls, []string{"c:4222"}) {
		t.Errorf("after b announced its end, clients were told of %v", clients.urls)
	}
}

// TestAnUnreachableMemberDelaysClientsABoundedTime: a broker accepts clients once it is registered
// and linked to all members. An unreachable member delays that by linkWait at most.
func TestAnUnreachableMemberDelaysClientsABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store, links, _ := newMember()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		links.up = 1 // of two
		ready := make(chan time.Duration, 1)
		began := time.Now()
		running.Go(func() {
			if m.AwaitLinks(ctx) {
				ready <- time.Since(began)
			}
		})
		m.SetMembers(three)
		synctest.Wait()
		if len(ready) > 0 {
			t.Fatal("clients were taken before the broker had registered")
		}
		m.SetSince(4)
		running.Go(func() { _ = m.Register(ctx, store, coordination.Broker{ID: "a"}) })
		if took := <-ready; took != linkWait {
			t.Errorf("waited %v for a member that can't be reached", took)
		}
		if !m.Joined() || m.Replica() != (coordination.Replica{Broker: "a", Incarnation: 10}) || m.Since() != 4 || store.since != 4 {
			t.Errorf("registered as %v since %d, told etcd since %d", m.Replica(), m.Since(), store.since)
		}
	})
}

// TestADeadMemberIsNotWaitedFor: of two members one is dead, and its registration ends with its
// lease. Clients are accepted then.
func TestADeadMemberIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, links, _ := newMember()
		links.up = 1 // of two
		m.joined(10)
		m.SetMembers(three)
		began := time.Now()
		ready := make(chan time.Duration, 1)
		go func() {
			if m.AwaitLinks(t.Context()) {
				ready <- time.Since(began)
			}
		}()
		time.Sleep(coordination.DefaultLeaseTTL)
		synctest.Wait()
		if len(ready) > 0 {
			t.Fatal("clients were accepted without a link to a member")
		}
		m.SetMembers(three[:2])
		if took := <-ready; took != coordination.DefaultLeaseTTL {
			t.Errorf("waited %v for a member that was dead", took)
		}
	})
}

// TestASilentMemberIsReportedUntilItIsHeard: a silent member is reported once per incarnation of
// this broker, as soon as etcd answers. The report is withdrawn when the member is heard again.
func TestASilentMemberIsReportedUntilItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store, links, _ := newMember()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		b := coordination.Replica{Broker: "b", Incarnation: 7}
		reports := func(by int64) int {
			store.mu.Lock()
			defer store.mu.Unlock()
			return store.reports[[2]coordination.Replica{{Broker: "a", Incarnation: by}, b}]
		}
		store.away, links.silent = true, []route.Member{{ID: "b", Incarnation: 7}}
		m.joined(10)
		running.Go(func() { m.ReportSilent(ctx, store) })
		time.Sleep(5 * silenceTick)
		store.mu.Lock()
		store.away = false
		store.mu.Unlock()
		time.Sleep(5 * silenceTick)
		if n := reports(10); n != 1 {
			t.Errorf("reported %d times", n)
		}
		m.joined(11)
		time.Sleep(5 * silenceTick)
		if n := reports(11); n != 1 {
			t.Errorf("reported %d times in the next incarnation", n)
		}
		links.set(func() { links.silent = nil })
		links.hushed <- struct{}{}
		time.Sleep(5 * silenceTick)
		if n := reports(11); n != 0 {
			t.Error("the report stands although the member is heard again")
		}
	})
}

// TestADeadBrokerIsEvicted: a dead broker is evicted in the incarnation in which it died. A full
// queue does not block the links.
func TestADeadBrokerIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, store, _, _ := newMember()
		for n := range 2 * pendingEvictions {
			m.Evict(route.Member{ID: "b", Incarnation: int64(n)})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.EvictDead(ctx, store) }()
		synctest.Wait()
		cancel()
		<-done
		if len(store.evicted) != pendingEvictions || store.evicted[3] != (coordination.Replica{Broker: "b", Incarnation: 3}) {
			t.Errorf("evicted %v", store.evicted)
		}
	})
}
