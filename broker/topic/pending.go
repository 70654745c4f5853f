package topic

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

var pendings = sync.Pool{New: func() any { return &pending{} }}

func newPending(s *ShardLeader) *pending {
	p := pendings.Get().(*pending)
	p.shard = s
	return p
}

func (p *pending) free() {
	if cap(p.answers) > batchRecords {
		return
	}
	clear(p.answers)
	*p = pending{answers: p.answers[:0]}
	pendings.Put(p)
}

// rest is the last record that the answers rest on.
func (p *pending) rest() (offset uint64) {
	for i := range p.answers {
		offset = max(offset, p.answers[i].offset+uint64(p.answers[i].more))
	}
	return offset
}

// kept adds the answer to a message whose record is appended with p, of which base is the first.
func (p *pending) kept(base uint64, a answer) {
	if n := len(p.answers); n > 0 && a.records == 0 {
		last := &p.answers[n-1]
		if next := uint64(last.more) + 1; last.kind == isKept && last.records == 0 && last.offset >= base &&
			last.offset+next == a.offset && last.seq+next == a.seq {
			last.more++
			return
		}
	}
	p.answers = append(p.answers, a)
}

// messages is how many messages are answered by p.
func (p *pending) messages() (n int64) {
	for i := range p.answers {
		n += 1 + int64(p.answers[i].more)
	}
	return n
}

// Committed is called by the disk's committer. It moves the high watermark, and leaves the rest to the acker.
func (p *pending) Committed(_, end uint64, err error) {
	s := p.shard
	if p.err = err; err == nil {
		s.met(replica.Data, end)
	}
	// Who waits for a sync is answered together with all others that waited for it.
	s.service.acker.push(p, p.durability != log.Synced || err != nil)
}

func (a *acker) push(p *pending, now bool) {
	a.mu.Lock()
	a.queue = append(a.queue, p)
	a.mu.Unlock()
	if now {
		a.poke()
	}
}

// touch has those looked at who wait for what others do: for records before theirs, or for other replicas.
func (a *acker) touch(s *ShardLeader) {
	if s.touched.Swap(true) {
		return
	}
	a.mu.Lock()
	a.touched = append(a.touched, s)
	a.mu.Unlock()
	a.poke()
}

func (a *acker) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recall has waiting publishers look again: nothing else wakes them when a watermark has stood still for too long.
func (a *acker) recall() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room.Broadcast()
}
