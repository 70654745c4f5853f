package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
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
	// gatheredBytes and gatheredAnswers are when answers are sent while more are being built.
	gatheredBytes   = 256 << 10
	gatheredAnswers = 128
)

// reads handles requests for records on a bounded number of goroutines. Without requests it has
// none.
type reads struct {
	serve func(*worker, *read)
	flush func(*worker)

	mu      sync.Mutex
	queue   []*read
	busy    int
	closed  bool
	running sync.WaitGroup
}

// submit queues a request. It reports false if the queue is full.
func (p *reads) submit(r *read) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || len(p.queue) >= readsQueued:
		return false
	case p.busy < readsAtOnce:
		p.busy++
		p.running.Go(func() { p.work(r) })
	default:
		p.queue = append(p.queue, r)
	}
	return true
}

func (p *reads) work(r *read) {
	w := workers.Get().(*worker)
	defer workers.Put(w)
	for r != nil {
		p.serve(w, r)
		r = p.next(w)
	}
}

// next returns the next request. It sends the gathered answers when the queue is empty, or when
// they should not wait longer.
func (p *reads) next(w *worker) (r *read) {
	for {
		p.mu.Lock()
		if len(p.queue) > 0 {
			r = p.queue[0]
			p.queue = slices.Delete(p.queue, 0, 1)
			p.mu.Unlock()
			return r
		}
		if len(w.out) == 0 {
			p.busy--
			p.mu.Unlock()
			w.release()
			return nil
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

// waitingReads holds the requests that wait for new records, by shard.
type waitingReads struct {
	again func(*read) // receives requests whose wait is over

	mu     sync.Mutex
	of     map[*topic.ShardLeader]*polled
	count  int
	closed bool
}

type polled struct {
	stop  func() // stops watching the shard
	reads []*read
}

// wait keeps a request until the shard's watermark moves or its time is over. It reports false if
// there is no room.
func (p *waitingReads) wait(shard *topic.ShardLeader, r *read) bool {
	p.mu.Lock()
	if p.closed || p.count >= readsPolling {
		p.mu.Unlock()
		return false
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
	p.count++
	r.timer = time.AfterFunc(time.Until(r.deadline), func() { p.expire(shard, r) })
	wanted := r.request.Offset // after this point another goroutine may use r
	p.mu.Unlock()
	if _, high := shard.Offsets(); high > wanted {
		p.wake(shard) // it moved before it was watched
	}
	return true
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
	p.count -= len(w.reads)
	w.stop()
	for _, r := range w.reads {
		r.timer.Stop()
	}
	return w.reads
}

func (p *waitingReads) expire(shard *topic.ShardLeader, r *read) {
	p.mu.Lock()
	w := p.of[shard]
	i := -1
	if w != nil {
		i = slices.Index(w.reads, r)
	}
	if i < 0 {
		p.mu.Unlock()
		return
	}
	w.reads = slices.Delete(w.reads, i, i+1)
	p.count--
	if len(w.reads) == 0 {
		delete(p.of, shard)
		w.stop()
	}
	p.mu.Unlock()
	p.again(r)
}

// close removes and returns all requests.
func (p *waitingReads) close() (all []*read) {
	p.mu.Lock()
	p.closed = true
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
