package expiring

import (
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// aged is how far the records of a shard are known that are too old. The zero value knows nothing.
type aged struct {
	from   uint64        // those before it are removed, or never expire
	newest int64         // of the times before from, without times in the future
	age    time.Duration // for which due is
	due    int64         // when the next record is too old, as a time of records
}

// next returns when a record may be too old, as a time of records.
func (a *aged) next(age time.Duration) int64 {
	if a.age != age {
		a.age, a.due = age, 0
	}
	return a.due
}

// find returns the offsets of records that are older than an age, in order: some. They are returned
// again until they are removed. Records' times may be wrong, because a clock was. Earlier records
// are older, so:
//
//  1. A record is at most as old as those before it, except times in the future.
//  2. A record with a time in the future is as old as the next one without.
func (a *aged) find(s scanner, never func(r *log.Record) bool, now int64, age time.Duration, most int) (old []uint64, err error) {
	start, end := s.Offsets()
	a.from = max(a.from, start)
	newest, young := a.newest, false
	var future []uint64
	done, err := s.Scan(a.from, end, scanBytes, func(r *log.Record) bool {
		if r.Time-now > int64(slack) {
			if !never(r) {
				future = append(future, r.Offset)
			}
			return len(old)+len(future) < most
		}
		newest = max(newest, r.Time)
		if young = now-newest <= int64(age); young {
			return false
		}
		old, future = append(old, future...), nil
		if !never(r) {
			old = append(old, r.Offset)
		} else if len(old) == 0 {
			a.from, a.newest = r.Offset+1, newest
		}
		return len(old) < most
	})
	if err != nil {
		return nil, err
	}
	switch {
	case young && len(old) == 0:
		a.due = newest + int64(age)
	case done && len(old) == 0 && len(future) == 0:
		a.due = now + int64(age) // later records are no older than now
	case len(old) == 0:
		a.due = now + int64(failedRest)
	default:
		a.due = 0
	}
	return old, nil
}

// scanner is the part of a Shard that find needs.
type scanner interface {
	Offsets() (start, end uint64)
	Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error)
}
