package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/upkeep"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }

// patience is how long a test waits for an expected event.
const patience = testutil.Patience

// world is a cluster of brokers with real Topics, an etcd of a few maps, and a network of function
// calls.
type world struct {
	t     *testing.T
	nodes []*node

	mu       sync.Mutex
	revision int64
	topics   map[string]*coordination.Topic
	shards   map[string]*coordination.Shard
	subs     map[string]*coordination.Subscription
	place    func(name string) string // id of the broker that gets it; empty: none yet
	down     error                    // what etcd answers while it is away
	asked    int                      // requests to etcd
	// created is called with mu held when a Subscription was created; it may be nil.
	created func()
	cut     map[string]bool // unreachable brokers
	dead    map[string]bool // brokers without a registration
	earlier map[string]bool // brokers of a version that announces no features
	stale   map[string]bool // brokers that see no changes
	moving  bool            // lead is called by move

	inboxMu  sync.Mutex
	arrived  chan struct{}   // closed and replaced when messages reached an inbox
	deserted map[string]bool // subjects without a subscriber
	watches  map[*interest]bool
}

// node is one broker.
type node struct {
	*Server
	w             *world
	id            string
	topics        *topic.Service
	subscriptions *subscription.Service

	mu       sync.Mutex
	sent     map[string][]protocol.Message // by subject or inbox
	offers   []*offered
	forwards int
	inboxes  int                     // a counter that tells the inboxes of calls apart
	full     *gate                   // if set, all that is sent waits there
	hands    func(*protocol.Message) // called with what is forwarded; nil: nothing is
	// keeps is called with what is forwarded, and reports whether it stays on its way until the test
	// delivers it; nil: nothing does.
	keeps func(copied protocol.Message) bool
}

func newWorld(t *testing.T, brokers int) *world { return newWorldOn(t, brokers, log.Options{}) }

// newWorldOn returns a world whose logs have the given options and compact soon.
func newWorldOn(t *testing.T, brokers int, options log.Options) *world {
	w := &world{
		t: t, topics: map[string]*coordination.Topic{}, shards: map[string]*coordination.Shard{},
		subs: map[string]*coordination.Subscription{}, cut: map[string]bool{}, revision: 1,
		arrived: make(chan struct{}),
	}
	w.place = func(string) string { return "broker-0" }
	for i := range brokers {
		n := &node{w: w, id: fmt.Sprintf("broker-%d", i), sent: map[string][]protocol.Message{}}
		options.Committed = func(idle bool) {
			if n.topics != nil {
				n.topics.Committed(idle)
			}
		}
		// In memory: requests and pulls have deadlines of seconds, which the disk of a busy machine
		// may exceed.
		disk, err := log.OpenDisk(crashfs.New(), "data", options)
		testutil.Must(t, err)
		exchange := replica.NewExchange(replica.Config{Self: n.id})
		t.Cleanup(exchange.Close)
		n.topics, err = topic.Open(topic.Config{
			Exchange: exchange, Compact: upkeep.Compacting{Every: 5 * time.Millisecond, Age: 1},
			Self: n.id, Name: "name-" + n.id, Disk: disk, Hub: n, Codec: PublishCodec{}, Payload: 1 << 20,
			Leading: func(s *topic.ShardLeader, open bool) {
				n.Leading(s, open)
				n.subscriptions.ShardChanged(s, open)
			},
		})
		testutil.Must(t, err)
		n.subscriptions = subscription.New(subscription.Config{
			Self: n.id, Topics: n.topics,
			Sink:     func(of *topic.Shard, name string) subscription.DeliverySink { return n.Sink(of, name) },
			Inactive: func(of *topic.Shard, name string, incarnation int64) { n.Inactive(of, name, incarnation) },
		})
		n.Server = NewServer(ServerConfig{
			Self: n.id, Name: "name-" + n.id, Cluster: "test", Hub: n, Topics: n.topics, Store: w,
			Subscriptions: func() *subscription.Service { return n.subscriptions },
		})
		n.timeouts.open = 2 * time.Second
		n.Start()
		w.nodes = append(w.nodes, n)
		t.Cleanup(func() {
			n.Server.Close()
			testutil.Must(t, errors.Join(n.subscriptions.Close(), n.topics.Close(), disk.Close()))
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(coordination.Changes{Brokers: true})
	return w
}

// tell sends changes to all brokers. mu is held.
func (w *world) tell(changes coordination.Changes) {
	var brokers []coordination.Broker
	for _, n := range w.nodes {
		if !w.dead[n.id] {
			b := coordination.Broker{ID: n.id, Name: "name-" + n.id, Incarnation: 7}
			if !w.earlier[n.id] {
				b.Features = coordination.Features()
			}
			brokers = append(brokers, b)
		}
	}
	state := coordination.NewState(w.revision, brokers, values(w.topics), values(w.shards), values(w.subs))
	for _, n := range w.nodes {
		if w.stale[n.id] {
			continue
		}
		n.topics.Follow(state, changes)
		n.Follow(changes)
		n.subscriptions.Follow(state, changes)
	}
}

func values[V any](m map[string]V) (all []V) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// ask begins each request to etcd. The caller unlocks mu.
func (w *world) ask(ctx context.Context) error {
	w.mu.Lock()
	w.asked++
	if w.down != nil {
		return w.down
	}
	return ctx.Err()
}

func (w *world) CreateTopic(ctx context.Context, name string, spec coordination.TopicSpec, owner coordination.Owner) (*coordination.Topic, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	if is := w.topics[name]; is != nil {
		if is.Owner == owner && reflect.DeepEqual(is.Spec, spec) {
			return is, nil
		}
		return nil, &coordination.ExistsError{What: "topic " + name, Owner: is.Owner}
	}
	w.revision++
	t := &coordination.Topic{
		Name: name, ID: fmt.Sprintf("id%d", w.revision), Spec: spec, Generation: 1, Owner: owner, Created: time.Now(), Revision: w.revision,
	}
	w.topics[name] = t
	w.tell(coordination.Changes{Topics: []coordination.Change[coordination.Topic]{{After: t}}})
	if leader := w.place(name); leader != "" && spec.Shards <= 1 {
		w.lead(t, 0, leader)
	}
	for n := range spec.Shards {
		if spec.Shards > 1 {
			w.lead(t, n, w.nodes[n%len(w.nodes)].id)
		}
	}
	return t, nil
}

// lead sets the leader of a shard. mu is held.
func (w *world) lead(t *coordination.Topic, number int, leader string) {
	w.revision++
	key := coordination.ShardKey(t.ID, number)
	was := w.shards[key]
	is := &coordination.Shard{
		Topic: t.ID, Number: number, Epoch: 1, Leader: leader, Replicas: []string{leader}, InSync: []coordination.Replica{{Broker: leader, Incarnation: 7}}, Revision: w.revision,
	}
	if was != nil {
		is.Epoch = was.Epoch + 1
		if w.moving {
			is.First = is.Epoch // so that it may begin with an empty copy
		}
	}
	w.shards[key] = is
	w.tell(coordination.Changes{Shards: []coordination.Change[coordination.Shard]{{Before: was, After: is}}})
}

// move moves the empty first shard to another broker. Those of stale don't see that.
func (w *world) move(leader string, stale ...string) {
	w.set(func() {
		w.stale = map[string]bool{}
		for _, id := range stale {
			w.stale[id] = true
		}
		w.moving = true
		w.lead(w.topics["orders"], 0, leader)
		w.moving = false
	})
}

func (w *world) UpdateTopic(ctx context.Context, name string, update coordination.TopicUpdate) (*coordination.Topic, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	was := w.topics[name]
	switch {
	case was == nil:
		return nil, &coordination.NotFoundError{What: "topic " + name}
	case was.Owner.Kind != update.By.Kind:
		return nil, &coordination.NotOwnerError{What: "topic " + name, Owner: was.Owner}
	}
	w.revision++
	is := *was
	is.Spec, is.Generation, is.Revision = update.Spec, was.Generation+1, w.revision
	w.topics[name] = &is
	w.tell(coordination.Changes{Topics: []coordination.Change[coordination.Topic]{{Before: was, After: &is}}})
	return &is, nil
}

func (w *world) DeleteTopic(ctx context.Context, name, _ string, by coordination.Owner) error {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return err
	}
	was := w.topics[name]
	switch {
	case was == nil:
		return &coordination.NotFoundError{What: "topic " + name}
	case was.Owner.Kind != by.Kind:
		return &coordination.NotOwnerError{What: "topic " + name, Owner: was.Owner}
	}
	w.revision++
	changes := coordination.Changes{Topics: []coordination.Change[coordination.Topic]{{Before: was}}}
	for key, shard := range w.shards {
		if shard.Topic == was.ID {
			changes.Shards = append(changes.Shards, coordination.Change[coordination.Shard]{Before: shard})
			delete(w.shards, key)
		}
	}
	for key, sub := range w.subs {
		if sub.Topic == was.ID {
			changes.Subscriptions = append(changes.Subscriptions, coordination.Change[coordination.Subscription]{Before: sub})
			delete(w.subs, key)
		}
	}
	delete(w.topics, name)
	w.tell(changes)
	return nil
}

func (w *world) GetTopic(ctx context.Context, name string) (*coordination.Topic, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	if t := w.topics[name]; t != nil {
		return t, nil
	}
	return nil, &coordination.NotFoundError{What: "topic " + name}
}

func (w *world) CreateSubscription(ctx context.Context, of, name string, spec coordination.SubscriptionSpec, owner coordination.Owner) (*coordination.Subscription, error) {
	return w.create(ctx, of, name, spec, owner, time.Now(), 0)
}

func (w *world) DeclareConsumer(ctx context.Context, of, name string, spec coordination.SubscriptionSpec, owner coordination.Owner, created time.Time) (*coordination.Subscription, error) {
	return w.create(ctx, of, name, spec, owner, created, 0)
}

func (w *world) CreateSubscriptionSince(ctx context.Context, of, name string, spec coordination.SubscriptionSpec, owner coordination.Owner, since int64) (*coordination.Subscription, error) {
	return w.create(ctx, of, name, spec, owner, time.Now(), since)
}

// written reports whether a Subscription of a Topic was written after a revision. mu is held.
func (w *world) written(topicID string, since int64) bool {
	for _, is := range w.subs {
		if since > 0 && is.Topic == topicID && is.Revision > since {
			return true
		}
	}
	return false
}

func (w *world) create(ctx context.Context, of, name string, spec coordination.SubscriptionSpec, owner coordination.Owner, created time.Time, since int64) (*coordination.Subscription, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	t := w.topics[of]
	if t == nil {
		return nil, &coordination.NotFoundError{What: "topic " + of}
	}
	if is := w.subs[t.ID+"/"+name]; is != nil {
		return nil, &coordination.ExistsError{What: "subscription " + name, Owner: is.Owner}
	}
	if w.written(t.ID, since) {
		return nil, &coordination.StaleError{What: "what reads topic " + of}
	}
	w.revision++
	is := &coordination.Subscription{
		Topic: t.ID, Name: name, Spec: &spec, Generation: 1, Owner: owner, Created: created, Revision: w.revision, Made: w.revision,
	}
	w.subs[t.ID+"/"+name] = is
	w.tell(coordination.Changes{Subscriptions: []coordination.Change[coordination.Subscription]{{After: is}}})
	if w.created != nil {
		w.created()
	}
	return is, nil
}

func (w *world) UpdateSubscription(ctx context.Context, of, name string, update coordination.SubscriptionUpdate) (*coordination.Subscription, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	var was *coordination.Subscription
	if t := w.topics[of]; t != nil {
		was = w.subs[t.ID+"/"+name]
	}
	switch {
	case was == nil:
		return nil, &coordination.NotFoundError{What: "subscription " + name}
	case was.Owner.Kind != update.By.Kind:
		return nil, &coordination.NotOwnerError{What: "subscription " + name, Owner: was.Owner}
	case w.written(was.Topic, update.Since):
		return nil, &coordination.StaleError{What: "what reads topic " + of}
	}
	w.revision++
	is := *was
	is.Spec, is.Generation, is.Revision = &update.Spec, was.Generation+1, w.revision
	w.subs[was.Topic+"/"+name] = &is
	w.tell(coordination.Changes{Subscriptions: []coordination.Change[coordination.Subscription]{{Before: was, After: &is}}})
	return &is, nil
}

func (w *world) GetSubscription(ctx context.Context, of, name string) (*coordination.Subscription, error) {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return nil, err
	}
	if t := w.topics[of]; t != nil {
		if found := w.subs[t.ID+"/"+name]; found != nil {
			return found, nil
		}
	}
	return nil, &coordination.NotFoundError{What: "subscription " + name}
}

func (w *world) DeleteSubscription(ctx context.Context, of, name string, revision int64, by coordination.Owner) error {
	defer w.mu.Unlock()
	if err := w.ask(ctx); err != nil {
		return err
	}
	var was *coordination.Subscription
	if t := w.topics[of]; t != nil {
		was = w.subs[t.ID+"/"+name]
	}
	switch {
	case was == nil:
		return &coordination.NotFoundError{What: "subscription " + name}
	case was.Owner.Kind != by.Kind:
		return &coordination.NotOwnerError{What: "subscription " + name, Owner: was.Owner}
	case revision != 0 && was.Revision != revision:
		return &coordination.StaleError{What: "subscription " + name}
	}
	w.revision++
	delete(w.subs, was.Topic+"/"+name)
	w.tell(coordination.Changes{Subscriptions: []coordination.Change[coordination.Subscription]{{Before: was}}})
	return nil
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// The node's side of publish.Hub.

func (n *node) Offer(t publish.Taker) publish.Offer {
	o := &offered{node: n, taker: t}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offers = append(n.offers, o)
	return o
}

type offered struct {
	node     *node
	taker    publish.Taker
	patterns []string
}

func (o *offered) Set(patterns []string) {
	o.node.mu.Lock()
	defer o.node.mu.Unlock()
	o.patterns = patterns
}

func (o *offered) Close() { o.Set(nil) }

// publish is a publish by a client of this broker. Topics with another leader do not receive it.
func (n *node) publish(to, reply, payload string) {
	n.mu.Lock()
	var takers []publish.Taker
	for _, o := range n.offers {
		if slices.ContainsFunc(o.patterns, func(p string) bool { return subject.Matches([]byte(p), []byte(to)) }) {
			takers = append(takers, o.taker)
		}
	}
	n.mu.Unlock()
	for _, t := range takers {
		t.Take([]protocol.Message{{Subject: []byte(to), Reply: []byte(reply), Data: []byte(payload)}}, nil, false)
	}
}

func (n *node) SendSoon(messages []protocol.Message) work.Behind { return n.Send(messages) }

// Send records messages by their destination. Clients are reached from any broker.
func (n *node) Send(messages []protocol.Message) (behind work.Behind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range messages {
		m := messages[i]
		to := string(m.Route())
		m.Subject, m.Reply, m.Data = clone(m.Subject), clone(m.Reply), clone(m.Data)
		n.sent[to] = append(n.sent[to], m)
	}
	n.w.inboxMu.Lock()
	defer n.w.inboxMu.Unlock()
	close(n.w.arrived)
	n.w.arrived = make(chan struct{})
	if n.full != nil {
		behind.Add(n.full)
	}
	return behind
}

// gate is behind until it is open. It counts who waits.
type gate struct {
	open  chan struct{}
	waits atomic.Int64
}

func (g *gate) Wait() {
	g.waits.Add(1)
	<-g.open
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

func (n *node) Interested(to []byte) bool {
	n.w.inboxMu.Lock()
	defer n.w.inboxMu.Unlock()
	return !n.w.deserted[string(to)]
}

// Watch watches a subject, to which somebody is subscribed unless it is deserted.
func (n *node) Watch(to, group string, changed func()) subscription.Interest {
	i := &interest{n, to, changed}
	n.w.inboxMu.Lock()
	defer n.w.inboxMu.Unlock()
	if n.w.watches == nil {
		n.w.watches = map[*interest]bool{}
	}
	n.w.watches[i] = true
	return i
}

type interest struct {
	node    *node
	to      string
	changed func()
}

// subscribe begins or ends the subscriptions to a subject.
func (w *world) subscribe(to string, there bool) {
	w.inboxMu.Lock()
	defer w.inboxMu.Unlock()
	if w.deserted == nil {
		w.deserted = map[string]bool{}
	}
	w.deserted[to] = !there
	for i := range w.watches {
		if i.to == to {
			i.changed()
		}
	}
}

func (i *interest) Present() bool { return i.node.Interested([]byte(i.to)) }
func (i *interest) Stop() {
	i.node.w.inboxMu.Lock()
	defer i.node.w.inboxMu.Unlock()
	delete(i.node.w.watches, i)
}

// Peers are the other brokers that are not cut off.
func (n *node) Peers() (ids []string) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, other := range n.w.nodes {
		if other != n && !n.w.cut[other.id] && !n.w.cut[n.id] {
			ids = append(ids, other.id)
		}
	}
	return ids
}

func (n *node) Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind) {
	n.w.mu.Lock()
	cut := n.w.cut[broker] || n.w.cut[n.id]
	n.w.mu.Unlock()
	if cut {
		return false, behind
	}
	n.mu.Lock()
	n.forwards++
	hands, keeps := n.hands, n.keeps
	n.mu.Unlock()
	if hands != nil {
		hands(m)
	}
	for _, other := range n.w.nodes {
		if other.id == broker {
			copied := protocol.Message{Subject: clone(m.Subject), Reply: clone(m.Reply), Header: m.Header, Data: clone(m.Data)}
			if keeps == nil || !keeps(copied) {
				other.Take([]protocol.Message{copied}, nil, true)
			}
			return true, behind
		}
	}
	return false, behind
}

// say publishes a message at a broker, and returns the inbox for its answers.
func (n *node) say(subject, payload string) (inbox string) {
	n.mu.Lock()
	n.inboxes++
	inbox = fmt.Sprintf("_INBOX.%s.%d", n.id, n.inboxes)
	n.mu.Unlock()
	n.publish(subject, inbox, payload)
	return inbox
}

// received returns the messages that reached an inbox, from any broker.
func (w *world) received(inbox string) (all []protocol.Message) {
	for _, n := range w.nodes {
		n.mu.Lock()
		all = append(all, n.sent[inbox]...)
		n.mu.Unlock()
	}
	return all
}

func (w *world) await(inbox string) protocol.Message {
	w.t.Helper()
	return w.awaitAll(inbox, 1)[0]
}

// awaitAll waits for n messages.
func (w *world) awaitAll(inbox string, n int) (all []protocol.Message) {
	w.t.Helper()
	w.whenever(inbox, func(now []protocol.Message) bool {
		all = now
		return len(all) >= n
	})
	return all
}

// whenever calls enough with an inbox's messages each time one arrives, until it returns true.
func (w *world) whenever(inbox string, enough func([]protocol.Message) bool) {
	w.t.Helper()
	late := time.After(patience)
	for {
		w.inboxMu.Lock()
		arrived := w.arrived
		w.inboxMu.Unlock()
		all := w.received(inbox)
		if enough(all) {
			return
		}
		select {
		case <-arrived:
		case <-late:
			w.t.Fatalf("after %v %s has had %d messages, which are not enough", patience, inbox, len(all))
		}
	}
}

// ask calls the API and decodes the answer.
func ask[T any](n *node, call, payload string) (answer T) {
	n.w.t.Helper()
	m := n.w.await(n.say("$JS.API."+call, payload))
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		n.w.t.Fatalf("%s is answered with %q: %v", call, m.Data, err)
	}
	return answer
}

// refused calls the API, and returns the error of the refusal.
func refused(n *node, call, payload string) (number int, text string) {
	n.w.t.Helper()
	answer := ask[jsapi.Response](n, call, payload)
	if answer.Error == nil {
		return 0, ""
	}
	return answer.Error.ErrCode, answer.Error.Description
}

func expect(t *testing.T, what string, n *node, call, payload string, number int, words ...string) {
	t.Helper()
	got, text := refused(n, call, payload)
	if got != number {
		t.Errorf("%s: %d %q, want %d", what, got, text, number)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s: %q does not say %q", what, text, word)
		}
	}
}
