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

// rest returns the offset of the last record that the answers depend on.
func (p *pending) rest() (offset uint64) {
	for i := range p.answers {
		offset = max(offset, p.answers[i].offset+uint64(p.answers[i].more))
	}
	return offset
}

// kept adds the ack of a message whose record is appended with p. base is the first offset of p.
func (p *pending) kept(base uint64, a answer) {
	if n := len(p.answers); n > 0 && a.records == 0 && a.total == "" {
		last := &p.answers[n-1]
		if next := uint64(last.more) + 1; last.kind == isKept && last.records == 0 && last.total == "" && last.offset >= base &&
			last.offset+next == a.offset && last.seq+next == a.seq {
			last.more++
			return
		}
	}
	p.answers = append(p.answers, a)
}

// messages returns how many messages p answers.
func (p *pending) messages() (n int64) {
	for i := range p.answers {
		n += 1 + int64(p.answers[i].more)
	}
	return n
}

// Committed moves the high watermark and queues p for the acker. It is called by the disk's
// committer.
func (p *pending) Committed(_, end uint64, err error) {
	s := p.shard
	if p.err = err; err == nil {
		s.persisted(replica.Data, end)
	}
	// Answers that waited for a sync go out together when the round ends: Service.Committed.
	s.service.acker.push(p, p.durability != log.Synced || err != nil)
}

// push queues p. now wakes the acker; otherwise the end of the disk's round does.
func (a *acker) push(p *pending, now bool) {
	a.mu.Lock()
	a.queue = append(a.queue, p)
	a.mu.Unlock()
	if now {
		a.poke()
	}
}

// touch queues s: another shard's progress, or other replicas, may unblock its answers.
func (a *acker) touch(s *ShardLeader) {
	if s.touched.Swap(true) {
		return
	}
	a.mu.Lock()
	a.touched = append(a.touched, s)
	a.mu.Unlock()
	a.poke()
}

// poke wakes the acker.
func (a *acker) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// wakePublishers wakes waiting publishers: nothing else does when a watermark stands still for too
// long.
func (a *acker) wakePublishers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room.Broadcast()
}
