package replica

import "sync"

// pool carries tasks out, so many at a time, in order. While there is none it has no goroutine.
type pool struct {
	limit   int
	workers sync.WaitGroup

	mu      sync.Mutex
	queue   []func()
	running int
	closed  bool
}

// do hands a task over. After close it is dropped.
func (p *pool) do(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.queue = append(p.queue, task)
	if p.running < p.limit {
		p.running++
		p.workers.Go(p.run)
	}
}

func (p *pool) run() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.running--
			p.mu.Unlock()
			return
		}
		task := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		task()
	}
}

// close drops what waits, and waits for what is under way.
func (p *pool) close() {
	p.mu.Lock()
	p.closed, p.queue = true, nil
	p.mu.Unlock()
	p.workers.Wait()
}
