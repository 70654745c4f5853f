package jetstream

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/subscription"
)

// A relay succeeds another one, of this broker or of another, and the receiver must see one
// consumer. Who knows what:
//
//  1. A relay knows the one before it on this broker. That of another broker it doesn't know, and
//     neither does a shard whose leader is new. So it asks all brokers that are registered or
//     linked to have theirs yield, unless its consumer is younger than its claim.
//  2. A relay that ends or yields asks for nothing more. When nothing that it has asked for can
//     come any more, all that it passed on is in the queues of this broker's links. It sends a
//     request behind that over each link (round passed). With the last answer all is with the
//     brokers of the receivers, and nothing that is sent later, by any broker, can overtake it.
//     Then it answers those it yields to, with the last sequence.
//  3. A shard's answer to the question of a relay follows, on the same link, all that the shard has
//     sent to an earlier one of the same broker, and ends what that one has open there. So the next
//     relay asks at once, and doesn't wait for shares that were lost with a link.
//  4. A relay begins when all shards and all brokers have answered. It waits for brokers for
//     yieldTime at most, and for shards for relayPatience. Its sequence goes on behind the sum of
//     the shards' ones, and behind the last one that a former relay told. One that is replaced
//     before it began passes that on.
//
// A broker of an earlier version answers without a yield, or not at all, and its leaders don't say
// that they end what was open. Shards have its relays yield, as before (claim.go).

// round is a request to all other brokers, and the answers that it waits for.
type round struct {
	begun bool
	open  map[uint64]bool // by number
	until time.Time       // nobody is waited for any longer
}

// toBroker is a request of a round.
type toBroker struct {
	broker string
	what   shareRequest
}

// begin notes a request to each other broker. mu is held, and the requests are sent without it.
func (r *relay) begin(w *round, now time.Time, what shareRequest) (all []toBroker) {
	w.begun, w.open, w.until = true, map[uint64]bool{}, now.Add(yieldTime)
	server := r.relays.server
	what.From = server.config.Self
	ids := server.config.Hub.Peers()  // one without a lease may still have a relay
	brokers := server.state().Brokers // of one State: another one may have fewer
	for i := range brokers {
		ids = append(ids, brokers[i].ID)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != what.From {
			what.Number = server.shares.begin(openRequest{by: r, round: w})
			w.open[what.Number] = true
			all = append(all, toBroker{id, what})
		}
	}
	return all
}

// waits reports whether answers are waited for. If the time is over, those are forgotten. mu is
// held.
func (r *relay) waits(w *round, now time.Time) bool {
	if len(w.open) > 0 && !now.Before(w.until) {
		r.forgo(w)
	}
	return len(w.open) > 0
}

// forgo forgets the answers of a round. mu is held.
func (r *relay) forgo(w *round) {
	for number := range w.open {
		r.relays.server.shares.drop(number)
	}
	w.open = nil
}

// sendRound sends requests of rounds. Brokers without a link are not waited for.
func (r *relay) sendRound(all []toBroker) {
	for i := range all {
		if a := &all[i]; !r.relays.server.forward(a.broker, shareSubject, nil, &a.what) {
			r.relays.server.shares.finish(shareResult{Number: a.what.Number})
		}
	}
}

// answered takes an answer of a round.
func (r *relay) answered(w *round, got shareResult) {
	r.mu.Lock()
	delete(w.open, got.Number)
	if w == &r.former && got.State != nil {
		r.goOnBehind(got.State)
	}
	r.mu.Unlock()
	r.wake()
}

// goOnBehind notes where a former relay stood. mu is held.
func (r *relay) goOnBehind(at *shareState) {
	if !r.started {
		r.floor = furthest(r.floor, *at)
	}
}

// goOnBehindOf notes where a former relay of this broker stood, which is gone.
func (r *relay) goOnBehindOf(before *relay) {
	at := before.stands(r.made)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at != nil {
		r.goOnBehind(at)
	}
}

// askToYield asks the other brokers to have their relays yield. mu is held.
func (r *relay) askToYield(now time.Time) []toBroker {
	return r.begin(&r.former, now, shareRequest{
		Topic: r.key.topic, Made: r.made, Name: r.key.consumer, Yield: true, Claim: &shareClaim{r.claim.Generation, r.claim.Epoch},
	})
}

// start begins to deliver behind all that was delivered before. mu is held.
func (r *relay) start() {
	if r.after != nil { // it has waited for long enough
		r.after.endShares()
		r.inherit()
	}
	r.started = true
	r.sum = furthest(r.sum, r.floor)
}

// inherit takes over from the relay before it on this broker, which has ended. mu is held.
func (r *relay) inherit() {
	if at := r.after.stands(r.made); at != nil {
		r.goOnBehind(at)
	}
	r.after = nil
}

// stands returns where a relay of that incarnation of the consumer stands; nil: it doesn't know.
func (r *relay) stands(made int64) *shareState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standing(made)
}

// standing is stands under mu. A relay that has not begun stands where former ones did.
func (r *relay) standing(made int64) *shareState {
	if r.made != made {
		return nil
	}
	is := r.sum
	if !r.started {
		is = r.floor
		if r.after != nil {
			if at := r.after.stands(made); at != nil {
				is = furthest(is, *at)
			}
		}
	}
	if is == (shareState{}) {
		return nil
	}
	return &is
}

// furthest returns the larger sequence and offset.
func furthest(a, b shareState) shareState {
	a.Sequence, a.Offset = max(a.Sequence, b.Sequence), max(a.Offset, b.Offset)
	return a
}

// quiet reports whether neither the relay, which ends, nor one before it on this broker is about to
// send a request.
func (r *relay) quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.sending && (r.after == nil || r.after.quiet())
}

// hasShare reports whether the relay, or one before it on this broker, has an open share of a
// shard.
func (r *relay) hasShare(at int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at < len(r.shards) && r.shards[at].share.number != 0 || r.after != nil && r.after.hasShare(at)
}

// endShare forgets what the relay, and those before it on this broker, have open at a shard.
// Its leader has ended that.
func (r *relay) endShare(at int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.after != nil {
		r.after.endShare(at)
	}
	if at < len(r.shards) {
		r.drop(&r.shards[at].share)
	}
	r.close()
	r.wake()
}

// endShares is endShare for all shards.
func (r *relay) endShares() {
	for at := range r.shards {
		r.endShare(at)
	}
}

// yield has the relay, or one that ends, ask for nothing and send no heartbeats. answer is called
// once when all that it has passed on has arrived, with where it stands in that incarnation of the
// consumer, if it knows. It does not block.
func (r *relay) yield(made int64, answer func(*shareState)) {
	r.mu.Lock()
	gone := r.gone
	r.superseded = true
	if !gone {
		r.yielded = append(r.yielded, func() { answer(r.stands(made)) })
	}
	r.mu.Unlock()
	if gone {
		answer(r.stands(made))
		return
	}
	r.wake()
}

// asksNothing reports whether nothing that the relay has asked for can come any more. mu is held.
func (r *relay) asksNothing() bool {
	if r.sending || r.after != nil && !r.after.over() {
		return false
	}
	for i := range r.shards {
		if r.shards[i].share.number != 0 {
			return false
		}
	}
	return true
}

// close closes a relay that ends when nothing that it has asked for can come any more. mu is held.
func (r *relay) close() {
	if !r.ending || r.closed || !r.asksNothing() {
		return
	}
	r.closed = true
	if r.after != nil {
		r.inherit()
	}
	r.gone = !r.spoke && len(r.yielded) == 0
	if r.then != nil {
		r.then.wake()
	}
}

// conclude does what is due of a relay that ends or yields. mu is held. What it returns is sent,
// and called, without it.
func (r *relay) conclude(now time.Time) (all []toBroker, answers []func()) {
	r.close()
	if !r.asksNothing() {
		return nil, nil
	}
	if !r.passed.begun && r.spoke {
		all = r.begin(&r.passed, now, shareRequest{Yield: true})
	}
	if !r.waits(&r.passed, now) {
		answers, r.yielded, r.gone = r.yielded, nil, r.closed
	}
	return all, answers
}

// yield has the relay of an earlier claim here, and one that ends, yield to that of a request.
// answer is called as by relay.yield.
func (g *relays) yield(key pullGroupKey, l *shareRequest, answer func(*shareState)) {
	to := subscription.Claim{Generation: l.Claim.Generation, Epoch: l.Claim.Epoch}
	g.mu.Lock()
	r := g.all[key]
	if r == nil {
		r = g.ending[key]
	}
	if r == nil {
		r = g.left[key]
	}
	g.mu.Unlock()
	if r == nil || !r.claim.Before(to) {
		answer(nil)
		return
	}
	r.yield(l.Made, answer)
}
