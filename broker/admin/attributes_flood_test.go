package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
	etcdtest "github.com/carillon-mq/carillon/internal/testutil/etcd"
)

// floodTTL is the TTL of leases beside the flood: longer than a busy machine keeps a broker from
// renewing one.
const floodTTL = 15 * time.Second

// flooded is a broker's part in the flood: its registration, its State and its requests.
type flooded struct {
	t      *testing.T
	id     string
	main   *coordination.Client
	server *Server
	lives  atomic.Int64 // how often it has registered
	state  atomic.Pointer[coordination.State]

	mu      sync.Mutex
	waiting map[string]func([]byte) // by reply subject
	next    int

	made    atomic.Int64 // changes
	refused atomic.Int64 // requests, for the rate
}

// floodedBroker registers a broker at an etcd, and follows the State and the attributes.
func floodedBroker(t *testing.T, etcd *etcdtest.Server, id string, rate float64) *flooded {
	t.Helper()
	f := &flooded{t: t, id: id, waiting: map[string]func([]byte){}}
	config := coordination.Config{Endpoints: []string{etcd.Endpoint()}, Cluster: "default/main", LeaseTTL: floodTTL, Logger: slog.New(slog.DiscardHandler)}
	var err error
	f.main, err = coordination.Open(config)
	testutil.Must(t, err)
	all, err := coordination.OpenAttributes(config, attribute.NewStore())
	testutil.Must(t, err)
	f.server = New(id, known{&coordination.State{}}, f, slog.New(slog.DiscardHandler)).Attributes(all, 1, func(uint64) *identity.Identity { return nil }, func() float64 { return rate })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		self := coordination.Broker{ID: id, Name: id, Client: "h:1", Started: time.UnixMilli(1)}
		if err := f.main.Join(ctx, self, func(int64) { f.lives.Add(1) }); err != nil {
			t.Errorf("Join of %s ended with %v", id, err)
		}
	})
	running.Go(func() {
		_ = f.main.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) { f.state.Store(state) })
	})
	running.Go(func() { all.Follow(ctx) })
	t.Cleanup(func() {
		f.server.Close()
		cancel()
		running.Wait()
		_ = all.Close()
		_ = f.main.Close()
	})
	testutil.EventuallyTrue(t, id+" is registered", func() bool {
		state := f.state.Load()
		return state != nil && len(state.Brokers) > 0 && f.lives.Load() > 0 && all.Store().Stats().Ready
	})
	return f
}

// Send implements Hub: it passes answers to the requests that wait for them.
func (f *flooded) Send(messages []protocol.Message) (behind work.Behind) {
	for _, m := range messages {
		f.mu.Lock()
		answered := f.waiting[string(m.Subject)]
		delete(f.waiting, string(m.Subject))
		f.mu.Unlock()
		answered(append([]byte(nil), m.Data...))
	}
	return behind
}

func (f *flooded) SendLent(_ *session.Loan, messages []protocol.Message) work.Behind {
	return f.Send(messages)
}

func (f *flooded) Interested([]byte) bool { return true }

func (f *flooded) Forward(string, *protocol.Message) (linked bool, behind work.Behind) {
	return false, behind
}

// ask makes a client's request for changes. It calls then with the answer.
func (f *flooded) ask(client uint64, changes []AttributesChange, then func(AttributesResults)) {
	payload, err := json.Marshal(AttributesRequest{Changes: changes})
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	f.next++
	reply := "_INBOX." + strconv.Itoa(f.next)
	f.waiting[reply] = func(data []byte) {
		var answer AttributesResults
		if err := json.Unmarshal(data, &answer); err != nil {
			f.t.Errorf("an answer of %s: %v", data, err)
		}
		then(answer)
	}
	f.mu.Unlock()
	f.server.TakeOf(client, []protocol.Message{{Subject: []byte(AttributesSetSubject), Reply: []byte(reply), Data: payload}}, nil, &work.Behind{})
}

// flood has a client change attributes, with so many requests under way, until ctx ends.
func (f *flooded) flood(ctx context.Context, client uint64, atOnce int) {
	places := make(chan struct{}, atOnce)
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		changes := make([]AttributesChange, attribute.MaxChanges)
		for i := range changes {
			changes[i] = AttributesChange{Subject: fmt.Sprintf("%s.%d.%d", f.id, client, i), Set: attribute.Set{"n": attribute.Number(float64(n))}}
		}
		f.ask(client, changes, func(answer AttributesResults) {
			defer func() { <-places }()
			if answer.Error == nil {
				f.made.Add(int64(len(answer.Results)))
				return
			}
			switch answer.Error.Code {
			case Busy:
				if !strings.Contains(answer.Error.Text, fmt.Sprint(ChangeRate, " a second")) {
					f.t.Errorf("a request beyond the rate is refused with %q", answer.Error.Text)
				}
				f.refused.Add(1)
			case Unavailable: // etcd was too slow for it
			default:
				f.t.Errorf("a request is refused with %+v", answer.Error)
			}
		})
	}
	for range atOnce { // all answers
		places <- struct{}{}
	}
}

// TestAFloodOfAttributesDelaysNothingElse: clients of two brokers change attributes at the rate of
// the cluster, and some ask for far more. Meanwhile each broker renews its lease, and hears of
// Topics. Requests beyond the rate are refused, and those of a client with few of them are made.
func TestAFloodOfAttributesDelaysNothingElse(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	brokers := []*flooded{floodedBroker(t, etcd, "a", ChangeRate/2), floodedBroker(t, etcd, "b", ChangeRate/2)}
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	testutil.Must(t, err)
	defer raw.Close()
	// renewals counts how often the leases were renewed, by what is left of them.
	renewals, left := map[string]int{}, map[string]int64{}
	look := func() {
		for _, f := range brokers {
			ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
			got, err := raw.Get(ctx, "/carillon/default/main/brokers/"+f.id)
			if err == nil && len(got.Kvs) == 1 {
				var lease *clientv3.LeaseTimeToLiveResponse
				if lease, err = raw.TimeToLive(ctx, clientv3.LeaseID(got.Kvs[0].Lease)); err == nil {
					if was, known := left[f.id]; known && lease.TTL > was {
						renewals[f.id]++
					}
					left[f.id] = lease.TTL
				}
			}
			cancel()
			testutil.Must(t, err)
		}
	}
	flooding, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	t.Cleanup(func() { stop(); clients.Wait() })
	for _, f := range brokers {
		for client, atOnce := range map[uint64]int{1: 2, 2: 40, 3: 80} {
			clients.Go(func() { f.flood(flooding, client, atOnce) })
		}
	}
	for _, f := range brokers {
		testutil.EventuallyTrue(t, f.id+" refuses what is beyond the rate", func() bool { look(); return f.refused.Load() > 0 })
		name := "orders-" + f.id
		testutil.Eventually(t, "a Topic is made", func() error {
			_, err := f.main.CreateTopic(t.Context(), name, coordination.TopicSpec{Subjects: []string{name}, Shards: 1}, coordination.Owner{Kind: coordination.ClientOwner})
			return err
		})
		for _, other := range brokers {
			testutil.EventuallyTrue(t, other.id+" hears of a Topic", func() bool {
				look()
				return other.state.Load().Topic(name) != nil
			})
		}
		made := make(chan bool, 1)
		testutil.EventuallyTrue(t, "a client with few changes has its turn", func() bool {
			f.ask(9, []AttributesChange{{Subject: "quiet." + f.id, Set: attribute.Set{"x": attribute.Bool(true)}}}, func(answer AttributesResults) { made <- answer.Error == nil })
			return <-made
		})
	}
	for _, f := range brokers {
		testutil.EventuallyTrue(t, f.id+" renews its lease and makes changes", func() bool {
			look()
			return renewals[f.id] > 0 && f.made.Load() >= ChangeRate
		})
	}
	stop()
	clients.Wait()
	for _, f := range brokers {
		if lives := f.lives.Load(); lives != 1 {
			t.Errorf("broker %s lost its lease, and has registered %d times", f.id, lives)
		}
		t.Logf("broker %s made %d changes and refused %d requests; its lease was renewed %d times", f.id, f.made.Load(), f.refused.Load(), renewals[f.id])
	}
}
