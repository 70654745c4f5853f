package jetstream

import "sync"

// pool runs jobs on a bounded number of goroutines, and lets a bounded number of them wait. Without
// jobs it has no goroutine.
type pool struct {
	atOnce, waiting int

	mu      sync.Mutex
	queue   []job // what waits, from head on
	head    int
	bytes   int // that what waits holds
	busy    int
	closed  bool
	running sync.WaitGroup
}

type job struct {
	do   func()
	size int
}

// submit says whether the job will be done.
func (p *pool) submit(do func(), size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return false
	case p.busy < p.atOnce:
		p.busy++
		p.running.Go(func() { p.work(do) })
		return true
	case len(p.queue)-p.head >= p.waiting || p.bytes+size > waitingBytes:
		return false
	}
	p.queue = append(p.queue, job{do, size})
	p.bytes += size
	return true
}

func (p *pool) work(do func()) {
	for do != nil {
		do()
		do = p.next()
	}
}

func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head == len(p.queue) {
		p.queue, p.head = nil, 0
		p.busy--
		return nil
	}
	j := p.queue[p.head]
	p.queue[p.head] = job{}
	p.head++
	p.bytes -= j.size
	if p.head > len(p.queue)/2 && p.head > 64 {
		p.queue = append(p.queue[:0], p.queue[p.head:]...)
		p.head = 0
	}
	return j.do
}

// close takes no jobs any more, and waits for those that it took.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
}
