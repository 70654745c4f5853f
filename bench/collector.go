package bench

import (
	"runtime"
	"sync"
	"time"
)

// processStart is the zero of the one clock that publishers and subscribers share.
var processStart = time.Now()

// now is monotonic nanoseconds since the process started.
func now() int64 { return int64(time.Since(processStart)) }

// A collector is where deliveries of one run arrive. Subscribers are dealt over shards; a
// shard's lock guards its recorder and the ledgers of its subscribers.
type collector struct {
	run     uint64
	warm    uint32 // sequences below are warm-up
	ledgers []ledger
	over    *timeline
	shards  []shard
	dropped subscriberEnds
}

type shard struct {
	mu         sync.Mutex
	latency    *recorder
	received   int64 // distinct messages
	unexpected int64
	last       int64 // when the last new message came
	_          [64]byte
}

// subscriberEnds counts subscribers that were cut off, with the first reason.
type subscriberEnds struct {
	mu     sync.Mutex
	count  int
	reason string
}

func (e *subscriberEnds) add(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == 0 {
		e.reason = reason
	}
	e.count++
}

func (e *subscriberEnds) read() (int, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count, e.reason
}

func newCollector(run uint64, w Workload) *collector {
	c := &collector{
		run: run, warm: uint32(w.schedule.warmSequences()), ledgers: newLedgers(w),
		shards: make([]shard, workers()), over: newTimeline(w.Parameters.DurationNS),
	}
	for i := range c.shards {
		c.shards[i].latency = newRecorder()
	}
	return c
}

// workers is how many loops read; more would only take turns on the same cores.
func workers() int { return min(max(runtime.NumCPU(), 1), 8) }

func (c *collector) shardOf(subscriber int) int { return subscriber % len(c.shards) }

// deliver enters one message that a subscriber read at the time given.
func (c *collector) deliver(subscriber int, payload []byte, at int64) {
	s, whole := readStamp(payload)
	sh := &c.shards[c.shardOf(subscriber)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !whole || s.run != c.run {
		sh.unexpected++
		return
	}
	a := c.ledgers[subscriber].account(int(s.publisher))
	if a == nil {
		sh.unexpected++
		return
	}
	if s.kind == kindProbe {
		a.heard = true
		return
	}
	switch a.observe(s.sequence) {
	case verdictUnexpected:
		sh.unexpected++
	case verdictDuplicate:
	default:
		sh.received++
		sh.last = at
		if s.sequence >= c.warm {
			sh.latency.record(at - s.due)
			c.over.record(s.due, at-s.due)
		}
	}
}

// unheard returns the publishers that some subscriber has not heard yet.
func (c *collector) unheard(publishers int) []int {
	missing := make([]bool, publishers)
	for i := range c.ledgers {
		sh := &c.shards[c.shardOf(i)]
		sh.mu.Lock()
		for j, source := range c.ledgers[i].sources {
			if !c.ledgers[i].accounts[j].heard {
				missing[source] = true
			}
		}
		sh.mu.Unlock()
	}
	var list []int
	for p, is := range missing {
		if is {
			list = append(list, p)
		}
	}
	return list
}

// received is how many distinct messages have come so far.
func (c *collector) received() (n int64) {
	for i := range c.shards {
		c.shards[i].mu.Lock()
		n += c.shards[i].received
		c.shards[i].mu.Unlock()
	}
	return n
}

// collect closes the account.
func (c *collector) collect(published []int) (Deliveries, *recorder, int64) {
	all, unexpected, last := newRecorder(), int64(0), int64(0)
	for i := range c.shards {
		c.shards[i].mu.Lock()
		defer c.shards[i].mu.Unlock()
		all.merge(c.shards[i].latency)
		unexpected += c.shards[i].unexpected
		last = max(last, c.shards[i].last)
	}
	d := settleAccounts(c.ledgers, published)
	d.Unexpected = unexpected
	return d, all, last
}
