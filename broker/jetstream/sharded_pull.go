package jetstream

import (
	"math"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// pullGroup serves pulls from one Subscription of a Topic with several shards, on the broker that
// received them. The cursors are with the shards' leaders, and a pull must get no more messages
// than it requested. So a pull is divided:
//
//  1. A shard is assigned a share of the requested messages. It delivers what it has directly to
//     the client and returns the rest of the share at once.
//  2. A shard that had nothing is watched, by a pull that only peeks, and is assigned a share
//     once it has something.
//  3. Each shard has at most one share and one watch of a group at a time, so that records of a
//     subject reach a client in order.
//  4. The result of a share follows its messages on the same link. Without a result the pull ends
//     with "leadership change", and nothing is delivered twice under one pull.
//
// Giving each shard the complete pull and cutting off the surplus would be simpler, but records
// that are cut off are not delivered to anybody until their ack wait is over. Relaying all
// messages through this broker costs another copy of each.
type pullGroup struct {
	groups *pullGroups
	key    pullGroupKey

	mu     sync.Mutex
	of     *topic.Topic
	pulls  []*shardedPull
	shards []shardRequests
	next   int // shard that is tried first
	timer  *time.Timer
	gone   bool      // removed from groups
	swept  time.Time // when pulls that nobody waits for were looked for
}

type pullGroupKey struct{ topic, consumer string }

// shardRequests are the open requests of a group to one shard.
type shardRequests struct {
	share, watch shardRequest
	again        time.Time // when the shard may be tried again
}

// shardedPull is one pull of a client from all shards.
type shardedPull struct {
	to        []byte
	left      int // messages not delivered yet, including assigned ones
	assigned  int // messages in open shares
	shares    int
	bytes     int
	bounded   bool // by bytes: one shard at a time is assigned all of them
	got       bool // something was delivered
	noWait    bool
	expires   time.Time // zero: never
	heartbeat time.Duration
	beat      time.Time
	empty     map[int]bool // shards that had nothing when they were tried
	end       subscription.End
	quota     *subscription.PullQuota // that counts it; nil: none
	dropped   bool                    // the client has no subscription any more
}

// pullGroups holds the pullGroups of this broker.
type pullGroups struct {
	server *Server

	mu     sync.Mutex
	all    map[pullGroupKey]*pullGroup
	closed bool
}

// run steps all groups whenever leaders may have changed, until the server closes.
func (g *pullGroups) run() {
	topics := g.server.topics
	changed := topics.Changed()
	for {
		select {
		case <-changed:
			changed = topics.Changed() // before what follows looks at the leaders
		case <-g.server.ctx.Done():
			return
		}
		for _, one := range g.every() {
			one.step()
		}
	}
}

func (g *pullGroups) every() []*pullGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*pullGroup, 0, len(g.all))
	for _, one := range g.all {
		all = append(all, one)
	}
	return all
}

// EndPulls ends the pulls from several shards that wait, because this broker is about to close the
// connections of its clients.
func (s *Server) EndPulls() {
	for _, one := range s.groups.every() {
		one.end(subscription.Stopping)
	}
}

// close ends all pulls.
func (g *pullGroups) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for _, one := range g.every() {
		one.end(subscription.Stopping)
		one.mu.Lock()
		one.gone = true
		if one.timer != nil {
			one.timer.Stop()
		}
		one.mu.Unlock()
	}
}

// end ends all pulls of a consumer.
func (g *pullGroups) end(topicID, consumer string, why subscription.End) {
	g.mu.Lock()
	one := g.all[pullGroupKey{topicID, consumer}]
	g.mu.Unlock()
	if one != nil {
		one.end(why)
	}
}

// waiting returns the number of pulls of a consumer that wait on this broker.
func (g *pullGroups) waiting(topicID, consumer string) int {
	g.mu.Lock()
	one := g.all[pullGroupKey{topicID, consumer}]
	g.mu.Unlock()
	if one == nil {
		return 0
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return len(one.pulls)
}

// pull adds a pull. most bounds the waiting pulls of one consumer, and quota those of its user.
func (g *pullGroups) pull(of *topic.Topic, consumer string, to []byte, p *jsapi.Pull, most int, quota *subscription.PullQuota) {
	key := pullGroupKey{of.ID(), consumer}
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			g.server.endPull(to, subscription.Stopping, p.Batch, p.MaxBytes)
			return
		}
		one := g.all[key]
		if one == nil {
			one = &pullGroup{groups: g, key: key, shards: make([]shardRequests, len(of.Shards()))}
			if g.all == nil {
				g.all = map[pullGroupKey]*pullGroup{}
			}
			g.all[key] = one
		}
		g.mu.Unlock()
		if one.add(of, to, p, most, quota) {
			return
		}
	}
}

func (g *pullGroup) add(of *topic.Topic, to []byte, p *jsapi.Pull, most int, quota *subscription.PullQuota) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return false
	}
	g.of = of
	if now := time.Now(); (len(g.pulls) >= most || quota.Full()) && (len(g.pulls) <= fewPulls || now.Sub(g.swept) >= time.Second) {
		g.sweep(func(w *shardedPull) bool { return w.shares > 0 || g.interested(w) })
		g.swept = now
	}
	if len(g.pulls) >= most || !quota.Enter(shardedPullBytes+len(to)) {
		if p.Heartbeat == 0 { // see MaxWaitingExceeded
			g.groups.server.endPull(to, subscription.TooManyWaiting, p.Batch, p.MaxBytes)
		}
		return true
	}
	now := time.Now()
	w := &shardedPull{
		to: append([]byte(nil), to...), left: p.Batch, bytes: p.MaxBytes, bounded: p.MaxBytes > 0, noWait: p.NoWait,
		heartbeat: p.Heartbeat, beat: now.Add(p.Heartbeat), empty: map[int]bool{}, quota: quota,
	}
	if p.Expires > 0 {
		w.expires = now.Add(p.Expires)
	}
	g.pulls = append(g.pulls, w)
	g.work(now)
	return true
}

func (g *pullGroup) interested(w *shardedPull) bool {
	return g.groups.server.config.Hub.Interested(w.to)
}

// sweep removes the pulls for which keep returns false. mu is held.
func (g *pullGroup) sweep(keep func(*shardedPull) bool) {
	n := 0
	for _, w := range g.pulls {
		if keep(w) {
			g.pulls[n] = w
			n++
		} else {
			w.quota.Leave(shardedPullBytes + len(w.to))
		}
	}
	clear(g.pulls[n:])
	g.pulls = g.pulls[:n]
}

func (g *pullGroup) end(why subscription.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.pulls {
		if w.end == 0 {
			w.end = why
		}
		if why == subscription.Stopping { // Stopping does not wait for the results of open shares
			w.left, w.assigned, w.shares = w.left-w.assigned, 0, 0
		}
	}
	g.work(time.Now())
}

func (g *pullGroup) step() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		g.work(time.Now())
	}
}

// work does what is due and sets the timer. mu is held.
func (g *pullGroup) work(now time.Time) {
	g.dropLost(now)
	g.settle(now)
	g.assignShares(now)
	g.settle(now)
	waits := false
	for _, w := range g.pulls {
		waits = waits || w.end == 0 && w.left > w.assigned
	}
	next := time.Time{}
	due := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	idle := len(g.pulls) == 0
	for i := range g.shards {
		shard := &g.shards[i]
		if waits && shard.watch.number == 0 && shard.share.number == 0 && !now.Before(shard.again) {
			g.send(now, i, nil, 0)
		}
		if waits && now.Before(shard.again) {
			due(shard.again)
		}
		for _, e := range []*shardRequest{&shard.share, &shard.watch} {
			if e.number != 0 {
				idle = false
				due(e.until)
			}
		}
	}
	for _, w := range g.pulls {
		due(w.expires)
		if w.heartbeat > 0 {
			due(w.beat)
		}
	}
	if idle {
		g.retire()
		return
	}
	if next.IsZero() {
		return
	}
	if wait := max(next.Sub(now), time.Millisecond); g.timer == nil {
		g.timer = time.AfterFunc(wait, g.step)
	} else {
		g.timer.Reset(wait)
	}
}

// retire removes the group. mu is held.
func (g *pullGroup) retire() {
	g.gone = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.groups.mu.Lock()
	defer g.groups.mu.Unlock()
	if g.groups.all[g.key] == g {
		delete(g.groups.all, g.key)
	}
}

// dropLost drops requests whose results will not arrive. mu is held.
func (g *pullGroup) dropLost(now time.Time) {
	streams := g.of.Shards()
	for i := range g.shards {
		shard := &g.shards[i]
		moved := func(e *shardRequest) bool { return e.number != 0 && streams[i].Leader() != e.leader }
		if moved(&shard.share) { // the result may still be under way
			if soon := now.Add(groupAgain); soon.Before(shard.share.until) {
				shard.share.until = soon
			}
		}
		if w := shard.share.to; w != nil && !now.Before(shard.share.until) {
			w.assigned -= shard.share.share
			w.left -= shard.share.share // whether they were delivered is unknown
			w.shares--
			if w.end == 0 {
				w.end = subscription.LeaderGone
			}
			g.drop(&shard.share)
		}
		if e := &shard.watch; e.number != 0 && (moved(e) || !now.Before(e.until)) {
			g.drop(e)
		}
	}
}

// linked watches the shards of a broker again that has a new link: what it was asked before, or
// has answered, may be lost.
func (g *pullGroup) linked(broker string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return
	}
	for i := range g.shards {
		if e := &g.shards[i].watch; e.number != 0 && e.leader == broker {
			g.drop(e)
		}
	}
	g.work(time.Now())
}

// drop removes a request. mu is held.
func (g *pullGroup) drop(e *shardRequest) {
	g.groups.server.shares.drop(e.number)
	*e = shardRequest{}
}

// settle ends finished pulls without open shares, and sends heartbeats. mu is held.
func (g *pullGroup) settle(now time.Time) {
	server := g.groups.server
	g.sweep(func(w *shardedPull) bool {
		switch {
		case w.end != 0:
		case !w.expires.IsZero() && !now.Before(w.expires):
			w.end = subscription.Expired
		case w.noWait && w.shares == 0 && w.left > 0 && len(w.empty) == len(g.shards) && (w.expires.IsZero() || w.got):
			w.end = subscription.NoMessages
		case w.heartbeat > 0 && !now.Before(w.beat):
			if w.dropped = w.dropped || !g.interested(w); !w.dropped {
				header := jsapi.AppendHeartbeat(nil, 0, 0, nil)
				server.send(protocol.Message{Subject: w.to, Header: len(header), Data: header})
			}
			w.beat = now.Add(w.heartbeat)
		}
		switch {
		case w.shares > 0:
			return true
		case w.dropped:
			return false
		case w.left <= 0 && w.end != subscription.LeaderGone:
			if w.bounded && w.bytes > 0 {
				server.endPull(w.to, subscription.BatchDone, 0, w.bytes)
			}
			return false
		case w.end != 0:
			server.endPull(w.to, w.end, max(w.left, 0), w.bytes)
			return false
		}
		return true
	})
}

// endPull sends a client the status that ends its pull.
func (s *Server) endPull(to []byte, why subscription.End, messages, bytes int) {
	if data := appendEnd(nil, why, messages, bytes); len(data) > 0 {
		s.send(protocol.Message{Subject: to, Header: len(data), Data: data})
	}
}

// assignShares divides the requested messages over the shards that may have some. mu is held.
func (g *pullGroup) assignShares(now time.Time) {
	for turn := range g.pulls {
		w := g.pulls[turn]
		if w.end != 0 || w.dropped || w.left <= w.assigned || w.bounded && w.shares > 0 {
			continue
		}
		checked := false
		for i := range g.shards {
			at := (g.next + i) % len(g.shards)
			if !g.mayAssign(now, at, w) || w.left <= w.assigned || w.bounded && w.shares > 0 {
				continue
			}
			if !checked {
				if checked = true; !g.interested(w) {
					w.dropped = true
					break
				}
			}
			share := w.left - w.assigned
			if !w.bounded {
				share = max(1, share/g.countCandidates(now, i, w))
			}
			g.send(now, at, w, share)
		}
	}
	if n := len(g.pulls); n > 1 { // the next call begins with another pull
		first := g.pulls[0]
		copy(g.pulls, g.pulls[1:])
		g.pulls[n-1] = first
	}
	g.next = (g.next + 1) % len(g.shards)
}

// countCandidates returns how many shards from the i-th on may have something for a pull. mu is
// held.
func (g *pullGroup) countCandidates(now time.Time, i int, w *shardedPull) (n int) {
	for ; i < len(g.shards); i++ {
		if g.mayAssign(now, (g.next+i)%len(g.shards), w) {
			n++
		}
	}
	return n
}

// mayAssign reports whether a shard may have records: no watch is open on it, or the pull does not
// wait and the shard was not tried yet. mu is held.
func (g *pullGroup) mayAssign(now time.Time, at int, w *shardedPull) bool {
	shard := &g.shards[at]
	return shard.share.number == 0 && !now.Before(shard.again) && (shard.watch.number == 0 || w.noWait && !w.empty[at])
}

// send asks a shard's leader to deliver a share to a pull or, with w nil, to watch. mu is held.
func (g *pullGroup) send(now time.Time, at int, w *shardedPull, share int) {
	server, shard, p := g.groups.server, &g.shards[at], g.of.Shards()[at]
	e := shardRequest{until: now.Add(lostAfter), leader: p.Leader(), to: w, share: share}
	l := shareRequest{Stream: p.Key(), Name: g.key.consumer}
	if w == nil {
		l.Watch = watchTime
		e.until = e.until.Add(watchTime)
	} else {
		l.To, l.Batch = w.to, share
		if w.bounded {
			l.Bytes = w.bytes
		}
	}
	e.number = server.shares.begin(openRequest{by: g, shard: at, watch: w == nil})
	l.Number = e.number
	sent := server.shares.send(e.leader, &l)
	if !sent {
		g.drop(&e)
		shard.again = now.Add(groupAgain)
		if w != nil {
			w.empty[at] = true // it has nothing that can be fetched now
		}
		return
	}
	if w == nil {
		shard.watch = e
		return
	}
	w.assigned += share
	w.shares++
	shard.share = e
}

// finish ends a share or a watch. It implements requester.
func (g *pullGroup) finish(of openRequest, r shareResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return
	}
	now := time.Now()
	shard := &g.shards[of.shard]
	switch r.Why {
	case subscription.LeaderGone, subscription.Stopping, subscription.TooManyWaiting:
		shard.again = now.Add(groupAgain)
	}
	if of.watch {
		if shard.watch.number == r.Number {
			shard.watch = shardRequest{}
		}
		for _, w := range g.pulls {
			switch {
			case r.Why == subscription.Deleted && w.end == 0:
				w.end = r.Why
			// Without this, a watch would be renewed for ever.
			case r.Why == subscription.Expired && !g.interested(w):
				w.dropped = true
			}
		}
		g.work(now)
		return
	}
	if shard.share.number != r.Number {
		return // it was dropped as lost
	}
	w, share := shard.share.to, shard.share.share
	shard.share = shardRequest{}
	delivered := max(share-max(r.Messages, 0), 0)
	w.assigned -= share
	w.shares--
	w.left -= delivered
	if w.bounded {
		w.bytes = min(max(r.Bytes, 0), w.bytes)
	}
	if delivered > 0 {
		w.got = true
		w.beat = now.Add(w.heartbeat)
	}
	switch {
	case r.Why == subscription.NoMessages:
		w.empty[of.shard] = true
	case r.Why == subscription.MaxBytes || r.Why == subscription.Deleted:
		if w.end == 0 {
			w.end = r.Why
		}
	case r.Why == 0 && delivered < share:
		w.dropped = true // the client has no subscription any more
	case shard.again.After(now):
		w.empty[of.shard] = true
	}
	if r.Why == subscription.NoMessages && shard.watch.number == 0 && g.wanted() {
		g.send(now, of.shard, nil, 0)
	}
	g.work(now)
}

// wanted reports whether a pull needs more messages. mu is held.
func (g *pullGroup) wanted() bool {
	for _, w := range g.pulls {
		if w.end == 0 && w.left > w.assigned {
			return true
		}
	}
	return false
}

// takeShardedPull serves a pull that names a Topic with several shards.
func (s *Server) takeShardedPull(m *protocol.Message, r *jsapi.Request, of *topic.Topic, by puller) {
	header, payload := protocol.SplitData(m.Data, m.Header)
	if !s.levelServed(header) {
		s.sendStatus(m.Reply, jsapi.LevelRequired)
		return
	}
	s.pullSharded(of, string(r.Consumer), m.Reply, payload, s.quota(by, header))
}

func (s *Server) pullSharded(of *topic.Topic, consumer string, to, payload []byte, quota *subscription.PullQuota) {
	declared := s.state().Subscription(of.ID(), consumer)
	if declared == nil {
		s.sendStatus(to, noResponders)
		return
	}
	s.pulls.Add(1)
	may := &declared.Spec.Consumer
	if may.DeliverSubject != "" {
		s.sendStatus(to, jsapi.ConsumerIsPush)
		return
	}
	p, refusal := jsapi.ParsePull(payload)
	if refusal == nil {
		refusal = p.CheckLimits(&jsapi.ConsumerConfig{MaxRequestBatch: may.MaxBatch, MaxRequestExpires: may.MaxExpires, MaxRequestMaxBytes: may.MaxBytes})
		if refusal == nil {
			refusal = p.CheckPriority("", nil)
		}
	}
	if refusal != nil {
		s.send(protocol.Message{Subject: to, Header: len(refusal), Data: refusal})
		return
	}
	most := may.MaxWaiting
	if most <= 0 {
		most = jsapi.DefaultMaxWaiting
	}
	p.Batch = min(p.Batch, math.MaxInt32)
	s.groups.pull(of, consumer, to, &p, most, quota)
}
