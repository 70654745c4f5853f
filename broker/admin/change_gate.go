package admin

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// ChangeRate is how many changes of attributes the brokers of a cluster make a second, each its
	// part. Brokers hold ten times as many, and each is a write of etcd, which has leases to renew.
	ChangeRate = 2000
	// changesAtOnce is how many requests for changes are under way: they share transactions, of a
	// hundred changes each.
	changesAtOnce = 64
	// changesWaiting and changesBytes bound the requests that wait for their turn. A broker makes
	// as many within the time for which they may wait.
	changesWaiting = 4096
	changesBytes   = 16 << 20 // of memory, and as many again of those under way
	// changeBurst is for how long a rate that was not used may be used later.
	changeBurst = 100 * time.Millisecond
)

// changeGate lets requests pass at a rate. Users take turns, and their connections: only one
// request at a time has its turn and waits for the rate, so a user with few waits for one of each
// other user.
type changeGate struct {
	rate    func() float64
	waiting *work.FairJobs
	places  chan struct{}
	next    time.Time // when the next one may pass; of the job that has its turn
	passed  sync.WaitGroup
	refused atomic.Uint64

	ctx  context.Context // ends with close
	stop context.CancelFunc
}

// passage is a request that waits for its turn.
type passage struct {
	of       *changeGate
	weight   int
	places   int // that it takes: several if it is large
	deadline time.Time
	do       func(context.Context)
	drop     func()
}

func newChangeGate(rate func() float64) *changeGate {
	g := &changeGate{rate: rate, waiting: work.NewFairJobs(1, changesWaiting, changesBytes), places: make(chan struct{}, changesAtOnce)}
	g.ctx, g.stop = context.WithCancel(context.Background())
	return g
}

// submit runs do on a goroutine when a request of that weight may pass, or calls drop if that takes
// too long, or if another client needs the place. It reports false, and calls neither, if too many
// wait.
func (g *changeGate) submit(of work.Client, weight, size int, do func(context.Context), drop func()) bool {
	places := min(1+size/(changesBytes/changesAtOnce), changesAtOnce)
	if g.waiting.Submit(of, &passage{g, weight, places, time.Now().Add(writeTimeout), do, drop}, size) {
		return true
	}
	g.refused.Add(1)
	return false
}

// Run implements work.Job.
func (p *passage) Run() {
	g := p.of
	if earliest := time.Now().Add(-changeBurst); g.next.Before(earliest) {
		g.next = earliest
	}
	if g.next.After(p.deadline) || !work.Sleep(g.ctx, time.Until(g.next)) {
		p.Drop()
		return
	}
	late := time.NewTimer(time.Until(p.deadline))
	defer late.Stop()
	for taken := range p.places { // nobody else takes any meanwhile
		select {
		case g.places <- struct{}{}:
		case <-late.C:
			g.free(taken)
			p.Drop()
			return
		}
	}
	g.next = g.next.Add(time.Duration(float64(p.weight) / max(g.rate(), 1) * float64(time.Second)))
	g.passed.Go(func() {
		defer g.free(p.places)
		ctx, stop := context.WithDeadline(g.ctx, p.deadline)
		defer stop()
		p.do(ctx)
	})
}

func (g *changeGate) free(places int) {
	for range places {
		<-g.places
	}
}

// Drop implements work.Job.
func (p *passage) Drop() {
	p.of.refused.Add(1)
	p.drop()
}

// close accepts no more requests, drops the waiting ones and cancels those under way.
func (g *changeGate) close() {
	g.stop()
	g.waiting.Finish()
	g.passed.Wait()
}
