package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/plan"
)

const (
	// PollInterval is the interval in which each broker is asked for its numbers, and so the
	// shortest one of status writes for numbers.
	PollInterval = 30 * time.Second
	// pollTimeout bounds one answer, and maxAnswer its size: 10,000 Topics with some Subscriptions
	// each. firstPoll is the time from opening a mirror to the first request: until then nothing is
	// known of the brokers' disks.
	firstPoll   = time.Second
	pollTimeout = 5 * time.Second
	maxAnswer   = 64 << 20
	// sweepPolls is the number of polls between two passes over all owners in etcd, which find
	// deletions whose event was missed.
	sweepPolls = 20
)

// Numbers are a broker's counts for a Topic that it leads.
type Numbers struct {
	Epoch    int64
	Messages int64
	Bytes    int64
	Trouble  string
	Troubled string // id of the broker that reported Trouble, for the first such shard
	// AgePaused is the reason why records of a shard are not deleted by age; empty: they are.
	AgePaused    string
	AgePausedWhy string
	// Uncounted means that the log was not open at any poll. Only Trouble is known.
	Uncounted     bool
	Subscriptions map[string]SubscriptionNumbers
	Views         map[string]ViewNumbers
	// MembersKnown means that all brokers have told their clients. Only the sum over all shards has
	// it, and the clients.
	MembersKnown bool
}

// SubscriptionNumbers are a broker's counts for a Subscription.
type SubscriptionNumbers struct {
	Lag, Pending, Redelivered int64
	DeadLettered              int64 // since the present leaders lead
	GivenUp                   int64 // records that wait for the dead-letter Topic
	DeadLetterTrouble         string
	Endangered                string // why retention is about to delete what was not acknowledged
	Endpoint                  string // the reason why the endpoint that it pushes to is not reached
	EndpointWhy               string // the same for people
	// Endpoints is 1 if a leader pushes to the endpoint and reaches it. Clients are the clients of
	// all brokers that read by it.
	Endpoints, Clients int64
}

// Members returns the number of active members: clients, or the endpoint.
func (n SubscriptionNumbers) Members() int64 { return n.Endpoints + n.Clients }

// Plus returns the sum with the numbers of another shard.
func (n SubscriptionNumbers) Plus(o SubscriptionNumbers) SubscriptionNumbers {
	n.Lag, n.Pending, n.Redelivered = n.Lag+o.Lag, n.Pending+o.Pending, n.Redelivered+o.Redelivered
	n.DeadLettered, n.GivenUp = n.DeadLettered+o.DeadLettered, n.GivenUp+o.GivenUp
	n.DeadLetterTrouble = cmp.Or(n.DeadLetterTrouble, o.DeadLetterTrouble)
	n.Endangered = cmp.Or(n.Endangered, o.Endangered)
	if n.Endpoint == "" {
		n.Endpoint, n.EndpointWhy = o.Endpoint, o.EndpointWhy
	}
	n.Endpoints, n.Clients = max(n.Endpoints, o.Endpoints), n.Clients+o.Clients
	return n
}

// ViewNumbers are a broker's counts for a View, as broker/view's Report has them.
type ViewNumbers struct {
	Keys, Late, Failed, Refused, RemovedUnread int64
	Watermark                                  int64  // in ns since 1970; 0: none
	Trouble                                    string // why it can't go on; empty: it does
}

// Plus returns the sum with the numbers of another shard. The watermark is the least: a shard
// without one keeps all windows open.
func (n ViewNumbers) Plus(o ViewNumbers) ViewNumbers {
	n.Keys, n.Late, n.Failed = n.Keys+o.Keys, n.Late+o.Late, n.Failed+o.Failed
	n.Refused, n.RemovedUnread = n.Refused+o.Refused, n.RemovedUnread+o.RemovedUnread
	n.Watermark = min(n.Watermark, o.Watermark)
	n.Trouble = cmp.Or(n.Trouble, o.Trouble)
	return n
}

// answer is a broker's answer to /topics.
type answer struct {
	Broker string `json:"broker"`
	// Clients are those of this broker, by Subscription; absent: its version does not count them.
	Clients []struct {
		Topic        string `json:"topic"` // id
		Subscription string `json:"subscription"`
		Clients      int64  `json:"clients"`
	} `json:"clients"`
	Topics []struct {
		ID            string `json:"id"`
		Shard         int    `json:"shard"`
		Epoch         int64  `json:"epoch"`
		Messages      int64  `json:"messages"`
		Bytes         int64  `json:"bytes"`
		Trouble       string `json:"trouble"`
		AgePaused     string `json:"agePaused"`
		AgePausedWhy  string `json:"agePausedWhy"`
		Subscriptions []struct {
			Name        string `json:"name"`
			Lag         int64  `json:"lag"`
			Pending     int64  `json:"pending"`
			Redelivered int64  `json:"redelivered"`

			DeadLettered      int64  `json:"deadLettered"`
			GivenUp           int64  `json:"givenUp"`
			DeadLetterTrouble string `json:"deadLetterTrouble"`
			Endangered        string `json:"endangered"`
			Endpoint          string `json:"endpoint"`
			EndpointWhy       string `json:"endpointWhy"`
			Push              *struct {
				Answer string `json:"answer"`
			} `json:"push"`
		} `json:"subscriptions"`
		Views []struct {
			Name          string    `json:"name"`
			Keys          int64     `json:"keys"`
			Watermark     time.Time `json:"watermark"`
			Late          int64     `json:"late"`
			Failed        int64     `json:"failed"`
			Refused       int64     `json:"refused"`
			RemovedUnread int64     `json:"removedUnread"`
			Trouble       string    `json:"trouble"`
		} `json:"views"`
	} `json:"topics"`
}

// numbers are the brokers' last answers.
type numbers struct {
	http     *http.Client
	interval time.Duration

	mu       sync.Mutex
	byBroker map[string]*count
	counted  bool // all brokers had told their clients at the end of the last poll
}

// count is the state of polling one broker.
type count struct {
	asking sync.Mutex // held while a request is under way

	// Guarded by asking.
	began  time.Time
	latest *told

	// Guarded by numbers.mu: the answer of the last regular poll.
	regular map[string]Numbers
	clients readers
}

// told is one answer of a broker.
type told struct {
	shards  map[string]Numbers // of those that it leads
	clients readers
}

// readers are the clients of one broker, by id of the Topic and name of the Subscription. nil: its
// version does not count them.
type readers map[string]map[string]int64

func newNumbers(interval time.Duration) *numbers {
	return &numbers{
		// Brokers are asked rarely, and come and go, so connections are not kept.
		http:     &http.Client{Timeout: pollTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
		interval: interval,
		byBroker: map[string]*count{},
	}
}

func (n *numbers) of(broker string) *count {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.byBroker[broker]
	if c == nil {
		c = &count{}
		n.byBroker[broker] = c
	}
	return c
}

// ask returns an answer of a broker to a request that began after the call. Concurrent callers wait
// for the request under way and then share one answer.
func (n *numbers) ask(ctx context.Context, broker coordination.Broker) (*told, error) {
	called := time.Now()
	c := n.of(broker.ID)
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.latest != nil && c.began.After(called) {
		return c.latest, nil
	}
	c.latest, c.began = nil, time.Now()
	latest, err := n.get(ctx, broker)
	if err != nil {
		return nil, fmt.Errorf("asking broker %s for its numbers: %w", broker.Name, err)
	}
	c.latest = latest
	return latest, nil
}

func (n *numbers) get(ctx context.Context, broker coordination.Broker) (*told, error) {
	if broker.HTTP == "" {
		return nil, errors.New("it has no HTTP address")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+broker.HTTP+"/topics", nil)
	if err != nil {
		return nil, err
	}
	response, err := n.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", response.Status)
	}
	var said answer
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&said); err != nil {
		return nil, fmt.Errorf("reading its answer: %w", err)
	}
	if said.Broker != broker.ID {
		return nil, fmt.Errorf("another broker, %q, answered", said.Broker)
	}
	found := make(map[string]Numbers, len(said.Topics))
	for _, t := range said.Topics {
		one := Numbers{Epoch: t.Epoch, Messages: t.Messages, Bytes: t.Bytes, Trouble: t.Trouble, AgePaused: t.AgePaused, AgePausedWhy: t.AgePausedWhy}
		if one.Trouble != "" {
			one.Troubled = broker.ID
		}
		for _, s := range t.Subscriptions {
			if one.Subscriptions == nil {
				one.Subscriptions = map[string]SubscriptionNumbers{}
			}
			is := SubscriptionNumbers{
				Lag: s.Lag, Pending: s.Pending, Redelivered: s.Redelivered, DeadLettered: s.DeadLettered, GivenUp: s.GivenUp,
				DeadLetterTrouble: s.DeadLetterTrouble, Endangered: s.Endangered, Endpoint: s.Endpoint, EndpointWhy: s.EndpointWhy,
			}
			if s.Push != nil && s.Push.Answer != "" && s.Endpoint == "" {
				is.Endpoints = 1
			}
			one.Subscriptions[s.Name] = is
		}
		for _, v := range t.Views {
			if one.Views == nil {
				one.Views = map[string]ViewNumbers{}
			}
			is := ViewNumbers{Keys: v.Keys, Late: v.Late, Failed: v.Failed, Refused: v.Refused, RemovedUnread: v.RemovedUnread, Trouble: v.Trouble}
			if !v.Watermark.IsZero() {
				is.Watermark = v.Watermark.UnixNano()
			}
			one.Views[v.Name] = is
		}
		found[shardKey(t.ID, t.Shard)] = one
	}
	return &told{found, said.readers()}, nil
}

// readers returns the clients of the broker.
func (a *answer) readers() readers {
	if a.Clients == nil {
		return nil
	}
	all := readers{}
	for _, c := range a.Clients {
		if all[c.Topic] == nil {
			all[c.Topic] = map[string]int64{}
		}
		all[c.Topic][c.Subscription] += c.Clients
	}
	return all
}

// shardKey returns a key for a shard. That of the first shard is its Topic's id.
func shardKey(topicID string, number int) string {
	if number == 0 {
		return topicID
	}
	return fmt.Sprint(topicID, "/", number)
}

// Numbers returns the sum over all shards of a Topic, as of the last poll. ok is false if those of
// a shard are unknown.
func (m *Mirror) Numbers(topicID string) (sum Numbers, ok bool) {
	shards := m.State().Shards(topicID)
	m.numbers.mu.Lock()
	defer m.numbers.mu.Unlock()
	for _, shard := range shards {
		c := m.numbers.byBroker[shard.Leader]
		if c == nil {
			return Numbers{}, false
		}
		one, known := c.regular[shardKey(topicID, shard.Number)]
		if !known {
			return Numbers{}, false
		}
		sum.add(one)
	}
	m.addClients(topicID, &sum)
	return sum, len(shards) > 0
}

// addClients adds the clients that all brokers told. The numbers' mu is held.
func (m *Mirror) addClients(topicID string, sum *Numbers) {
	brokers := m.State().Brokers
	if sum.MembersKnown = m.numbers.allCount(brokers); !sum.MembersKnown {
		return
	}
	for _, b := range brokers {
		c := m.numbers.byBroker[b.ID]
		for name, n := range c.clients[topicID] {
			if s, counted := sum.Subscriptions[name]; counted {
				s.Clients += n
				sum.Subscriptions[name] = s
			}
		}
	}
}

// allCount reports whether all brokers have told their clients. mu is held.
func (n *numbers) allCount(brokers []coordination.Broker) bool {
	for i := range brokers {
		if c := n.byBroker[brokers[i].ID]; c == nil || c.clients == nil {
			return false
		}
	}
	return true
}

// countedChanged notes whether all brokers have told their clients, and reports whether that is
// another answer than the last time.
func (n *numbers) countedChanged(brokers []coordination.Broker) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.counted
	n.counted = n.allCount(brokers)
	return n.counted != before
}

// add adds the numbers of another shard.
func (n *Numbers) add(other Numbers) {
	n.Epoch = max(n.Epoch, other.Epoch)
	n.Messages += other.Messages
	n.Bytes += other.Bytes
	if n.Trouble == "" {
		n.Trouble, n.Troubled = other.Trouble, other.Troubled
	}
	if n.AgePaused == "" {
		n.AgePaused, n.AgePausedWhy = other.AgePaused, other.AgePausedWhy
	}
	n.Uncounted = n.Uncounted || other.Uncounted
	for name, s := range other.Subscriptions {
		if n.Subscriptions == nil {
			n.Subscriptions = map[string]SubscriptionNumbers{}
		}
		n.Subscriptions[name] = n.Subscriptions[name].Plus(s)
	}
	for name, v := range other.Views {
		if n.Views == nil {
			n.Views = map[string]ViewNumbers{}
		}
		if former, ok := n.Views[name]; ok {
			v = former.Plus(v)
		}
		n.Views[name] = v
	}
}

// Records asks the leaders whether a Topic holds records. Only the leader of a shard's present
// epoch knows; a Topic that was never placed holds none.
func (m *Mirror) Records(ctx context.Context, topicID string) plan.Records {
	state, answers := m.State(), plan.NoRecords
	for _, shard := range state.Shards(topicID) {
		leader, there := state.Broker(shard.Leader)
		if !there {
			return plan.RecordsUnknown
		}
		all, err := m.numbers.ask(ctx, leader)
		if err != nil {
			m.log.Info("Whether a Topic holds records is not known", "topicID", topicID, "error", err)
			return plan.RecordsUnknown
		}
		switch one, ok := all.shards[shardKey(topicID, shard.Number)]; {
		case !ok || one.Epoch != shard.Epoch:
			return plan.RecordsUnknown
		case one.Messages > 0:
			answers = plan.SomeRecords
		}
	}
	return answers
}

// poll asks every broker, every PollInterval.
func (m *Mirror) poll(ctx context.Context) {
	timer := time.NewTimer(min(m.numbers.interval, firstPoll))
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(m.numbers.interval)
		state := m.State()
		if state == nil {
			continue
		}
		if state.TopicCount() > 0 {
			m.pollAll(ctx, state)
		}
		m.numbers.forget(state)
		if n%sweepPolls == 0 {
			m.tellOwners()
		}
	}
}

func (m *Mirror) pollAll(ctx context.Context, state *coordination.State) {
	var all sync.WaitGroup
	for _, broker := range state.Brokers {
		all.Go(func() {
			found, err := m.numbers.ask(ctx, broker)
			if err != nil {
				m.log.Debug("A broker's numbers are not known", "broker", broker.Name, "error", err)
				return // the last answer stands
			}
			for _, key := range m.numbers.take(broker.ID, found) {
				id, _, _ := strings.Cut(key, "/")
				m.tellOf(state, id)
			}
		})
	}
	all.Wait()
	if m.numbers.countedChanged(state.Brokers) {
		m.tellOwners() // the number of members came or went everywhere
	}
}

// take stores a broker's answer, and returns the shards for which it differs from the last one, and
// the Topics whose clients differ.
func (n *numbers) take(broker string, said *told) (changed []string) {
	found := said.shards
	c := n.of(broker)
	n.mu.Lock()
	defer n.mu.Unlock()
	regular := make(map[string]Numbers, len(found))
	for id, is := range found {
		was, ok := c.regular[id]
		if is.Epoch == 0 { // the log is not open, so nothing was counted
			is.Messages, is.Bytes, is.Subscriptions, is.Views = was.Messages, was.Bytes, was.Subscriptions, was.Views
			is.Uncounted = !ok || was.Uncounted
		}
		if !ok || !was.equal(is) {
			changed = append(changed, id)
		}
		regular[id] = is
	}
	changed = append(changed, c.clients.differ(said.clients)...)
	c.regular, c.clients = regular, said.clients
	return changed
}

// differ returns the ids of Topics whose Subscriptions have other numbers of clients now.
func (r readers) differ(now readers) (topics []string) {
	for id := range r {
		if !maps.Equal(r[id], now[id]) {
			topics = append(topics, id)
		}
	}
	for id := range now {
		if _, was := r[id]; !was {
			topics = append(topics, id)
		}
	}
	return topics
}

// forget removes absent brokers. Their counts stay in the statuses.
func (n *numbers) forget(state *coordination.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.byBroker {
		if _, there := state.Broker(id); !there {
			delete(n.byBroker, id)
		}
	}
}

func (n Numbers) equal(o Numbers) bool {
	if n.Messages != o.Messages || n.Bytes != o.Bytes || n.Trouble != o.Trouble || n.AgePaused != o.AgePaused || n.AgePausedWhy != o.AgePausedWhy || n.Uncounted != o.Uncounted || len(n.Subscriptions) != len(o.Subscriptions) || !maps.Equal(n.Views, o.Views) {
		return false
	}
	for name, s := range n.Subscriptions {
		if o.Subscriptions[name] != s {
			return false
		}
	}
	return true
}
