package jetstream

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/flow"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// relay serves a push consumer of a Topic with several shards, on the broker that leads the first
// one. The cursors are with the shards' leaders, and the receiver must see one consumer:
// sequences without gaps, heartbeats that say what was delivered last, and one window of flow
// control. So all deliveries pass through the relay:
//
//  1. A shard that has something is assigned a share, whose bytes the window and the rate permit.
//     So a relay holds no messages. The other shards are watched.
//  2. A delivery is passed on at once. Its sequence is the number of deliveries of all shards so
//     far, as in the consumer's info, and heartbeats have that of the last one.
//  3. The next relay begins with the sum of the shards' cursors. That is the last sequence that
//     the receiver got, unless a delivery was lost on its way; then there is a gap.
//  4. Each shard has at most one share at a time, so that records of a subject stay in order.
//     What comes after a share counts as lost is dropped, and its records are delivered again
//     after their ack wait.
//  5. Of two relays the one with the later claim delivers (claim.go).
//  6. A relay that ends asks for nothing more, and passes on what it has asked for. The next one
//     waits for that (succession.go). What the process's death takes along is delivered again after
//     the ack wait, and is lost without acks.
//
// Rejected: each shard delivers to the receiver itself. That saves a copy over a link. But a
// heartbeat and the message before it would come over different links, and a receiver that gets
// them in the other order takes the message for lost.
//
// The lock order is: a Subscription's locks, relay.mu, those of the Hub. So requests are sent
// without relay.mu.
type relay struct {
	work.State
	relays *relays
	key    pullGroupKey
	made   int64 // incarnation of the Subscription
	claim  subscription.Claim

	mu        sync.Mutex
	of        *topic.Topic
	consumer  *coordination.ConsumerSettings
	to        []byte
	interest  subscription.Interest
	shards    []relayShard
	next      int // shard that is served first
	began     time.Time
	keepUntil time.Time  // it is not inactive before
	started   bool       // its sequence is known
	former    round      // others' relays of earlier claims yield
	floor     shareState // where a former relay stood
	sum       shareState
	window    flow.Window
	pace      flow.Pace
	beat      time.Time // of the next heartbeat; zero: nobody was subscribed
	away      time.Time // since when nobody is subscribed; zero: somebody is
	timer     *time.Timer
	after     *relay // the one before it on this broker, until that has ended
	then      *relay // the next one on this broker, which waits for it
	// superseded: a shard serves a later claim. It asks for nothing, and sends no heartbeats.
	superseded bool
	ending     bool     // it asks for nothing, and passes on what comes
	sending    bool     // it is about to send requests
	closed     bool     // nothing that it has asked for can come
	spoke      bool     // it has sent something to the receiver
	passed     round    // what it has sent has arrived
	yielded    []func() // called then
	gone       bool     // it has nothing more to do
	ack        []byte   // memory of the ack subject
	out        [1]protocol.Message
	behind     work.Behind // what it has sent waits there
}

// relayShard is one shard of a relay.
type relayShard struct {
	share, watch, question shardRequest
	ready                  bool      // it may have something
	again                  time.Time // when it may be asked again
	known                  bool
	doubtful               bool // its share may be lost with a link: the question is asked again
	last                   shareState
}

// outgoing is a request that a step sends.
type outgoing struct {
	shard  int
	leader string
	kind   func(*relayShard) *shardRequest
	what   shareRequest
}

func shareOf(s *relayShard) *shardRequest    { return &s.share }
func watchOf(s *relayShard) *shardRequest    { return &s.watch }
func questionOf(s *relayShard) *shardRequest { return &s.question }

// newRelay returns a relay that begins when the one before it on this broker, if any, has ended.
// Its deliver subject is watched from now on. If fresh, no other broker can have an earlier one.
func newRelay(g *relays, of *topic.Topic, declared *coordination.Subscription, claim subscription.Claim, after *relay, fresh bool, now time.Time) *relay {
	c := &declared.Spec.Consumer
	r := &relay{
		relays: g, key: pullGroupKey{of.ID(), declared.Name}, made: declared.Incarnation(), claim: claim, of: of, consumer: c,
		to: []byte(c.DeliverSubject), shards: make([]relayShard, len(of.Shards())), began: now, after: after,
	}
	if after != nil {
		r.spoke = true // so that it ends behind what the one before has sent
		after.mu.Lock()
		after.then = r
		after.mu.Unlock()
	}
	if c.FlowControl {
		r.window.Open()
	}
	r.pace.Bits, r.former.begun = c.RateLimit, fresh
	r.interest = g.server.watchFor(c.User, c.DeliverSubject, c.DeliverGroup, r.wake)
	return r
}

// fits reports whether the relay can go on with a declaration and a claim.
func (r *relay) fits(declared *coordination.Subscription, claim subscription.Claim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, to := r.consumer, &declared.Spec.Consumer
	return r.made == declared.Incarnation() && r.claim == claim && is.DeliverSubject == to.DeliverSubject && is.User == to.User && is.DeliverGroup == to.DeliverGroup && is.FlowControl == to.FlowControl
}

// respecify applies a declaration that fits.
func (r *relay) respecify(declared *coordination.Subscription) {
	r.mu.Lock()
	r.consumer = &declared.Spec.Consumer
	r.pace.Bits = r.consumer.RateLimit
	r.mu.Unlock()
	r.wake()
}

func (r *relay) wake() { r.relays.tasks.Wake(r, work.Normal) }

// bound reports whether somebody is subscribed to the deliver subject.
func (r *relay) bound() bool { return r.interest.Present() }

// end ends the relay, which is removed from relays. It still passes on what it has asked for,
// unless that is to be dropped.
func (r *relay) end(drop bool) {
	r.interest.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = true
	r.forgo(&r.former)
	for i := range r.shards {
		s := &r.shards[i]
		r.drop(&s.watch)
		r.drop(&s.question)
		if drop {
			r.drop(&s.share)
		}
	}
	if drop {
		r.forgo(&r.passed)
		r.closed, r.gone = true, true
		if r.after != nil {
			r.inherit()
		}
		if r.timer != nil {
			r.timer.Stop()
		}
		if r.then != nil {
			r.then.wake()
		}
	}
	r.close()
	r.wake()
}

// over reports whether the relay has ended, and all relays before it on this broker.
func (r *relay) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// isGone reports whether the relay has ended, and all that it sent has arrived.
func (r *relay) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

func (s *relayShard) requests() [3]*shardRequest {
	return [...]*shardRequest{&s.share, &s.watch, &s.question}
}

// drop forgets a request. mu is held.
func (r *relay) drop(e *shardRequest) {
	if e.number != 0 {
		r.relays.server.shares.drop(e.number)
		*e = shardRequest{}
	}
}

// step does what is due.
func (r *relay) step() {
	server, held := r.relays.server, r.relays.isHeld(r.key)
	r.mu.Lock()
	now := time.Now()
	if r.gone {
		answers := r.yielded
		r.yielded = nil
		r.mu.Unlock()
		for _, answer := range answers {
			answer()
		}
		r.relays.forget(r)
		return
	}
	r.dropLost(now)
	if r.ending || r.superseded {
		round, answers := r.conclude(now)
		r.arm(now)
		gone := r.gone
		r.mu.Unlock()
		r.sendRound(round)
		for _, answer := range answers {
			answer()
		}
		if gone {
			r.relays.forget(r)
		}
		return
	}
	var behind work.Behind
	idle := r.lookForReceiver(now)
	all, round := r.ask(now)
	if r.started && !held && r.away.IsZero() {
		grants := r.grant(now)
		if len(grants) > 0 {
			behind = r.behind.Take()
		}
		all = append(append(all, grants...), r.watch(now)...)
	}
	r.sending = len(all) > 0
	r.arm(now)
	r.mu.Unlock()
	if idle {
		server.deleteInactive(r.of, r.key.consumer, r.made)
	}
	r.sendRound(round)
	behind.Wait() // what is sent waits in memory
	for i := range all {
		r.send(&all[i])
	}
	if len(all) > 0 {
		r.sent()
	}
}

// sent notes that the requests of a step were sent.
func (r *relay) sent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sending = false; r.ending || r.superseded {
		r.wake()
	}
	if r.then != nil {
		r.then.wake()
	}
}

// send sends a request that the relay has noted, unless it was dropped since, or the relay asks
// for nothing any more. The time in which its result has to come begins now: the hub may have been
// full for long, and deliveries of a request that counts as lost are dropped.
func (r *relay) send(o *outgoing) {
	r.mu.Lock()
	e := o.kind(&r.shards[o.shard])
	noted := e.number == o.what.Number
	if noted && (r.ending || r.superseded) {
		r.drop(e)
		noted = false
	}
	if noted {
		e.until = time.Now().Add(o.what.Watch + lostAfter)
	}
	r.mu.Unlock()
	if !noted || r.relays.server.shares.send(o.leader, &o.what) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	shard := &r.shards[o.shard]
	if e := o.kind(shard); e.number == o.what.Number {
		r.drop(e)
	}
	now := time.Now()
	shard.again = now.Add(groupAgain)
	r.arm(now)
}

// request notes a request to a shard. mu is held.
func (r *relay) request(now time.Time, at int, kind func(*relayShard) *shardRequest, what shareRequest) outgoing {
	server, p, e := r.relays.server, r.of.Shards()[at], kind(&r.shards[at])
	what.Stream, what.Name, what.Relay = p.Key(), r.key.consumer, true
	what.Claim = &shareClaim{r.claim.Generation, r.claim.Epoch}
	what.Number = server.shares.begin(openRequest{by: r, shard: at, watch: what.Watch > 0})
	*e = shardRequest{number: what.Number, leader: p.Leader(), until: now.Add(what.Watch + lostAfter), share: what.Bytes}
	if what.Bytes > 0 {
		what.To = appendRelayTo(nil, what.Number, server.config.Self)
	}
	return outgoing{at, e.leader, kind, what}
}

// dropLost drops requests whose results will not arrive. mu is held.
func (r *relay) dropLost(now time.Time) {
	streams := r.of.Shards()
	for i := range r.shards {
		shard := &r.shards[i]
		for _, e := range shard.requests() {
			if e.number == 0 {
				continue
			}
			if streams[i].Leader() != e.leader {
				// The result of a share may still be under way.
				if soon := now.Add(groupAgain); e == &shard.share && soon.Before(e.until) {
					e.until = soon
				} else if e != &shard.share {
					e.until = now
				}
			}
			if !now.Before(e.until) {
				r.drop(e)
			}
		}
	}
}

// linked asks a broker again what it may not have got, or not answered, before it had a new link.
// A broker that has restarted under its id has one, too. All that came over the link before was
// taken. So the answer to a question ends a share whose result was lost.
func (r *relay) linked(broker string) {
	r.mu.Lock()
	for i := range r.shards {
		shard := &r.shards[i]
		for _, e := range []*shardRequest{&shard.watch, &shard.question} {
			if e.leader == broker {
				r.drop(e)
			}
		}
		if shard.share.number != 0 && shard.share.leader == broker {
			shard.doubtful = true
		}
	}
	r.mu.Unlock()
	r.wake()
}

// lookForReceiver notes whether somebody is subscribed to the deliver subject, and sends the
// heartbeat that is due. idle reports that the consumer was unused for as long as it permits. mu
// is held.
func (r *relay) lookForReceiver(now time.Time) (idle bool) {
	if !r.bound() {
		if r.away.IsZero() {
			r.away = now
		}
		if due := r.inactiveAt(); !due.IsZero() && !now.Before(due) {
			r.away = now // it is deleted, or that is tried again
			return true
		}
		return false
	}
	heartbeat := r.consumer.IdleHeartbeat
	if !r.away.IsZero() || r.beat.IsZero() {
		r.away, r.beat = time.Time{}, now.Add(heartbeat)
		if r.window.Token() != 0 { // the receiver that was asked may be gone
			r.requestConfirmation()
		}
	}
	r.askToConfirm() // the last answer may have left more than half of the window
	if r.started && heartbeat > 0 && !now.Before(r.beat) {
		var stalled *jsapi.Flow
		if r.window.Full() {
			stalled = r.flow()
		}
		header := jsapi.AppendHeartbeat(nil, r.sum.Sequence, r.sum.Offset, stalled)
		r.spoke = true
		r.relays.server.send(protocol.Message{Subject: r.to, Header: len(header), Data: header})
		r.beat = now.Add(heartbeat)
	}
	return false
}

// inactiveAt returns when the consumer is deleted unless somebody subscribes, or zero. mu is held.
func (r *relay) inactiveAt() time.Time {
	if r.consumer.InactiveThreshold <= 0 || r.away.IsZero() {
		return time.Time{}
	}
	due := r.away.Add(r.consumer.InactiveThreshold)
	if due.Before(r.keepUntil) {
		return r.keepUntil
	}
	return due
}

// ask has the relays of other brokers yield, and asks shards to confirm the claim and where the
// consumer stands, until all have answered. The relay starts then, or when relayPatience is over.
// mu is held.
func (r *relay) ask(now time.Time) (all []outgoing, round []toBroker) {
	if r.after != nil {
		switch {
		case r.after.over():
			r.inherit()
		case !r.after.quiet():
			r.began = now
			return nil, nil
		}
	}
	if !r.former.begun {
		r.began, round = now, r.askToYield(now)
	}
	unknown := false
	for i := range r.shards {
		shard := &r.shards[i]
		unknown = unknown || !shard.known
		if (!shard.known || shard.doubtful) && shard.question.number == 0 && !now.Before(shard.again) {
			all = append(all, r.request(now, i, questionOf, shareRequest{State: true}))
		}
	}
	waits := unknown || r.after != nil || r.waits(&r.former, now)
	if !r.started && (!waits || !now.Before(r.began.Add(relayPatience))) {
		r.start()
	}
	return all, round
}

// grant assigns shares of what may be sent to the shards that have something. mu is held.
func (r *relay) grant(now time.Time) (all []outgoing) {
	if r.window.Full() || now.UnixNano() < r.pace.Next {
		return nil
	}
	open, ready := 0, 0
	for i := range r.shards {
		shard := &r.shards[i]
		open += shard.share.share
		if shard.grantable(now) {
			ready++
		}
	}
	if ready == 0 || r.pace.Bits > 0 && open > 0 {
		return nil
	}
	each := relayShare
	if r.window.Limit() > 0 {
		room := r.window.Room() - open
		if room <= 0 && open > 0 {
			return nil
		}
		each = min(each, max(room/ready, 1))
	}
	if r.pace.Bits > 0 {
		// One share at a time, of what the rate permits soon.
		each, ready = min(each, int(min(r.pace.Bits/8/relayRateParts, relayShare))+1), 1
	}
	for i := range r.shards {
		at := (r.next + i) % len(r.shards)
		if shard := &r.shards[at]; ready > 0 && shard.grantable(now) {
			all = append(all, r.request(now, at, shareOf, shareRequest{Batch: relayBatch, Bytes: each}))
			ready--
		}
	}
	r.next = (r.next + 1) % len(r.shards)
	return all
}

func (s *relayShard) grantable(now time.Time) bool {
	// The answer to a question ends what the shard was asked for before.
	return s.known && s.ready && s.share.number == 0 && !s.doubtful && s.question.number == 0 && !now.Before(s.again)
}

// watch watches the shards that have nothing. mu is held.
func (r *relay) watch(now time.Time) (all []outgoing) {
	for i := range r.shards {
		shard := &r.shards[i]
		if shard.known && !shard.ready && shard.share.number == 0 && shard.watch.number == 0 && !now.Before(shard.again) {
			all = append(all, r.request(now, i, watchOf, shareRequest{Watch: watchTime}))
		}
	}
	return all
}

// arm sets the timer. mu is held.
func (r *relay) arm(now time.Time) {
	next := time.Time{}
	due := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for i := range r.shards {
		shard := &r.shards[i]
		if now.Before(shard.again) {
			due(shard.again)
		}
		for _, e := range shard.requests() {
			if e.number != 0 {
				due(e.until)
			}
		}
	}
	if r.ending || r.superseded {
		if len(r.passed.open) > 0 {
			due(r.passed.until)
		}
		r.setTimer(now, next)
		return
	}
	if !r.started {
		due(r.began.Add(relayPatience))
		if len(r.former.open) > 0 {
			due(r.former.until)
		}
	}
	if r.started && r.away.IsZero() && r.consumer.IdleHeartbeat > 0 {
		due(r.beat)
	}
	if at := r.pace.Next; at > now.UnixNano() {
		due(time.Unix(0, at))
	}
	due(r.inactiveAt())
	r.setTimer(now, next)
}

// setTimer has the relay woken at a time; zero: at none. mu is held.
func (r *relay) setTimer(now, next time.Time) {
	if next.IsZero() || r.gone {
		return
	}
	if wait := max(next.Sub(now), time.Millisecond); r.timer == nil {
		r.timer = time.AfterFunc(wait, r.wake)
	} else {
		r.timer.Reset(wait)
	}
}

// finish takes the result of a request. It implements requester.
func (r *relay) finish(of openRequest, got shareResult) {
	if of.round != nil {
		r.answered(of.round, got)
		return
	}
	r.mu.Lock()
	shard := &r.shards[of.shard]
	for _, e := range shard.requests() {
		if e.number != got.Number {
			continue
		}
		question := e == &shard.question
		*e = shardRequest{}
		switch got.Why {
		case subscription.Ready:
			shard.ready = true
		case subscription.NoMessages:
			shard.ready = false
		case subscription.Superseded:
			r.superseded = true
		case 0, subscription.BatchDone, subscription.Expired:
		default: // its leader is gone, or knows another declaration of the consumer
			shard.ready, shard.again = false, time.Now().Add(groupAgain)
		}
		if question && got.State != nil {
			r.learn(of.shard, got.State)
		}
	}
	r.mu.Unlock()
	r.wake()
}

// learn takes where a shard stands. mu is held.
func (r *relay) learn(at int, is *shareState) {
	shard := &r.shards[at]
	shard.doubtful = false
	switch {
	case is.Ended:
		if r.after != nil {
			r.after.endShare(at)
		}
		if shard.share.number != 0 { // what it has not delivered is there still
			r.drop(&shard.share)
			shard.ready = true
		}
	case r.after != nil && r.after.hasShare(at): // which the leader, of an earlier version, goes on with
		shard.again = time.Now().Add(groupAgain)
		return
	}
	if shard.known {
		return
	}
	shard.known, shard.last = true, *is
	if !r.started {
		r.sum.Sequence += is.Sequence
		r.sum.Offset += is.Offset
	}
	r.sum.Pending += is.Pending
}

// deliver passes a delivery of a share on. It never blocks.
func (r *relay) deliver(shard int, number uint64, m protocol.Message) {
	d, ok := jsapi.ParseAckSubject(m.Reply)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.shards[shard]
	if r.closed || s.share.number != number {
		return // the share counts as lost
	}
	now := time.Now()
	if later := now.Add(lostAfter); later.After(s.share.until) {
		s.share.until = later
	}
	r.count(s, shareState{Sequence: d.ConsumerSeq, Offset: d.StreamSeq, Pending: d.Pending})
	d.ConsumerSeq, d.Pending = r.sum.Sequence, r.sum.Pending
	r.ack = d.AppendSubject(r.ack[:0])
	m.To, m.Reply = r.to, r.ack
	r.send1(m)
	size := len(m.Subject) + len(m.Reply) + len(m.Data)
	r.beat = now.Add(r.consumer.IdleHeartbeat)
	r.pace.Sent(size, now.UnixNano())
	r.window.Add(size)
	r.askToConfirm()
}

// askToConfirm sends a flow control request if one is due. mu is held.
func (r *relay) askToConfirm() {
	if r.window.Due() {
		r.window.Ask(rand.Uint64() | 1)
		r.requestConfirmation()
	}
}

// count adds a delivery to the sums of all shards. What a shard delivered before it was known does
// not count, and a delivery that was lost does, so that the receiver sees the gap. mu is held.
func (r *relay) count(s *relayShard, now shareState) {
	step := uint64(1)
	if s.known && now.Sequence > s.last.Sequence {
		step = now.Sequence - s.last.Sequence
	}
	r.sum.Sequence += step
	if s.known && now.Offset > s.last.Offset {
		r.sum.Offset += now.Offset - s.last.Offset
	}
	r.sum.Pending += now.Pending - s.last.Pending
	if s.known && now.Offset < s.last.Offset { // a redelivery
		now.Offset = s.last.Offset
	}
	s.known, s.last = true, now
}

// send1 sends a message at once. The Hub copies it. mu is held.
func (r *relay) send1(m protocol.Message) {
	r.out[0], r.spoke = m, true
	r.behind.Join(r.relays.server.config.Hub.SendSoon(r.out[:]))
	r.out[0] = protocol.Message{}
}

func (r *relay) flow() *jsapi.Flow {
	return &jsapi.Flow{Stream: []byte(r.of.Name()), Consumer: []byte(r.key.consumer), Token: r.window.Token()}
}

// requestConfirmation sends the flow control request that is under way. mu is held.
func (r *relay) requestConfirmation() {
	header := jsapi.AppendFlowRequest(nil)
	r.send1(protocol.Message{Subject: r.to, Reply: r.flow().AppendSubject(nil), Header: len(header), Data: header})
}

// flowControlled takes the receiver's answer to a flow control request.
func (r *relay) flowControlled(token uint64) {
	r.mu.Lock()
	ok := !r.closed && r.window.Confirm(token)
	r.mu.Unlock()
	if ok {
		r.wake()
	}
}
