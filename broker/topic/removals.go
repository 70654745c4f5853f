package topic

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/replica"
)

// removalRead is how much of a state log is read at once when its removals are loaded.
const removalRead = 256 << 10

// loadRemovals adds to set what the state log says of removed records that the data log has. It
// reads past damage: the error is then the damage, a *log.CorruptError, or wraps
// removal.ErrMalformed if every replica has the same, and set may lack removed records.
func loadRemovals(state, data *log.Log, set *removal.Set) error {
	_, below, _ := state.Offsets()
	_, next, _ := data.Offsets()
	return loadRemovalsBelow(state, data, below, next, set)
}

// loadRemovalsBelow is loadRemovals for removals below an offset of the state log, of records below
// the offset next of the data log.
func loadRemovalsBelow(state, data *log.Log, below, next uint64, set *removal.Set) error {
	var damage, malformed error
	add := func(s removal.Span) {
		s.Next = min(s.Next, next)
		if part, ok := s.Within(data); ok {
			set.Add(part.From, part.Next)
		}
	}
	for c := state.NewCursor(state.Start()); c.Next() < below; {
		v, err := c.Read(removalRead)
		if corrupt, ok := errors.AsType[*log.CorruptError](err); ok && corrupt.Next > c.Next() {
			damage = err
			c.Seek(corrupt.Next)
			continue
		}
		if err != nil {
			return err
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if err := eachRemoval(b, below, add); err != nil {
				malformed = err
			}
		}
		v.Release()
	}
	if damage != nil {
		return damage
	}
	return malformed
}

// eachRemoval calls f for the removals of a batch of a state log, of its records below an offset.
// Its error wraps removal.ErrMalformed.
func eachRemoval(b log.Batch, below uint64, f func(removal.Span)) (err error) {
	if b.Lost() {
		return fmt.Errorf("%w: the state log lost its offsets from %d up to %d on all replicas", removal.ErrMalformed, b.Base(), b.End())
	}
	records := b.Records()
	for r := (log.Record{}); records.Next(&r) && r.Offset < below; {
		if string(r.Subject) != removal.Subject {
			continue
		}
		if e := removal.EachSpan(r.Data, f); e != nil {
			err = fmt.Errorf("offset %d of the state log: %w", r.Offset, e)
		}
	}
	if e := records.Err(); e != nil {
		err = fmt.Errorf("%w: %w", removal.ErrMalformed, e)
	}
	return err
}

// removals returns the removed records of a copy that this broker has, from its open logs: what is
// known to be committed. A leader has them in ShardLeader.Removed.
func (p *Shard) removals() (*removal.Set, error) {
	set, open := new(removal.Set), p.opened.Load()
	if open == nil {
		return set, log.ErrClosed
	}
	data, state := open.parts[replica.Data], open.parts[replica.State]
	return set, loadRemovalsBelow(state, data, state.Watermark(), data.Watermark(), set)
}

// knowRemovals loads the removed records for a new leader. They include removals that are not yet
// on all in-sync replicas: the leader becomes readable when all of its state log is.
func (s *ShardLeader) knowRemovals(v *view) error {
	err := loadRemovals(s.state, s.data, &s.removed)
	_, damaged := errors.AsType[*log.CorruptError](err)
	switch {
	case damaged && s.service.othersCanLead(v):
		return err
	case damaged, errors.Is(err, removal.ErrMalformed):
		s.service.log.Error("some removals of single records can't be read; those records are visible again", "topic", s.shard.name, "error", err)
		return nil
	}
	return err
}
