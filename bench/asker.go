package bench

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// maxAsked bounds the requests of a client that have no reply yet.
const maxAsked = 1 << 12

// An asker is one client. Any goroutine may ask; one reads.
type asker struct {
	asking  *asking
	number  int
	conn    *wire
	subject string
	inbox   string // up to the last token, which is the request's number
	due     []atomic.Int64
	ready   atomic.Bool // a first reply has come
	over    atomic.Bool // the connection has ended

	sent, answered atomic.Int64

	// The reading goroutine's, until the connection has ended:
	at         int64
	account    sequenceAccount
	unexpected int64
	first      error  // what was wrong first
	refused    string // the last -ERR

	mu      sync.Mutex // of who asks
	frame   []byte
	payload []byte
}

func newAsker(a *asking, number int, subject string) *asker {
	return &asker{
		asking: a, number: number, subject: subject, inbox: fmt.Sprintf("_INBOX.%016x.q%d.", a.id, number),
		due: make([]atomic.Int64, maxAsked), payload: make([]byte, a.size),
	}
}

// probeToken is the last token of the reply subject of a first request.
const probeToken = "p"

func (p *asker) probe() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	stamp{kind: kindProbe, run: p.asking.id, publisher: uint32(p.number)}.put(p.payload)
	return p.write(probeToken)
}

// ask sends a request whose latency counts from the time given.
func (p *asker) ask(due int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.sent.Load()
	if n-p.answered.Load() >= maxAsked {
		return fmt.Errorf("requester %d: %d requests are without a reply: lower the rate", p.number+1, maxAsked)
	}
	p.due[n%maxAsked].Store(due)
	stamp{run: p.asking.id, publisher: uint32(p.number), sequence: uint32(n), due: due}.put(p.payload)
	p.sent.Store(n + 1)
	return p.write(strconv.FormatInt(n, 10))
}

func (p *asker) write(token string) error {
	p.frame = append(append(append(append(append(p.frame[:0], "PUB "...), p.subject...), ' '), p.inbox...), token...)
	p.frame = append(strconv.AppendInt(append(p.frame, ' '), int64(len(p.payload)), 10), crlf...)
	p.frame = append(append(p.frame, p.payload...), crlf...)
	return p.conn.out.write(p.frame)
}

func (p *asker) read() error {
	return p.conn.readBy(p.parse, max(16<<10, 2*(p.asking.size+4<<10)), 0, p.next)
}

func (p *asker) parse(data []byte) (int, error) {
	if len(data) > 0 {
		p.at = now()
	}
	return parseFrames(data, p)
}

// next sends the next request of a closed loop.
func (p *asker) next() error {
	a := p.asking
	if !a.closed.Load() || p.sent.Load() == 0 || p.answered.Load() < p.sent.Load() {
		return nil
	}
	if at := now(); at < a.to.Load() {
		return p.ask(at)
	}
	return nil
}

func (p *asker) onMessage(subject, _, payload []byte) {
	token := subject[min(len(p.inbox), len(subject)):]
	if string(token) == probeToken {
		if len(payload) > 0 {
			p.ready.Store(true)
		}
		return
	}
	n, err := strconv.ParseInt(string(token), 10, 64)
	if err != nil || n < 0 || n >= p.sent.Load() {
		p.wrong(fmt.Errorf("a reply came to a request that was not sent: %.64q", subject))
		return
	}
	if n+maxAsked < p.sent.Load() {
		p.account.observe(uint64(n)) // so late that its time is not kept
		return
	}
	due := p.due[n%maxAsked].Load()
	if err := p.asking.check(payload, stamp{run: p.asking.id, publisher: uint32(p.number), sequence: uint32(n), due: due}); err != nil {
		p.wrong(fmt.Errorf("reply to request %d of requester %d: %w", n+1, p.number+1, err))
	}
	before := p.account.distinct
	p.account.observe(uint64(n))
	if p.account.distinct == before {
		return
	}
	p.answered.Add(1)
	if a := p.asking; due >= a.from.Load() && due < a.to.Load() {
		shard := &a.shards[p.number%len(a.shards)]
		shard.mu.Lock()
		shard.latency.record(p.at - due)
		shard.mu.Unlock()
		a.over.Load().record(due, p.at-due)
	}
}

func (p *asker) wrong(err error) {
	p.unexpected++
	if p.first == nil {
		p.first = err
	}
}

func (p *asker) onInfo([]byte)       {}
func (p *asker) onPing()             { _ = p.conn.out.write(pong) }
func (p *asker) onPong()             {}
func (p *asker) onError(text []byte) { p.refused = string(text) }

var errNobody = errors.New("nobody is there to answer")

// checkEcho wants the request itself as its reply.
func checkEcho(payload []byte, sent stamp) error {
	if len(payload) == 0 {
		return errNobody
	}
	if got, whole := readStamp(payload); !whole || got != sent {
		return errors.New("it is damaged, or another one's")
	}
	return nil
}
