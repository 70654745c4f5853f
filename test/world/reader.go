package world

import (
	"errors"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/topic"
)

// leader returns a broker that leads the shard and lets it be read, or nil.
func (c *client) leader(shard int) (*life, *topic.ShardLeader) {
	for _, i := range c.rng.Perm(len(c.w.machines)) {
		m := c.w.machines[i]
		l := m.life
		if !m.on || l == nil || l.dead.Load() || !l.ready.Load() {
			continue
		}
		if t := l.serves(c.topic); t != nil && t.ShardAt(shard) != nil {
			return l, t.ShardAt(shard)
		}
	}
	return nil, nil
}

// confirmed reports whether a barrier round confirmed the shard's leader after the question, as
// reads of the latest record require.
func confirmed(s *topic.ShardLeader) bool {
	done := make(chan error, 1)
	return s.Confirm(func(err error) { done <- err }) || <-done == nil
}

// read reads the shard on from the client's position, and asks for the last message of the shard or
// of a subject.
func (c *client) read() {
	w := c.w
	shard := c.rng.IntN(c.topic.shards())
	id := c.topic.shard(shard)
	_, s := c.leader(shard)
	if s == nil {
		return
	}
	call := w.stamp()
	w.io(w.delay(wireMin, wireMax), c.name+" reads")
	latest := confirmed(s)
	removed := removedFrom(s.Removed(), 0)
	start, end := s.Offsets()
	w.judge.begins(id, start, s.Data().SegmentInfos())
	from := max(c.next[shard], start)
	if from > end || c.topic.removes() {
		from = start // the shard lost records that the client has read, or what was removed may return
	}
	if (c.topic.expires() || c.topic.schedules()) && end-from > expiringRead && c.rng.IntN(8) > 0 {
		from = end - expiringRead
	}
	records, err := readRecords(s.NewCursor(from), from, end)
	if err != nil {
		return // damaged, or closed meanwhile
	}
	w.judge.read(id, call, from, end, records)
	if latest {
		w.judge.displaced(id, call, records, removed)
		w.judge.taken(id, call, records, removed)
	}
	if n := len(records); n > 0 {
		c.next[shard] = records[n-1].offset + 1
		c.progressed()
	}
	if latest && end > start {
		w.judge.saw(id, call, w.stamp(), end-1)
	}
	if subject := c.sharedSubject(); c.topic.shardOf(subject) == shard && !c.topic.removes() {
		c.lastOf(id, s, subject)
	}
}

// lastOf asks for the last message of a subject.
func (c *client) lastOf(id shardID, s *topic.ShardLeader, subject string) {
	call := c.w.stamp()
	if !confirmed(s) {
		return
	}
	found, err := s.LastFor(subject)
	if _, none := errors.AsType[*records.NoRecordError](err); err != nil && !none {
		return
	}
	c.w.judge.sawLast(id, subjectLook{call, c.w.stamp(), subject, found.Offset})
}

// swapTime is how long a compaction that was under way when a snapshot was taken may still take: a
// broker whose disk takes longer ends. The records that it removes are not in the snapshot.
const swapTime = 6 * time.Second

// snap holds a snapshot of a shard and reads it twice. Both reads must return the same records.
func (c *client) snap() {
	w := c.w
	shard := c.rng.IntN(c.topic.shards())
	id := c.topic.shard(shard)
	l, s := c.leader(shard)
	if s == nil {
		return
	}
	call := w.stamp()
	w.io(w.delay(wireMin, wireMax), c.name+" takes a snapshot")
	if !confirmed(s) {
		return
	}
	pin, err := s.Pin(0, 0)
	if err != nil {
		return
	}
	defer pin.Release()
	if pin.High > pin.Start {
		w.judge.saw(id, call, w.stamp(), pin.High-1)
	}
	if c.topic.kept() > 0 {
		c.pause(swapTime, swapTime)
	}
	read := func() ([]record, error) { return readRecords(s.NewCursor(pin.Start), pin.Start, pin.High) }
	first, err := read()
	if err != nil {
		return
	}
	w.judge.read(id, call, pin.Start, pin.High, first)
	c.pause(c.every, 4*c.every)
	second, err := read()
	if t := l.service.Topic(c.topic.name); l.dead.Load() || t == nil || t.ShardAt(shard) != s {
		return // a snapshot ends with its leader
	}
	if gone, ok := errors.AsType[*log.RangeError](err); ok {
		w.judge.snapshotLost(id, pin.Start, pin.High, gone.Error())
		return
	}
	if err != nil {
		return // damaged, or closed meanwhile
	}
	if !slices.Equal(first, second) {
		w.judge.snapshotLost(id, pin.Start, pin.High, differing(first, second))
		return
	}
	w.judge.snapshots++
	c.progressed()
}

// record is one record of a log.
type record struct {
	offset  uint64
	epoch   uint64
	time    int64
	subject string
	value   string
	total   string // of a counter; empty: it is none
}

func readRecords(c *log.Cursor, from, end uint64) (out []record, err error) {
	for at := from; at < end; {
		c.Seek(at)
		v, err := c.Read(16 << 10)
		if err != nil {
			return out, err
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				if r.Offset >= at && r.Offset < end {
					value, total := contentOf(&r)
					out = append(out, record{r.Offset, b.Epoch(), r.Time, string(r.Subject), value, total})
				}
			}
		}
		at = v.End
		v.Release()
	}
	return out, nil
}
