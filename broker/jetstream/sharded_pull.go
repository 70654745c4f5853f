package jetstream

import (
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// group serves those who pull from a Subscription by the name of a Topic with several shards, on the broker that they ask. The
// cursors are with the shards' leaders, and a pull must get no more than it asked for. So it is divided: a shard is lent a part
// of what is asked for, delivers what it has straight to the client, and returns the rest at once. Shards that had nothing are
// watched (a pull that only peeks), and lent to when they have something.
//
// Each shard has one loan and one watch of a group at a time, so records of a subject reach a client in order. What a loan has
// delivered is known when it returns, behind the messages on the same link. If it never does, its pull ends with a change of
// leadership, as its client knows it, and nothing is delivered twice under one pull.
//
// Giving each shard the whole pull and cutting off what is too much would be simpler; but what is cut off is on its way to
// nobody until its ack wait is over. Bringing everything through this broker costs a copy more per message.
type group struct {
	groups *groups
	key    groupKey

	mu     sync.Mutex
	of     *topic.Topic
	pulls  []*wholePull
	shards []groupShard
	next   int // shard that is looked at first
	timer  *time.Timer
	gone   bool // from groups
}

type groupKey struct{ topic, consumer string }

// groupShard is what a group has under way in one shard.
type groupShard struct {
	loan, watch errand
	again       time.Time // not before that
}

// errand is a loan or a watch; number 0: there is none.
type errand struct {
	number uint64
	until  time.Time // it is lost if it hasn't returned by then
	leader string    // with whom it is
	to     *wholePull
	share  int // messages
}

// wholePull is one pull of a client.
type wholePull struct {
	to        []byte
	left      int // messages, with what is lent
	lent      int // of them
	loans     int
	bytes     int
	bounded   bool // by bytes: then one shard at a time is lent all of them
	got       bool // something
	noWait    bool
	expires   time.Time // zero: never
	heartbeat time.Duration
	beat      time.Time
	empty     map[int]bool // shards that had nothing when they were asked for it
	over      subscription.End
	dropped   bool // nobody listens any more
}

// Times of a group, each with the reason for its value.
const (
	// watchTime is how long one watch lasts: what a broker that went away keeps a leader busy with.
	watchTime = 10 * time.Second
	// lostAfter is how long after its end a watch or a loan counts as lost. A leader answers within a step.
	lostAfter = 5 * time.Second
	// groupAgain is how long a shard is left alone whose leader could not be asked, or refused.
	groupAgain = 100 * time.Millisecond
)

// groups are those of this broker.
type groups struct {
	server *Server

	mu      sync.Mutex
	all     map[groupKey]*group
	errands map[uint64]errandOf
	number  uint64
	closed  bool
}

type errandOf struct {
	group *group
	shard int
	watch bool
}

// loan is what the leader of a shard is asked for.
type loan struct {
	From   string        `json:"from"`
	Number uint64        `json:"number"`
	Stream string        `json:"stream"` // key
	Name   string        `json:"name"`   // of the consumer
	To     []byte        `json:"to,omitempty"`
	Batch  int           `json:"batch,omitempty"`
	Bytes  int           `json:"bytes,omitempty"`
	Watch  time.Duration `json:"watch,omitempty"` // 0: deliver what there is
}

// returned is how a loan or a watch ended.
type returned struct {
	Number   uint64           `json:"number"`
	Why      subscription.End `json:"why"`
	Messages int              `json:"messages"` // that were not delivered
	Bytes    int              `json:"bytes"`
}

// watch looks after all groups whenever leaders may have changed, until the server closes.
func (g *groups) watch() {
	topics := g.server.topics
	for {
		changed := topics.Changed()
		select {
		case <-changed:
		case <-g.server.ctx.Done():
			return
		}
		for _, one := range g.every() {
			one.step()
		}
	}
}

func (g *groups) every() []*group {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*group, 0, len(g.all))
	for _, one := range g.all {
		all = append(all, one)
	}
	return all
}

// close ends all pulls.
func (g *groups) close() {
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
func (g *groups) end(topicID, consumer string, why subscription.End) {
	g.mu.Lock()
	one := g.all[groupKey{topicID, consumer}]
	g.mu.Unlock()
	if one != nil {
		one.end(why)
	}
}

// waiting is how many pulls of a consumer wait on this broker.
func (g *groups) waiting(topicID, consumer string) int {
	g.mu.Lock()
	one := g.all[groupKey{topicID, consumer}]
	g.mu.Unlock()
	if one == nil {
		return 0
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	return len(one.pulls)
}

// pull begins one; most is how many of one consumer may wait.
func (g *groups) pull(of *topic.Topic, consumer string, to []byte, p *jsapi.Pull, most int) {
	key := groupKey{of.ID(), consumer}
	for {
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			g.server.endPull(to, subscription.Stopping, p.Batch, p.MaxBytes)
			return
		}
		one := g.all[key]
		if one == nil {
			one = &group{groups: g, key: key, shards: make([]groupShard, len(of.Shards()))}
			if g.all == nil {
				g.all, g.errands = map[groupKey]*group{}, map[uint64]errandOf{}
			}
			g.all[key] = one
		}
		g.mu.Unlock()
		if one.add(of, to, p, most) {
			return
		}
	}
}

func (g *group) add(of *topic.Topic, to []byte, p *jsapi.Pull, most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return false
	}
	g.of = of
	if len(g.pulls) >= most {
		g.sweep(func(w *wholePull) bool { return w.loans > 0 || g.interested(w) })
	}
	if len(g.pulls) >= most {
		if p.Heartbeat == 0 { // see MaxWaitingExceeded
			g.groups.server.endPull(to, subscription.TooManyWaiting, p.Batch, p.MaxBytes)
		}
		return true
	}
	now := time.Now()
	w := &wholePull{
		to: append([]byte(nil), to...), left: p.Batch, bytes: p.MaxBytes, bounded: p.MaxBytes > 0, noWait: p.NoWait,
		heartbeat: p.Heartbeat, beat: now.Add(p.Heartbeat), empty: map[int]bool{},
	}
	if p.Expires > 0 {
		w.expires = now.Add(p.Expires)
	}
	g.pulls = append(g.pulls, w)
	g.work(now)
	return true
}

func (g *group) interested(w *wholePull) bool { return g.groups.server.config.Hub.Interested(w.to) }

// sweep keeps the pulls of which keep says so. mu is held.
func (g *group) sweep(keep func(*wholePull) bool) {
	n := 0
	for _, w := range g.pulls {
		if keep(w) {
			g.pulls[n] = w
			n++
		}
	}
	clear(g.pulls[n:])
	g.pulls = g.pulls[:n]
}

func (g *group) end(why subscription.End) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.pulls {
		if w.over == 0 {
			w.over = why
		}
		if why == subscription.Stopping { // nobody waits for what is lent
			w.left, w.lent, w.loans = w.left-w.lent, 0, 0
		}
	}
	g.work(time.Now())
}

func (g *group) step() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		g.work(time.Now())
	}
}

// work does what is due, and sets the timer. mu is held.
func (g *group) work(now time.Time) {
	g.forgetLost(now)
	g.settle(now)
	g.lend(now)
	g.settle(now)
	waits := false
	for _, w := range g.pulls {
		waits = waits || w.over == 0 && w.left > w.lent
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
		if waits && shard.watch.number == 0 && shard.loan.number == 0 && !now.Before(shard.again) {
			g.send(now, i, nil, 0)
		}
		if waits && now.Before(shard.again) {
			due(shard.again)
		}
		for _, e := range []*errand{&shard.loan, &shard.watch} {
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

// retire forgets the group. mu is held.
func (g *group) retire() {
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

// forgetLost gives up what won't return. mu is held.
func (g *group) forgetLost(now time.Time) {
	streams := g.of.Shards()
	for i := range g.shards {
		shard := &g.shards[i]
		moved := func(e *errand) bool { return e.number != 0 && streams[i].Leader() != e.leader }
		if moved(&shard.loan) { // it may be on its way still
			if soon := now.Add(groupAgain); soon.Before(shard.loan.until) {
				shard.loan.until = soon
			}
		}
		if w := shard.loan.to; w != nil && !now.Before(shard.loan.until) {
			w.lent -= shard.loan.share
			w.left -= shard.loan.share // nobody knows
			w.loans--
			if w.over == 0 {
				w.over = subscription.LeaderGone
			}
			g.drop(&shard.loan)
		}
		if e := &shard.watch; e.number != 0 && (moved(e) || !now.Before(e.until)) {
			g.drop(e)
		}
	}
}

// drop forgets an errand. mu is held.
func (g *group) drop(e *errand) {
	g.groups.mu.Lock()
	delete(g.groups.errands, e.number)
	g.groups.mu.Unlock()
	*e = errand{}
}

// settle ends the pulls that are over, of which nothing is lent any more, and sends heartbeats. mu is held.
func (g *group) settle(now time.Time) {
	server := g.groups.server
	g.sweep(func(w *wholePull) bool {
		switch {
		case w.over != 0:
		case !w.expires.IsZero() && !now.Before(w.expires):
			w.over = subscription.Expired
		case w.noWait && w.loans == 0 && w.left > 0 && len(w.empty) == len(g.shards) && (w.expires.IsZero() || w.got):
			w.over = subscription.NoMessages
		case w.heartbeat > 0 && !now.Before(w.beat):
			if w.dropped = w.dropped || !g.interested(w); !w.dropped {
				header := jsapi.AppendHeartbeat(nil, 0, 0)
				server.send(protocol.Message{Subject: w.to, Header: len(header), Data: header})
			}
			w.beat = now.Add(w.heartbeat)
		}
		switch {
		case w.loans > 0:
			return true
		case w.dropped:
			return false
		case w.left <= 0 && w.over != subscription.LeaderGone:
			if w.bounded && w.bytes > 0 {
				server.endPull(w.to, subscription.BatchDone, 0, w.bytes)
			}
			return false
		case w.over != 0:
			server.endPull(w.to, w.over, max(w.left, 0), w.bytes)
			return false
		}
		return true
	})
}

// endPull tells a client why a pull gets nothing more.
func (s *Server) endPull(to []byte, why subscription.End, messages, bytes int) {
	if data := appendEnd(nil, why, messages, bytes); len(data) > 0 {
		s.send(protocol.Message{Subject: to, Header: len(data), Data: data})
	}
}

// lend divides what the pulls want over the shards that may have something. mu is held.
func (g *group) lend(now time.Time) {
	for turn := range g.pulls {
		w := g.pulls[turn]
		if w.over != 0 || w.dropped || w.left <= w.lent || w.bounded && w.loans > 0 {
			continue
		}
		checked := false
		for i := range g.shards {
			at := (g.next + i) % len(g.shards)
			if !g.mayLend(now, at, w) || w.left <= w.lent || w.bounded && w.loans > 0 {
				continue
			}
			if !checked {
				if checked = true; !g.interested(w) {
					w.dropped = true
					break
				}
			}
			share := w.left - w.lent
			if !w.bounded {
				share = max(1, share/g.candidates(now, i, w))
			}
			g.send(now, at, w, share)
		}
	}
	if n := len(g.pulls); n > 1 { // the others come first the next time
		first := g.pulls[0]
		copy(g.pulls, g.pulls[1:])
		g.pulls[n-1] = first
	}
	g.next = (g.next + 1) % len(g.shards)
}

// candidates are the shards from the i-th on that may have something for a pull. mu is held.
func (g *group) candidates(now time.Time, i int, w *wholePull) (n int) {
	for ; i < len(g.shards); i++ {
		if g.mayLend(now, (g.next+i)%len(g.shards), w) {
			n++
		}
	}
	return n
}

// mayLend says whether a shard may have something: nobody is watching it for that, or the pull doesn't wait and has to
// know. mu is held.
func (g *group) mayLend(now time.Time, at int, w *wholePull) bool {
	shard := &g.shards[at]
	return shard.loan.number == 0 && !now.Before(shard.again) && (shard.watch.number == 0 || w.noWait && !w.empty[at])
}

// send has a shard deliver a share to a pull; or, without a pull, say when it has something. mu is held.
func (g *group) send(now time.Time, at int, w *wholePull, share int) {
	server, shard, p := g.groups.server, &g.shards[at], g.of.Shards()[at]
	e := errand{until: now.Add(lostAfter), leader: p.Leader(), to: w, share: share}
	l := loan{From: server.config.Self, Stream: p.Key(), Name: g.key.consumer}
	if w == nil {
		l.Watch = watchTime
		e.until = e.until.Add(watchTime)
	} else {
		l.To, l.Batch = w.to, share
		if w.bounded {
			l.Bytes = w.bytes
		}
	}
	g.groups.mu.Lock()
	g.groups.number++
	e.number = g.groups.number
	g.groups.errands[e.number] = errandOf{g, at, w == nil}
	g.groups.mu.Unlock()
	l.Number = e.number
	sent := e.leader != ""
	if sent && e.leader == server.config.Self {
		sent = server.lendHere(&l, func(r returned) { server.groups.back(r) })
	} else if sent {
		sent = server.forward(e.leader, askLoan, nil, l)
	}
	if !sent {
		g.drop(&e)
		shard.again = now.Add(groupAgain)
		if w != nil {
			w.empty[at] = true // it has nothing that could be had now
		}
		return
	}
	if w == nil {
		shard.watch = e
		return
	}
	w.lent += share
	w.loans++
	shard.loan = e
}

// lendHere serves another broker's group, or one of this one's, from a shard that is led here.
func (s *Server) lendHere(l *loan, tell func(returned)) bool {
	sub := s.config.Subscriptions().Find(l.Stream, l.Name)
	if sub == nil {
		return false
	}
	number := l.Number
	pull := subscription.Pull{To: l.To, Batch: l.Batch, MaxBytes: l.Bytes, NoWait: true}
	if l.Watch > 0 {
		pull.NoWait, pull.Peek, pull.Expires = false, true, min(l.Watch, watchTime)
	}
	sub.Lend(pull, func(o subscription.Outcome) { tell(returned{number, o.Why, o.Messages, o.Bytes}) })
	return true
}

// takeLoan serves another broker's group.
func (s *Server) takeLoan(m *protocol.Message) {
	var l loan
	if json.Unmarshal(m.Data, &l) != nil {
		return
	}
	from := l.From
	tell := func(r returned) { s.forward(from, tellLoan, nil, r) }
	if !s.lendHere(&l, tell) {
		s.reads.submit(func() { tell(returned{l.Number, subscription.LeaderGone, l.Batch, l.Bytes}) }, 0)
	}
}

// returned takes what another broker says of a loan.
func (g *groups) returned(m *protocol.Message) {
	var r returned
	if json.Unmarshal(m.Data, &r) == nil {
		g.back(r)
	}
}

// back takes a loan or a watch back.
func (g *groups) back(r returned) {
	g.mu.Lock()
	of, known := g.errands[r.Number]
	delete(g.errands, r.Number)
	g.mu.Unlock()
	if known {
		of.group.back(of, r)
	}
}

func (g *group) back(of errandOf, r returned) {
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
			shard.watch = errand{}
		}
		for _, w := range g.pulls {
			switch {
			case r.Why == subscription.Deleted && w.over == 0:
				w.over = r.Why
			case r.Why == subscription.Expired && !g.interested(w): // it would have itself watched for ever
				w.dropped = true
			}
		}
		g.work(now)
		return
	}
	if shard.loan.number != r.Number {
		return // it was given up
	}
	w, share := shard.loan.to, shard.loan.share
	shard.loan = errand{}
	delivered := max(share-max(r.Messages, 0), 0)
	w.lent -= share
	w.loans--
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
		if w.over == 0 {
			w.over = r.Why
		}
	case r.Why == 0 && delivered < share:
		w.dropped = true // nobody listens there any more
	case shard.again.After(now):
		w.empty[of.shard] = true
	}
	if r.Why == subscription.NoMessages && shard.watch.number == 0 && g.wanted() {
		g.send(now, of.shard, nil, 0)
	}
	g.work(now)
}

// wanted says whether a pull wants more. mu is held.
func (g *group) wanted() bool {
	for _, w := range g.pulls {
		if w.over == 0 && w.left > w.lent {
			return true
		}
	}
	return false
}

// takeWholePull serves a pull by the Topic's name.
func (s *Server) takeWholePull(m *protocol.Message, r *jsapi.Request, of *topic.Topic) {
	header, payload := protocol.SplitData(m.Data, m.Header)
	if !s.levelServed(header) {
		s.sendStatus(m.Reply, jsapi.LevelRequired)
		return
	}
	s.pullWhole(of, string(r.Consumer), m.Reply, payload)
}

func (s *Server) pullWhole(of *topic.Topic, consumer string, to, payload []byte) {
	declared := s.state().Subscription(of.ID(), consumer)
	if declared == nil {
		s.sendStatus(to, noResponders)
		return
	}
	s.pulls.Add(1)
	p, refusal := jsapi.ParsePull(payload)
	may := &declared.Spec.Consumer
	if refusal == nil {
		refusal = p.Within(&jsapi.ConsumerConfig{MaxRequestBatch: may.MaxBatch, MaxRequestExpires: may.MaxExpires, MaxRequestMaxBytes: may.MaxBytes})
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
	s.groups.pull(of, consumer, to, &p, most)
}
