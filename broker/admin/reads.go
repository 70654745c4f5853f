package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// Bounds of reading records, each with the reason for its value.
const (
	// readsAtOnce is the number of concurrent reads. Each holds memory for its answer, at most 8
	// MiB.
	readsAtOnce = 8
	// readsQueued is the number of requests that wait for those: one or two seconds of work.
	readsQueued = 1024
	// readsPolling is the number of requests that wait for new records, at about 500 bytes each.
	readsPolling = 4096
	// goneLook is how often it is looked whether somebody still waits for the answers to those: the
	// second look in a row at which nobody does gives up their place. A client that connects anew,
	// which takes some seconds, finds its requests waiting. A look at all takes some milliseconds.
	goneLook = 3 * time.Second
	// gatheredBytes and gatheredAnswers are when answers are sent while more are being built.
	gatheredBytes   = 256 << 10
	gatheredAnswers = 128
)

// reads handles requests for records on a bounded number of goroutines. Users take turns, and their
// connections, and nobody has all goroutines. Without requests it has no goroutine.
type reads struct {
	serve func(*worker, *read)
	flush func(*worker)
	most  int // goroutines
	// queued is how many requests wait for those.
	queued int

	mu      sync.Mutex
	queue   *work.FairQueue[*read]
	closed  bool
	running sync.WaitGroup
}

func (p *reads) init(serve func(*worker, *read), flush func(*worker), most, queued int) {
	p.serve, p.flush, p.most, p.queued, p.queue = serve, flush, most, queued, work.NewFairQueue[*read](most, queued, 0)
}

// submit queues a request. taken is false if there is no room for it. dropped are the requests of
// other clients that have left the queue for it.
func (p *reads) submit(r *read) (taken bool, dropped []*read) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, nil
	}
	if share, ok := p.queue.Start(r.by); ok {
		p.running.Go(func() { p.work(r, share) })
		return true, nil
	}
	queued, dropped := p.queue.Push(r.by, r, 0)
	return queued != nil, dropped
}

func (p *reads) work(r *read, share *work.Share[*read]) {
	w := workers.Get().(*worker)
	defer workers.Put(w)
	for r != nil {
		p.serve(w, r)
		r, share = p.next(w, share)
	}
}

// next returns the next request, in the place of one that was served. It sends the gathered answers
// when there is none, or when they should not wait longer.
func (p *reads) next(w *worker, served *work.Share[*read]) (*read, *work.Share[*read]) {
	for {
		p.mu.Lock()
		if r, share, ok := p.queue.Next(served); ok {
			p.mu.Unlock()
			return r, share
		}
		if len(w.out) == 0 {
			p.queue.Leave(served)
			p.mu.Unlock()
			w.release()
			return nil, nil
		}
		p.mu.Unlock()
		p.flush(w)
	}
}

// worker builds answers in the memory from which they are sent. Small ones are sent together.
type worker struct {
	records.BulkReader
	loan   *session.Loan // nil: no answers
	used   int           // used bytes of loan
	header []byte
	out    []protocol.Message
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// close accepts no more requests and waits for the accepted ones.
func (p *reads) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
}

// waitingReads holds the requests that wait for new records, by shard. If there are too many, the
// newest one of the user with the most is refused.
type waitingReads struct {
	again  func(*read)          // receives requests whose wait is over
	wanted func(of []byte) bool // whether an answer would have a receiver

	mu     sync.Mutex
	looks  *time.Timer // for clients that have gone; nil: nobody waits
	of     map[*topic.ShardLeader]*polled
	shares *work.FairQueue[*read] // all of them, in no turn
	closed bool
}

type polled struct {
	stop  func() // stops watching the shard
	reads []*read
}

func (p *waitingReads) init(again func(*read), wanted func([]byte) bool) {
	p.again, p.wanted = again, wanted
	p.shares = work.NewFairQueue[*read](0, readsPolling, 0)
}

// wait keeps a request until the shard's watermark moves or its time is over. taken is false if
// there is no room. dropped are the requests of other clients that wait no longer because of it.
func (p *waitingReads) wait(shard *topic.ShardLeader, r *read) (taken bool, dropped []*read) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false, nil
	}
	r.waits, dropped = p.shares.Push(r.by, r, 0)
	for _, other := range dropped {
		other.waits = nil
		p.forget(other)
	}
	if r.waits == nil {
		p.mu.Unlock()
		return false, dropped
	}
	if p.of == nil {
		p.of = map[*topic.ShardLeader]*polled{}
	}
	w := p.of[shard]
	if w == nil {
		w = &polled{}
		w.stop = shard.Watch(func() { p.wake(shard) })
		p.of[shard] = w
	}
	w.reads = append(w.reads, r)
	r.polls, r.lonely = shard, false
	if p.looks == nil {
		p.looks = time.AfterFunc(goneLook, p.look)
	}
	r.timer = time.AfterFunc(time.Until(r.deadline), func() { p.expire(shard, r) })
	wanted := r.request.Offset // after this point another goroutine may use r
	p.mu.Unlock()
	if _, high := shard.Offsets(); high > wanted {
		p.wake(shard) // it moved before it was watched
	}
	return true, dropped
}

// forget removes a request from its shard's. It reports false if it is not there. mu is held.
func (p *waitingReads) forget(r *read) bool {
	w := p.of[r.polls]
	i := -1
	if w != nil {
		i = slices.Index(w.reads, r)
	}
	if i < 0 {
		return false
	}
	r.timer.Stop()
	w.reads = slices.Delete(w.reads, i, i+1)
	if len(w.reads) == 0 {
		delete(p.of, r.polls)
		w.stop()
	}
	p.leave(r)
	return true
}

// leave gives up the place of a request. mu is held.
func (p *waitingReads) leave(r *read) {
	if r.waits != nil {
		p.shares.Remove(r.waits)
		r.waits = nil
	}
}

// wake submits all requests for a shard again.
func (p *waitingReads) wake(shard *topic.ShardLeader) {
	for _, r := range p.take(shard) {
		p.again(r)
	}
}

// take removes the requests for a shard.
func (p *waitingReads) take(shard *topic.ShardLeader) []*read {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.of[shard]
	if w == nil {
		return nil
	}
	delete(p.of, shard)
	w.stop()
	for _, r := range w.reads {
		r.timer.Stop()
		p.leave(r)
	}
	return w.reads
}

func (p *waitingReads) expire(shard *topic.ShardLeader, r *read) {
	p.mu.Lock()
	waited := r.polls == shard && p.forget(r)
	p.mu.Unlock()
	if waited {
		p.again(r)
	}
}

// look forgets the requests for whose answers nobody has waited for a while: their clients have
// gone, and others may need their places.
func (p *waitingReads) look() {
	p.mu.Lock()
	var all []*read
	for _, w := range p.of {
		all = append(all, w.reads...)
	}
	p.mu.Unlock()
	lonely := make([]bool, len(all))
	for i, r := range all {
		lonely[i] = !p.wanted(r.reply)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range all {
		if lonely[i] && r.lonely && r.waits != nil {
			p.forget(r)
		}
		r.lonely = lonely[i]
	}
	if p.looks = nil; len(p.of) > 0 && !p.closed {
		p.looks = time.AfterFunc(goneLook, p.look)
	}
}

// close removes and returns all requests.
func (p *waitingReads) close() (all []*read) {
	p.mu.Lock()
	p.closed = true
	if p.looks != nil {
		p.looks.Stop()
	}
	shards := make([]*topic.ShardLeader, 0, len(p.of))
	for shard := range p.of {
		shards = append(shards, shard)
	}
	p.mu.Unlock()
	for _, shard := range shards {
		all = append(all, p.take(shard)...)
	}
	return all
}
