package acking

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/confirm"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/sender"
)

// Pending has the answers that wait for one append, or for earlier ones. It is the log.Append's
// Done.
type Pending struct {
	Back       sender.Back
	End        uint64 // of its records in the log; 0: it has none
	Size       int    // of its records in bytes, as package ahead counts them; 0: it doesn't
	Records    int    // likewise, their number
	Round      uint64 // the barrier round that the answers wait for; 0: none
	Asked      int64  // when the round was asked for, on forward.Mono's clock
	Durability log.Durability
	Answers    []Answer

	shard *Shard
	err   error
}

var pendings = sync.Pool{New: func() any { return &Pending{} }}

// New returns a Pending of the shard, whose answers go to back.
func (s *Shard) New(back sender.Back) *Pending {
	p := pendings.Get().(*Pending)
	p.shard, p.Back = s, back
	return p
}

// Free frees a Pending that is not queued.
func (p *Pending) Free() {
	if cap(p.Answers) > keptAnswers {
		return
	}
	clear(p.Answers)
	*p = Pending{Answers: p.Answers[:0]}
	pendings.Put(p)
}

// Rest returns the offset of the last record that the answers depend on.
func (p *Pending) Rest() (offset uint64) {
	for i := range p.Answers {
		offset = max(offset, p.Answers[i].Offset+uint64(p.Answers[i].More))
	}
	return offset
}

// Kept adds the ack of a message whose record is appended with p. base is the first offset of p.
func (p *Pending) Kept(base uint64, a Answer) {
	if a.Records == 0 && a.Total == "" {
		p.KeptOne(base, a.Offset, a.Seq)
		return
	}
	p.Answers = append(p.Answers, a)
}

// KeptOne is Kept for a message that is one record, and no counter's.
func (p *Pending) KeptOne(base, offset, seq uint64) {
	if n := len(p.Answers); n > 0 {
		last := &p.Answers[n-1]
		if next := uint64(last.More) + 1; last.Offset+next == offset && last.Seq+next == seq && last.Offset >= base &&
			last.Kind == Kept && last.Records == 0 && last.Total == "" {
			last.More++
			return
		}
	}
	p.Answers = append(p.Answers, Answer{Offset: offset, Seq: seq})
}

// Messages returns how many messages p answers.
func (p *Pending) Messages() (n int64) {
	for i := range p.Answers {
		n += 1 + int64(p.Answers[i].More)
	}
	return n
}

// settles reports whether the answers of p can be given: high is above the records that they depend
// on, and their round is confirmed or late. late says that it is.
func (p *Pending) settles(high, round uint64, now int64) (ok, late bool) {
	switch {
	case p.Rest() >= high:
		return false, false
	case p.Round <= round:
		return true, false
	}
	late = now-p.Asked > int64(confirm.Time)
	return late, late
}

// Committed moves the high watermark and queues p for the acker. It is called by the disk's
// committer.
func (p *Pending) Committed(_, end uint64, err error) {
	s := p.shard
	if p.err = err; err == nil {
		s.leader.Persisted(end)
	}
	// Answers that waited for a sync go out together when the round ends: Acker.Committed.
	s.acker.push(p, p.Durability != log.Synced || err != nil)
}
