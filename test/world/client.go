package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/test/recount"
)

// kind is what a client does.
type kind int

const (
	plain        kind = iota // publishes
	withIDs                  // publishes with message ids, and republishes messages of unknown fate
	expecting                // publishes if the Topic's last message is the expected one
	swapping                 // publishes if the last message of a shared subject is the expected one
	reusing                  // publishes with few message ids, each again long after its deduplication window
	reading                  // reads from front to end, and asks for the last message of the Topic and of a subject
	subscribing              // reads through the Topic's Subscription, and acknowledges
	snapping                 // holds a snapshot, and reads it twice
	flooding                 // publishes without asking for answers
	deleting                 // deletes single messages
	rolling                  // publishes messages that remove older ones
	batching                 // publishes atomic batches
	fasting                  // publishes fast batches
	expiring                 // publishes messages that expire
	schedulingAt             // publishes schedules
)

var kindNames = map[kind]string{plain: "plain", withIDs: "ids", expecting: "last", swapping: "swap", reusing: "reuse", reading: "reader", subscribing: "sub", snapping: "snap", flooding: "flood", deleting: "del", rolling: "roll", batching: "batch", fasting: "fast", expiring: "ttl", schedulingAt: "sched"}

// client is a connection to one broker at a time, whose operations follow each other.
type client struct {
	w      *world
	name   string
	number uint64 // of its connections
	kind   kind
	topic  *declared
	// subscription is the name of the one that it reads through; empty: none.
	subscription string
	every        time.Duration
	// moving makes it connect to another broker again and again, also to an unreachable one.
	moving   bool
	rng      *rand.Rand // its goroutine's
	stopping atomic.Bool
	over     chan struct{} // closed when it has stopped

	life  *life // the process that it is connected to
	count int
	last  uint64                   // the last offset, as far as it knows
	known map[string]uint64        // the last offset of each subject, as far as it knows
	next  []uint64                 // to be read of each shard
	used  map[string]time.Duration // message ids, and when they were acknowledged last
	brims map[int]brim             // by shard
	sent  []*operation             // messages that it may republish

	mu     sync.Mutex
	acks   int
	lately time.Duration // time of its last ack or read
}

// operation is one publish of a message.
type operation struct {
	client   *client
	life     *life   // the process that it was published to
	shard    shardID // the shard that has to keep it
	subject  string
	value    string
	id       string
	expects  kind
	expected uint64
	absent   string     // a pattern that no message matches, on condition of that; empty: none
	before   *operation // the message before it in one write of a plain client; nil: it is the first one
	rollup   string
	// increment is what the message adds to a counter; 0: it is not about one.
	increment int
	due       time.Duration // when it is due; 0: it is no schedule
	target    string        // the subject of its message then
	ttl       time.Duration // after which it expires; 0: as the Topic says
	batch     *batch        // the atomic batch that it is part of; nil: none
	fast      *fastBatch    // the fast batch that it is part of; nil: none
	part      int           // its place in its batch, from 0

	reading *recount.Reading // what it says to Views; nil: nothing

	call, back uint64 // stamps; back 0: no answer came
	at         time.Duration
	outcome    outcome
	offset     uint64 // of the record; of the last record in a refusal by condition
	reason     string
	total      string // of the counter, in the answer
	answers    int
	done       chan struct{}
}

// again returns another publish of the same message.
func (op *operation) again() *operation {
	return &operation{client: op.client, shard: op.shard, subject: op.subject, value: op.value, id: op.id, expects: op.expects, increment: op.increment, reading: op.reading, done: make(chan struct{})}
}

const (
	// shortWindow is the deduplication window of the Topics of reusing clients. These use an id
	// again after reuseAfter: longer than the window, than an outbox keeps a message, and than the
	// difference between synchronised clocks of a world.
	shortWindow = 2 * time.Second
	reuseAfter  = 30 * time.Second
	// stillPause is how long a client waits before it looks again whether clients are to do nothing.
	stillPause = 50 * time.Millisecond
	reusedIDs  = 8
)

type outcome int

const (
	unknown   outcome = iota
	kept              // acknowledged
	duplicate         // acknowledged as kept before
	wrongLast         // refused, since another message is the last
	refused           // for another reason; the message may or may not be kept
)

func newClient(w *world, n int, k kind, topic *declared, every time.Duration) {
	makeClient(w, n, k, topic, every).start()
}

// newSubscriber starts a client that reads through a Subscription.
func newSubscriber(w *world, n int, subscription string, topic *declared, every time.Duration) {
	c := makeClient(w, n, subscribing, topic, every)
	c.subscription = subscription
	c.start()
}

func (c *client) start() {
	c.moving = slices.Contains(c.w.options.Readers, "moving")
	c.w.clients = append(c.w.clients, c)
	c.w.running.Go(c.run)
}

func makeClient(w *world, n int, k kind, topic *declared, every time.Duration) *client {
	return &client{w: w, name: fmt.Sprintf("%s%d", kindNames[k], n), number: uint64(n) + 1, kind: k, topic: topic, every: every, over: make(chan struct{}),
		rng: rand.New(rand.NewPCG(w.seed, 100+uint64(n))), known: map[string]uint64{}, used: map[string]time.Duration{}, brims: map[int]brim{}, next: make([]uint64, topic.shards())}
}

func (c *client) pause(from, to time.Duration) {
	time.Sleep(from + time.Duration(c.rng.Int64N(int64(to-from)+1)))
}

func (c *client) run() {
	defer close(c.over)
	for !c.stopping.Load() {
		every := c.every * time.Duration(c.w.pace.Load())
		c.pause(every/2, every*3/2)
		for c.w.still.Load() && !c.stopping.Load() {
			time.Sleep(stillPause)
		}
		if c.life == nil || c.life.dead.Load() || !c.life.ready.Load() || c.rng.IntN(200) == 0 || c.moving && c.rng.IntN(3) == 0 {
			if c.life = c.connect(); c.life == nil {
				continue
			}
		}
		switch c.kind {
		case reading:
			c.read()
		case subscribing:
			c.consume()
		case snapping:
			c.snap()
		case flooding:
			c.flood()
		case deleting:
			c.remove()
		case batching:
			c.publishBatch()
		case fasting:
			c.publishFast()
		default:
			c.publish()
		}
	}
}

// connect returns a broker that accepts clients.
func (c *client) connect() *life {
	m := c.w.machines[c.rng.IntN(len(c.w.machines))]
	if l := m.life; m.on && l != nil && !l.dead.Load() && l.ready.Load() && l.serves(c.topic) != nil {
		return l
	}
	return nil
}

// ownSubjects is the number of subjects that only this client publishes on.
const ownSubjects = 3

// sharedSubject returns a subject that several clients publish on: about two of each shard.
func (c *client) sharedSubject() string {
	return fmt.Sprintf("%s.shared.%d", c.topic.name, c.rng.IntN(2*c.topic.shards()))
}

func (c *client) publish() {
	if c.past() {
		return
	}
	messages := 1
	if c.kind == plain || c.kind == withIDs {
		messages += c.rng.IntN(3)
	}
	var ops []*operation
	for range messages {
		c.count++
		op := &operation{client: c, subject: fmt.Sprintf("%s.%s.%d", c.topic.name, c.name, c.rng.IntN(ownSubjects)), value: fmt.Sprintf("%s#%d", c.name, c.count), expects: c.kind, done: make(chan struct{})}
		switch c.kind {
		case plain:
			if c.rng.IntN(10) == 0 {
				op.subject = c.sharedSubject()
			}
			if n := len(ops); n > 0 {
				op.before = ops[n-1]
			}
			if c.topic.shards() == 1 && c.count%3 == 0 { // it waits, and what follows is behind it
				op.absent = fmt.Sprintf("%s.*.absent-%d", c.topic.name, c.count)
			}
		case withIDs:
			op.id = op.value
		case reusing:
			op.id = fmt.Sprintf("%s.%d", c.name, c.count%reusedIDs)
			if was, ok := c.used[op.id]; ok && c.w.now()-was < reuseAfter {
				return // the deduplication window may still contain it
			}
			delete(c.used, op.id)
		case expecting:
			op.expected = c.last
		case swapping:
			op.subject = c.sharedSubject()
			op.expected = c.known[op.subject]
		case rolling:
			c.rollUp(op)
		case expiring:
			c.lives(op)
		case schedulingAt:
			c.schedule(op)
		}
		if c.topic.counts() {
			c.increment(op)
		}
		if c.topic.viewed != nil {
			op.reading = c.reading()
		}
		op.shard = c.topic.shard(c.topic.shardOf(op.subject))
		ops = append(ops, op)
	}
	c.send(ops)
	if c.kind == reusing {
		for _, op := range ops {
			c.used[op.id] = c.w.now() // whatever its fate is, it is not kept later than about now
		}
		return
	}
	if c.kind == withIDs {
		c.remember(ops)
	}
	if op := ops[0]; op.outcome == kept && c.kind == withIDs && c.rng.IntN(8) == 0 {
		c.pause(0, 2*time.Second)
		if c.rng.IntN(2) == 0 {
			c.life = c.connect()
		}
		if c.life != nil {
			c.send([]*operation{op.again()})
		}
	}
	for again := 0; c.kind == withIDs && again < repeats; again++ {
		var open []*operation
		for _, op := range ops {
			if op.outcome == unknown || op.outcome == refused {
				open = append(open, op.again())
			}
		}
		if len(open) == 0 || c.stopping.Load() {
			return
		}
		c.pause(10*time.Millisecond, 500*time.Millisecond)
		if c.life == nil || c.life.dead.Load() || c.rng.IntN(2) == 0 {
			if c.life = c.connect(); c.life == nil {
				return
			}
		}
		c.send(open)
		ops = open
	}
}

// send publishes messages in one write, and waits until all are answered, the connection ends, or
// answerTime has passed.
func (c *client) send(ops []*operation) {
	w, l := c.w, c.life
	var messages []protocol.Message
	var asked []*operation
	for _, op := range ops {
		op.life = l
		w.judge.called(op)
		reply := ""
		if op.wantsAnswer() {
			reply = fmt.Sprintf("_R.%d", op.call)
			asked = append(asked, op)
			l.hub.mu.Lock()
			l.hub.boxes[reply] = &box{client: c, op: op}
			l.hub.mu.Unlock()
		}
		messages = append(messages, op.messages(reply, strings.Repeat(".", c.rng.IntN(200)))...)
	}
	w.io(w.delay(wireMin, wireMax), fmt.Sprintf("%s publishes %s and %d more to %s", c.name, ops[0].value, len(ops)-1, l))
	if l.dead.Load() || !l.ready.Load() || !l.hub.publish(c, messages) {
		c.life = nil
		return
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	for _, op := range asked {
		select {
		case <-op.done:
		case <-l.gone:
			c.life = nil
			return
		case <-late.C:
			c.life = nil
			return
		}
	}
}

// messages are what is sent to publish op: one message, and perhaps another one that commits its
// batch.
func (op *operation) messages(reply, padding string) []protocol.Message {
	var headers []string
	if op.id != "" {
		headers = append(headers, headerID+": "+op.id)
	}
	switch op.expects {
	case expecting:
		headers = append(headers, headerLast+": "+strconv.FormatUint(op.expected, 10))
	case swapping:
		headers = append(headers, headerBySubject+": "+strconv.FormatUint(op.expected, 10))
	}
	if op.absent != "" {
		headers = append(headers, headerOf+": "+op.absent, headerBySubject+": 0")
	}
	if op.rollup != "" {
		headers = append(headers, headerRollup+": "+op.rollup)
	}
	if op.due > 0 {
		headers = append(headers, op.scheduled()...)
	}
	if op.reading != nil {
		headers = append(headers, readingHeaders(op.reading)...)
	}
	if op.ttl > 0 {
		headers = append(headers, headerTTL+": "+op.ttl.String())
	}
	if op.increment != 0 {
		headers = append(headers, headerIncrement+": "+strconv.Itoa(op.increment), headerValue+": "+op.value)
		return []protocol.Message{message(op.subject, reply, "", headers...)}
	}
	if op.batch != nil {
		return op.batch.messages(op, reply, padding)
	}
	return []protocol.Message{message(op.subject, reply, op.value+padding, headers...)}
}

// answered handles an answer. It runs on the world's goroutine.
func (c *client) answered(op *operation, text string) {
	verb, rest, _ := strings.Cut(text, " ")
	op.answers++
	if op.answers > 1 {
		c.w.fail("%s was answered twice: %q, after %s at %d %s", op.value, text, outcomeNames[op.outcome], op.offset, op.reason)
		return
	}
	shard, number, _ := strings.Cut(rest, " ")
	number, total, _ := strings.Cut(number, " ")
	if count, batch := strings.CutPrefix(total, countMark); batch {
		if total = ""; op.batch == nil || count != strconv.Itoa(len(op.batch.ops)) {
			c.w.fail("%s was answered with another number of messages than its atomic batch has: %q", op.value, text)
		}
	}
	offset, _ := strconv.ParseUint(number, 10, 64)
	if id, ok := c.topic.parseShard(shard); verb != "no" && (!ok || id != op.shard) {
		c.w.fail("%s on %s was answered for shard %q: %q; the subject belongs to %s", op.value, op.subject, shard, text, op.shard)
	}
	switch verb {
	case "ack":
		op.outcome, op.offset, op.total = kept, offset, total
	case "dup":
		op.outcome, op.offset, op.total = duplicate, offset, total
	case "last":
		op.outcome, op.offset = wrongLast, offset
	default:
		op.outcome, op.reason = refused, rest
	}
	op.back = c.w.stamp()
	switch {
	case op.outcome == refused:
	case c.kind == swapping:
		c.known[op.subject] = op.offset
		fallthrough
	default:
		c.last = op.offset
		c.progressed()
	}
	if op.batch != nil {
		op.batch.answered(op)
	}
	c.w.judge.answered(op)
	close(op.done)
}

// progressed records the time of an ack or read.
func (c *client) progressed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks++
	c.lately = c.w.now()
}

var outcomeNames = map[outcome]string{unknown: "no answer", kept: "an ack", duplicate: "a duplicate", wrongLast: "a refusal by condition", refused: "a refusal"}
