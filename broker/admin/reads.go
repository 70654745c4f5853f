package admin

import (
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Bounds of reading records, each with the reason for its value.
const (
	// readsAtOnce is how many requests for records are read at once: each has memory for its answer, 8 MiB at most.
	readsAtOnce = 8
	// readsQueued is how many wait for those: a second's work or two.
	readsQueued = 1024
	// readsPolling is how many wait for records to come, at about 500 bytes each.
	readsPolling = 4096
	// gatheredBytes and gatheredAnswers are where answers go out though there are more to be made.
	gatheredBytes   = 256 << 10
	gatheredAnswers = 128
)

// reads works on requests for records on a bounded number of goroutines. Without requests it has none.
type reads struct {
	serve func(*worker, *read)
	flush func(*worker)

	mu      sync.Mutex
	queue   []*read
	busy    int
	closed  bool
	running sync.WaitGroup
}

// submit says whether there was room for a request.
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

// next is the next request. Before there is none, or others would wait for them, answers go out.
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
			w.rest()
			return nil
		}
		p.mu.Unlock()
		p.flush(w)
	}
}

// worker makes answers in memory from which they are sent. Small ones go out together.
type worker struct {
	topic.RecordReader
	loan   *session.Loan // nil: there are no answers
	used   int           // of its bytes
	header []byte
	out    []protocol.Message
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// close takes nothing any more and waits for what it took.
func (p *reads) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
}

// polls are the requests that wait for records to come, by shard.
type polls struct {
	again func(*read) // is given those that need wait no more

	mu     sync.Mutex
	of     map[*topic.ShardLeader]*polled
	count  int
	closed bool
}

type polled struct {
	stop  func() // watching the shard
	reads []*read
}

// wait keeps a request until the shard's watermark moved, or its time is over. It says whether there was room.
func (p *polls) wait(shard *topic.ShardLeader, r *read) bool {
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
	wanted := r.request.Offset // from here on it may be somebody else's
	p.mu.Unlock()
	if _, high := shard.Offsets(); high > wanted {
		p.wake(shard) // it moved before it was watched
	}
	return true
}

// wake has all requests for a shard looked at again.
func (p *polls) wake(shard *topic.ShardLeader) {
	for _, r := range p.take(shard) {
		p.again(r)
	}
}

// take ends the waiting for a shard.
func (p *polls) take(shard *topic.ShardLeader) []*read {
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

func (p *polls) expire(shard *topic.ShardLeader, r *read) {
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

// close ends all waiting, and returns who waited.
func (p *polls) close() (all []*read) {
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
