package push

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/subscription"
)

// Source is the part of a Subscription that its endpoint uses. *subscription.Subscription
// implements it.
type Source interface {
	Attempt(offset uint64) (attempts uint64, ok bool)
	Wanted(offset uint64) bool
	Spare(offset uint64)
	Ack(offset, sequence, delivered uint64, kind subscription.AckKind, delay time.Duration, done func(error))
	ExplainAck(offset uint64, text []byte)
	Wake()
}

// endpoint sends the records of one Subscription. It has a goroutine for each request under way,
// and a timer while something is due.
//
// mu is taken under the Subscription's lock, so the Source is never called while it is held.
type endpoint struct {
	service *Service
	source  Source
	origin  origin
	name    string // of the Subscription

	mu      sync.Mutex
	spec    *coordination.SubscriptionSpec
	hand    *hand
	shut    bool // it told the Subscription that it is not open
	held    int  // bytes that the service counts for it
	closed  bool
	timer   *time.Timer
	timerAt int64
	reason  string // why it is not reached
	trouble string
	last    string          // the last answer
	lastAt  int64           // when it came; 0: there was none
	ctx     context.Context // of its requests: it ends with Forget and Close
	cancel  context.CancelFunc
	queued  bool // it waits for room (Service.waiting); guarded by the service's mu
}

var _ subscription.Endpoint = (*endpoint)(nil)

// Respecify applies a spec. Requests under way end by the former one. Another URL, and other TLS,
// begin with a closed circuit.
func (e *endpoint) Respecify(spec *coordination.SubscriptionSpec) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	was := e.spec
	e.spec, e.hand.rules = spec, rulesOf(spec)
	if was != nil && (was.Push.URL != spec.Push.URL || !sameTLS(was.Push.TLS, spec.Push.TLS)) {
		e.hand.circuit = circuit{jitter: e.hand.circuit.jitter}
		e.hand.refused, e.reason, e.trouble, e.last, e.lastAt = 0, "", "", "", 0
	}
	e.run()
}

func sameTLS(a, b *coordination.PushTLS) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Open reports whether it takes another record.
func (e *endpoint) Open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.look()
}

// look is Open. mu is held.
func (e *endpoint) look() bool {
	if e.closed || e.hand.paused {
		return false
	}
	room := e.service.room(len(e.hand.items) == 0, e.hand.circuit.open)
	open := e.hand.open(room)
	e.shut = !open
	if !open && room < handBytes && len(e.hand.items) < e.hand.most {
		e.service.wait(e)
	}
	return open
}

// Take takes a record.
func (e *endpoint) Take(d *subscription.Delivery, r *log.Record) {
	i := &item{offset: d.Offset, time: d.Time, delivered: d.Delivered, subject: string(r.Subject), header: r.Header, data: append([]byte(nil), r.Data...)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.hand.take(i, e.service.now())
	e.count()
	e.run()
}

// Pause pauses it, or lets it go on.
func (e *endpoint) Pause(paused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hand.paused != paused {
		e.hand.paused = paused
		e.run()
	}
}

// Forget drops all records.
func (e *endpoint) Forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hand.clear()
	e.count()
	e.cancel()
	e.ctx, e.cancel = context.WithCancel(e.service.ctx)
	e.service.wakeSoon()
}

// Close ends it.
func (e *endpoint) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.hand.clear()
	e.count()
	e.cancel()
	e.service.wakeSoon()
	if e.timer != nil {
		e.timer.Stop()
	}
	e.service.remove(e)
}

// Info describes it.
func (e *endpoint) Info() subscription.EndpointInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := subscription.EndpointInfo{Reason: e.reason, Trouble: e.trouble, Held: len(e.hand.items), Sending: e.hand.sending, Answer: e.last}
	if e.lastAt > 0 {
		i.Answered = e.service.at(e.lastAt)
	}
	if c := &e.hand.circuit; c.open {
		i.Retry = e.service.at(c.until)
	}
	return i
}

// count tells the service how many bytes it has. mu is held.
func (e *endpoint) count() {
	e.service.hold(e.hand.bytes - e.held)
	e.held = e.hand.bytes
}

// run begins what may begin, and sets the timer. mu is held.
func (e *endpoint) run() {
	for !e.closed {
		now := e.service.now()
		room, ok := e.service.enter(e.hand.sending)
		if !ok {
			if e.hand.due(now) <= now {
				e.service.wait(e)
			}
			break
		}
		batch, probe := e.hand.begin(now, room)
		if len(batch) == 0 {
			e.service.leave()
			break
		}
		ctx, spec := e.ctx, e.spec
		e.service.running.Go(func() { e.send(ctx, batch, probe, spec) })
	}
	e.arm()
}

// arm sets the timer. mu is held.
func (e *endpoint) arm() {
	if e.closed {
		return
	}
	now := e.service.now()
	at := e.hand.due(now)
	if at == math.MaxInt64 || at <= now { // what is due and not begun waits for room
		return
	}
	if e.timer != nil && e.timerAt == at {
		return
	}
	e.timerAt = at
	if wait := time.Duration(at - now); e.timer == nil {
		e.timer = time.AfterFunc(wait, e.kick)
	} else {
		e.timer.Reset(wait)
	}
}

// kick begins what may begin, and wakes the Subscription if there is room again.
func (e *endpoint) kick() {
	e.mu.Lock()
	e.timerAt = 0
	e.run()
	wake := e.shut && e.look()
	e.mu.Unlock()
	if wake {
		e.source.Wake()
	}
}

// send sends one request and does what its answer asks for. It owns a place of the service.
func (e *endpoint) send(ctx context.Context, batch []*item, probe bool, spec *coordination.SubscriptionSpec) {
	a := e.attempt(ctx, batch, probe, spec)
	e.mu.Lock()
	dropped := make([]bool, len(batch)) // meanwhile: nothing is said of them
	for n, i := range batch {
		dropped[n] = i.line == nil || i.gone
	}
	verdicts := e.hand.ended(batch, probe, a, e.service.now())
	e.judge(a)
	e.count()
	e.mu.Unlock()
	for n, i := range batch {
		switch {
		case verdicts[n] == spared:
			e.source.Spare(i.offset)
			e.mu.Lock()
			e.hand.release(i)
			e.mu.Unlock()
		case dropped[n]:
		case verdicts[n] == acknowledged:
			e.source.Ack(i.offset, 0, 0, subscription.Done, 0, nil)
		case verdicts[n] == givenUp:
			e.source.ExplainAck(i.offset, []byte(a.text))
			e.source.Ack(i.offset, 0, 0, subscription.Retry, 0, nil)
		}
	}
	e.service.leave() // after the acks: Drain waits for them
	e.kick()
	e.service.wakeWaiting()
}

// attempt sends one request with the records of a batch that are still to be sent. A probe counts
// as an attempt only if the endpoint works and refuses.
func (e *endpoint) attempt(ctx context.Context, batch []*item, probe bool, spec *coordination.SubscriptionSpec) answer {
	if ctx.Err() != nil { // its records may be in the hand anew
		return answer{kind: unsent}
	}
	with, err := e.service.prepare(spec.Push)
	if err != nil {
		return answer{kind: unsent, text: err.Error(), after: missingPause}
	}
	records := make([]*item, 0, len(batch))
	for _, i := range batch {
		if i.counted || probe && !i.strict {
			if !e.source.Wanted(i.offset) {
				e.drop(i)
				continue
			}
		} else if !e.counts(i) {
			continue
		}
		records = append(records, i)
	}
	if len(records) == 0 {
		return answer{kind: unsent}
	}
	began := e.service.now()
	header, body := encode(spec.Push, e.origin, records)
	if spec.Push.Format == coordination.CloudEventsStructured { // elsewhere the body is the record's
		e.service.hold(len(body))
		defer e.service.hold(-len(body))
	}
	a := e.service.post(ctx, spec.Push, with, header, body)
	if a.kind != accepted && ctx.Err() != nil {
		return answer{kind: unsent} // Forget or Close ended it
	}
	e.service.note(a, time.Duration(e.service.now()-began))
	if a.kind == refusedIt {
		for _, i := range records {
			if !i.counted {
				e.counts(i)
			}
		}
	}
	return a
}

// counts counts an attempt of a record that is under way. If the Subscription does not want it sent
// any more, it drops it and returns false.
func (e *endpoint) counts(i *item) bool {
	attempts, ok := e.source.Attempt(i.offset)
	if !ok {
		e.drop(i)
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	i.delivered, i.counted = attempts, true
	return true
}

// drop drops a record that the Subscription does not want sent any more. Its line stays while
// others of its batch are sent.
func (e *endpoint) drop(i *item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hand.forget(i)
	e.count()
}

// The reasons why an endpoint is not reached.
const (
	reasonUnreachable = "Unreachable"
	reasonWaiting     = "AskedToWait"
	reasonGone        = "Gone"
	reasonRefused     = "Refused"
	reasonMissing     = "SecretMissing"
)

// judge notes what people are told of an answer. mu is held.
func (e *endpoint) judge(a answer) {
	was := e.reason
	if a.kind != unsent {
		e.last, e.lastAt = a.text, e.service.now()
	}
	switch h := e.hand; {
	case e.closed:
	case a.kind == unsent && a.text != "":
		e.reason, e.trouble = reasonMissing, a.text
	case a.kind == unsent:
	case h.circuit.open && a.gone:
		e.reason = reasonGone
		e.trouble = "the endpoint says that it is gone for good: " + a.text
	case h.circuit.open && a.after > 0:
		e.reason = reasonWaiting
		e.trouble = fmt.Sprintf("the endpoint asked to wait for %s: %s", a.after, a.text)
	case h.circuit.open && a.kind == unavailable:
		e.reason = reasonUnreachable
		e.trouble = "the endpoint does not take anything, and is tried again from time to time: " + a.text
	case h.circuit.open:
	case h.refused >= refusals:
		e.reason = reasonRefused
		e.trouble = fmt.Sprintf("the endpoint refused the last %d requests: %s", h.refused, a.text)
	case a.kind == accepted || a.kind == refusedIt && was != reasonRefused:
		e.reason, e.trouble = "", ""
	}
	if (was == "") != (e.reason == "") {
		e.service.turned(e, e.reason)
	}
}
