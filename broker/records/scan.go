package records

import (
	"errors"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// ScanBatches is Scan for whole batches. The first may begin before the next record that is wanted,
// and the last may end behind end. It has removed records, too.
func ScanBatches(l *log.Log, from, end uint64, budget int64, f func(b log.Batch, next uint64) (more bool, err error)) (done bool, err error) {
	return scanBatches(l, nil, from, end, budget, f)
}

// scanBatches is ScanBatches without reading runs of passed records. passed may be nil.
func scanBatches(l *log.Log, passed *removal.Set, from, end uint64, budget int64, f func(b log.Batch, next uint64) (more bool, err error)) (done bool, err error) {
	c := l.NewCursor(from)
	for next := from; next < end; {
		if passed != nil {
			if next = passed.Next(next); next >= end {
				break
			}
		}
		if budget <= 0 {
			return false, nil
		}
		c.Seek(next)
		v, err := c.Read(readBytes)
		if gone, ok := errors.AsType[*log.RangeError](err); ok && gone.Start > next {
			next = gone.Start
			continue
		}
		if err != nil {
			return false, err
		}
		more := true
		for b, ok := v.Next(); ok && more; b, ok = v.Next() {
			budget -= int64(len(b))
			if more, err = f(b, next); err != nil {
				v.Release()
				return false, err
			}
		}
		next = v.End
		v.Release()
		if !more {
			return true, nil
		}
	}
	return true, nil
}
