package jetstream

import (
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// A planned move of a Topic's first shard leaves two relays for a moment: the former leader's,
// until that broker sees the move, and the next one's. Each shard takes care that one of them
// delivers:
//
//  1. A relay names its claim, the epoch of the first shard under which it delivers, in all of
//     its requests.
//  2. A leader of a shard serves no claim before the latest one that it has seen, or that its
//     State has. It ends the requests of an earlier one, and those of the same one before it
//     answers a relay's question.
//  3. A relay asks for no share of a shard, and for none at all in its first relayPatience,
//     before the shard has confirmed its claim and told where the consumer stands.
//  4. Before a shard confirms, the relay of the claim before yields (succession.go). A relay whose
//     broker has no link to the shard's gets nothing from there either, and one that doesn't
//     answer within yieldTime is not waited for.
//  5. A relay of an earlier version names no claim. It has that of the State if its broker leads
//     the first shard there, and else none, which is before all others.
//
// Claims are in memory. A new leader of a shard knows none that were made before. It refuses those
// before the claim of its State, which is at least as new as its own election. It doesn't know
// which relay to have yield, so it confirms the first claim at once. The next relay has the former
// one yield, too, whichever shards know that one.

// yieldTime is how long a shard or a relay waits for relays of earlier claims: less than
// relayPatience, so that the next relay learns where the consumer stands.
const yieldTime = time.Second

// shareClaim is a subscription.Claim without its holder, which is the broker that asks.
type shareClaim struct {
	Generation int64  `json:"generation,omitempty"`
	Epoch      uint64 `json:"epoch"`
}

// latestClaim returns the claim of the relays of a Topic that this broker's State has. Its holder
// is the leader of the first shard, if there is one.
func (s *Server) latestClaim(topicID string) (c subscription.Claim) {
	if first := s.state().Shard(topicID, 0); first != nil {
		c = subscription.Claim{Generation: first.Generation, Epoch: uint64(max(first.Epoch, 0)), Holder: first.Leader}
	}
	return c
}

// claimOf returns the claim of a relay's request. It reports false if that is before the one of
// the State.
func (s *Server) claimOf(l *shareRequest, of *topic.Topic) (c subscription.Claim, ok bool) {
	latest := s.latestClaim(of.ID())
	switch {
	case l.Claim != nil:
		c = subscription.Claim{Generation: l.Claim.Generation, Epoch: l.Claim.Epoch, Holder: l.From}
	case latest.Holder == l.From:
		c = subscription.Claim{Generation: latest.Generation, Epoch: latest.Epoch}
	}
	return c, !c.Before(latest)
}

// confirmClaim has a Subscription serve the relay of a claim, and the relay of an earlier one
// yield. Then it calls done once, with 0 or why the claim isn't served. It does not block.
func (s *Server) confirmClaim(sub *subscription.Subscription, l *shareRequest, c subscription.Claim, done func(why subscription.End)) {
	of := yieldKey{l.Stream, l.Name}
	sub.Claim(c, func(former subscription.Claim, why subscription.End) {
		if why != 0 {
			done(why)
			return
		}
		confirm := func() { done(0) }
		if former.Holder == "" || !former.Before(c) {
			s.yields.wait(of, confirm)
			return
		}
		y := s.yields.begin(s, of, confirm)
		y.ask(former.Holder, &shareRequest{Stream: l.Stream, Name: l.Name, Relay: true, Yield: true, Claim: &shareClaim{c.Generation, c.Epoch}})
	})
}

// yields holds what shards wait for before they confirm claims. A claim that is made again waits,
// too, and a later one waits for what an earlier one waits for.
type yields struct {
	mu   sync.Mutex
	open map[yieldKey]*yielding // the last one of each
}

// yieldKey is a consumer in a shard.
type yieldKey struct{ stream, consumer string }

// begin returns a wait for one more relay, after which then is called.
func (g *yields) begin(s *Server, of yieldKey, then func()) *yielding {
	g.mu.Lock()
	defer g.mu.Unlock()
	y := &yielding{server: s, of: of, left: 1, then: []func(){then}}
	if before := g.open[of]; before != nil {
		y.left++
		before.then = append(before.then, y.part)
	}
	if g.open == nil {
		g.open = map[yieldKey]*yielding{}
	}
	g.open[of] = y
	return y
}

// wait calls then when nothing is waited for.
func (g *yields) wait(of yieldKey, then func()) {
	g.mu.Lock()
	y := g.open[of]
	if y != nil {
		y.then = append(y.then, then)
	}
	g.mu.Unlock()
	if y == nil {
		then()
	}
}

// yielding waits for the relay of an earlier claim to yield, and for the yielding before it.
type yielding struct {
	server *Server
	of     yieldKey
	left   int      // guarded by yields.mu: what it waits for
	then   []func() // guarded by yields.mu
	once   sync.Once
	number uint64
}

// part notes that one of what it waits for is over.
func (y *yielding) part() {
	g := &y.server.yields
	g.mu.Lock()
	y.left--
	var then []func()
	if y.left == 0 {
		then = y.then
		if g.open[y.of] == y {
			delete(g.open, y.of)
		}
	}
	g.mu.Unlock()
	for _, f := range then {
		f()
	}
}

// ask asks the broker of the relay. Its answer follows, on the same link, the acceptance of all
// that was sent there before.
func (y *yielding) ask(holder string, l *shareRequest) {
	shares := &y.server.shares
	y.number = shares.begin(openRequest{by: y})
	l.Number = y.number
	time.AfterFunc(yieldTime, y.over)
	if !shares.send(holder, l) {
		y.over()
	}
}

// finish takes the answer. It implements requester.
func (y *yielding) finish(openRequest, shareResult) { y.over() }

func (y *yielding) over() {
	y.once.Do(func() {
		y.server.shares.drop(y.number)
		y.part()
	})
}

// serveYield has the relay of an earlier claim here yield. tell is called once.
func (s *Server) serveYield(l *shareRequest, tell func(shareResult)) {
	topicID := l.Topic
	if of := s.topics.ShardByKey(l.Stream); topicID == "" && of != nil {
		topicID = of.Topic().ID()
	}
	if topicID == "" || l.Claim == nil {
		tell(shareResult{Number: l.Number})
		return
	}
	number := l.Number
	s.relays.yield(pullGroupKey{topicID, l.Name}, l, func(at *shareState) {
		tell(shareResult{Number: number, State: at})
	})
}
