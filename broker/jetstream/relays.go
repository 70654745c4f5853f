package jetstream

import (
	"bytes"
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// relays holds the relays of the Topics whose first shard is led here.
type relays struct {
	server *Server
	tasks  *work.Tasks[*relay, struct{}]

	mu     sync.Mutex
	first  bool                 // a State was followed
	led    map[string]*ledTopic // by id
	all    map[pullGroupKey]*relay
	ending map[pullGroupKey]*relay // the last one of each that ends and passes on what still comes
	left   map[pullGroupKey]*relay // the one of each that is gone and stood furthest, of consumers that are declared
	holds  map[pullGroupKey]int    // creations under way: their consumers deliver nothing yet
	closed bool
	ended  chan struct{} // closed when closed and nothing is ending; nil: nobody waits
}

// ledTopic is a Topic whose first shard is led here, and the claim with which its relays were
// reconciled last.
type ledTopic struct {
	*topic.Topic
	claim subscription.Claim
}

func (g *relays) init(s *Server) {
	g.server, g.led, g.all, g.holds = s, map[string]*ledTopic{}, map[pullGroupKey]*relay{}, map[pullGroupKey]int{}
	g.ending, g.left = map[pullGroupKey]*relay{}, map[pullGroupKey]*relay{}
	g.tasks = work.NewTasks(max(2, runtime.GOMAXPROCS(0)), func(_ *struct{}, r *relay, _ work.Lane) bool {
		r.step()
		return false
	})
}

// run replaces relays whose claim has changed, and wakes all others, whenever leaders may have
// changed, until the server closes.
func (g *relays) run() {
	changed := g.server.topics.Changed()
	for {
		select {
		case <-changed:
			changed = g.server.topics.Changed() // before what follows looks at the leaders
		case <-g.server.ctx.Done():
			return
		}
		g.mu.Lock()
		for _, of := range g.led {
			if of.claim != g.server.latestClaim(of.ID()) {
				g.reconcileAll(of, time.Now().Add(relayKept))
			}
		}
		for _, r := range g.all {
			r.wake()
		}
		g.mu.Unlock()
	}
}

// every returns all relays that have not ended.
func (g *relays) every() []*relay {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.all))
}

// finish ends all relays, and waits until what they have asked for was passed on, for at most
// endTime.
func (g *relays) finish() {
	g.mu.Lock()
	g.closed, g.ended = true, make(chan struct{})
	for _, r := range g.all {
		g.end(r, false)
	}
	ended := g.ended
	g.allEnded()
	g.mu.Unlock()
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
	}
}

// end removes and ends a relay. mu is held.
func (g *relays) end(r *relay, drop bool) {
	delete(g.all, r.key)
	if r.end(drop); r.isGone() {
		g.remember(r) // it may know from another broker where the consumer stands
	} else {
		g.ending[r.key] = r
	}
}

// forget removes a relay that has ended, and all of whose messages have arrived.
func (g *relays) forget(r *relay) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending[r.key] == r {
		delete(g.ending, r.key)
		g.remember(r)
		g.allEnded()
	}
}

// remember keeps a relay that is gone, to say where it stood, until one that stood further is gone,
// or the consumer is deleted. mu is held.
func (g *relays) remember(r *relay) {
	declared := g.server.state().Subscription(r.key.topic, r.key.consumer)
	if declared == nil || declared.Incarnation() != r.made {
		return
	}
	at := r.stands(r.made)
	if at == nil {
		return
	}
	if before := g.left[r.key]; before != nil {
		if was := before.stands(r.made); was != nil && was.Sequence > at.Sequence {
			return
		}
	}
	g.left[r.key] = r
}

// allEnded ends the wait of finish if nothing is ending. mu is held.
func (g *relays) allEnded() {
	if g.ended != nil && len(g.ending) == 0 {
		close(g.ended)
		g.ended = nil
	}
}

// close ends all relays at once.
func (g *relays) close() {
	g.mu.Lock()
	g.closed = true
	for _, r := range g.ending {
		r.end(true)
	}
	for _, r := range g.all {
		g.end(r, true)
	}
	g.mu.Unlock()
	g.tasks.Close()
}

// Follow applies the Subscriptions of a State that the Topics follow already. It never blocks.
func (s *Server) Follow(changes coordination.Changes) {
	g := &s.relays
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.first || changes.Unreadable {
		g.first = true
		for _, of := range g.led {
			g.reconcileAll(of, time.Time{})
		}
		clear(g.left)
		return
	}
	for _, c := range changes.Subscriptions {
		sub := c.After
		if sub == nil {
			sub = c.Before
			delete(g.left, pullGroupKey{sub.Topic, sub.Name})
		}
		if of := g.led[sub.Topic]; of != nil {
			// A State without the consumer had this claim already, so no broker's has it with an
			// earlier one.
			claim := g.server.latestClaim(of.ID())
			g.reconcile(of, sub.Name, claim, time.Time{}, c.Before == nil && claim == of.claim)
		}
	}
}

// leading begins or ends the relays of a Topic whose first shard this broker leads, or leads no
// longer.
func (g *relays) leading(shard *topic.Shard, open bool) {
	if shard.Number() != 0 || !isShardOfMany(shard) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := &ledTopic{Topic: shard.Topic()}
	if open && !g.closed {
		g.led[of.ID()] = of
		// Receivers notice by missed heartbeats only that the former relay is gone.
		g.reconcileAll(of, time.Now().Add(relayKept))
		return
	}
	delete(g.led, of.ID())
	for key, r := range g.all {
		if key.topic == of.ID() {
			g.end(r, false)
		}
	}
}

// reconcileAll begins the relays of a Topic that are declared, and ends those that are not. mu is
// held.
func (g *relays) reconcileAll(of *ledTopic, keepUntil time.Time) {
	of.claim = g.server.latestClaim(of.ID())
	for key := range g.all {
		if key.topic == of.ID() {
			g.reconcile(of, key.consumer, of.claim, keepUntil, false)
		}
	}
	for _, declared := range g.server.state().Subscriptions(of.ID()) {
		g.reconcile(of, declared.Name, of.claim, keepUntil, false)
	}
}

// reconcile makes the relay of one Subscription what its declaration and the claim say. If fresh,
// no other broker can have one with an earlier claim. mu is held.
func (g *relays) reconcile(of *ledTopic, name string, claim subscription.Claim, keepUntil time.Time, fresh bool) {
	if g.closed {
		return
	}
	key := pullGroupKey{of.ID(), name}
	is, declared := g.all[key], g.server.state().Subscription(of.ID(), name)
	wanted := declared != nil && declared.Spec.Consumer.DeliverSubject != "" && claim.Holder == g.server.config.Self
	switch {
	case is != nil && wanted && is.fits(declared, claim):
		is.respecify(declared)
		return
	case is != nil: // what a deleted one has asked for is of no use
		g.end(is, declared == nil || declared.Incarnation() != is.made)
	}
	if wanted {
		r := newRelay(g, of.Topic, declared, claim, g.ending[key], fresh && g.ending[key] == nil, time.Now())
		r.keepUntil = keepUntil
		if before := g.left[key]; before != nil {
			r.goOnBehindOf(before)
		}
		g.all[key] = r
		r.wake()
	}
}

func (g *relays) find(key pullGroupKey) *relay {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[key]
}

// bound reports whether somebody is subscribed to the deliver subject of a consumer that this
// broker relays.
func (g *relays) bound(topicID, consumer string) bool {
	r := g.find(pullGroupKey{topicID, consumer})
	return r != nil && r.bound()
}

// hold keeps a consumer from delivering until release is called, so that whoever creates it learns
// where it begins.
func (g *relays) hold(topicID, consumer string) (release func()) {
	key := pullGroupKey{topicID, consumer}
	g.mu.Lock()
	g.holds[key]++
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.holds[key]--; g.holds[key] == 0 {
			delete(g.holds, key)
		}
		if r := g.all[key]; r != nil {
			r.wake()
		}
	}
}

func (g *relays) isHeld(key pullGroupKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holds[key] > 0
}

// deleteInactive deletes a consumer of a Topic with several shards that was unused for too long,
// unless it was made anew since. It never blocks.
func (s *Server) deleteInactive(of *topic.Topic, name string, incarnation int64) {
	s.slow.Submit(brokers, asked{do: func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.timeouts.answer)
		defer cancel()
		if declared := s.state().Subscription(of.ID(), name); declared != nil && declared.Incarnation() == incarnation {
			s.removeInactive(ctx, of, declared)
		}
	}}, 0)
}

// removeInactive is deleteInactive that blocks.
func (s *Server) removeInactive(ctx context.Context, of *topic.Topic, declared *coordination.Subscription) {
	name := declared.Name
	err := s.config.Store.DeleteSubscription(ctx, of.Name(), name, declared.Revision, client)
	switch {
	case err == nil:
		s.config.Advisories.Consumer(of.Name(), name, advisory.Deleted)
	case !isNotFound(err) && !isStale(err):
		s.log.Warn("Could not delete an inactive consumer; it will be tried again", "stream", of.Name(), "consumer", name, "error", err)
	}
}

// A delivery of a share that a relay asked for is sent to relayPrefix, the number of the share, and
// the id of the relay's broker. To another broker it travels on a subject of relayPrefix, the
// number and its own subject.
var relayPrefix = []byte(peerPrefix + "RELAY.")

func appendRelayTo(dst []byte, number uint64, broker string) []byte {
	dst = strconv.AppendUint(append(dst, relayPrefix...), number, 10)
	return append(append(dst, '.'), broker...)
}

func isRelayed(to []byte) bool { return bytes.HasPrefix(to, relayPrefix) }

// parseRelayed splits a subject that begins with relayPrefix.
func parseRelayed(subject []byte) (number uint64, rest []byte, ok bool) {
	digits, rest, ok := bytes.Cut(subject[len(relayPrefix):], []byte{'.'})
	number, isNumber := jsapi.ParseUint(digits)
	return number, rest, ok && isNumber
}

// sendToRelay sends a delivery of a batch to the relay that asked for it. It never blocks. It
// returns the link to that broker if it is behind.
func (s *Server) sendToRelay(b *batch, m *protocol.Message) (behind work.Behind) {
	number, broker, ok := parseRelayed(m.To)
	switch {
	case !ok:
	case string(broker) == s.config.Self:
		s.passOn(number, *m)
	default:
		on := b.appended(len(b.memory), append(append(b.memory, m.To[:len(m.To)-len(broker)]...), m.Subject...))
		b.passed = protocol.Message{Subject: on, Reply: m.Reply, Header: m.Header, Data: m.Data}
		if b.home != string(broker) {
			b.home = string(broker)
		}
		_, behind = s.config.Hub.Forward(b.home, &b.passed) // without a link the share counts as lost
		b.passed = protocol.Message{}
	}
	return behind
}

// takeRelayed takes a delivery from the leader of a shard.
func (s *Server) takeRelayed(m *protocol.Message) {
	if number, subject, ok := parseRelayed(m.Subject); ok && len(subject) > 0 {
		s.passOn(number, protocol.Message{Subject: subject, Reply: m.Reply, Header: m.Header, Data: m.Data})
	}
}

func (s *Server) passOn(number uint64, m protocol.Message) {
	of, ok := s.shares.find(number)
	if r, relayed := of.by.(*relay); ok && relayed {
		r.deliver(of.shard, number, m)
	}
}

// takeShardedFlow takes an answer to a flow control request of a relay.
func (s *Server) takeShardedFlow(m *protocol.Message, f *jsapi.Flow, of *topic.Topic, forwarded bool) {
	if leader := of.Leader(); leader != s.config.Self {
		if !forwarded {
			s.sendToLeader(leader, m)
		}
		return
	}
	if r := s.relays.find(pullGroupKey{of.ID(), string(f.Consumer)}); r != nil {
		r.flowControlled(f.Token)
	}
}
