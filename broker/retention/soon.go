package retention

import (
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// soonShare is the part of what a policy keeps that is about to be deleted: the oldest tenth. It
// leaves time to react, and mostly no reader is that far behind. It is over behind the oldest
// fifth: a reader at the limit would be in and out of danger with each change otherwise.
const (
	soonShare = 10
	soonEnds  = 5
)

// Soon returns why the record at an offset is about to be deleted by policy, or "": it is in the
// oldest tenth of the age, bytes or messages that the policy keeps, or in the oldest fifth if was
// says that it, or an earlier one, was about to be. segments are those of the log,
// which ends at end. Segments are deleted as a whole, so a record is as old as the newest of its
// segment, and the bytes are those of its segment and later ones.
func Soon(segments []log.SegmentInfo, policy log.Retention, removed *removal.Set, end, offset uint64, now time.Time, was bool) string {
	share := time.Duration(soonShare)
	if was {
		share = soonEnds
	}
	var bytes int64
	var last time.Time
	sealed := false
	for _, s := range segments {
		if s.End <= offset {
			continue
		}
		if bytes == 0 {
			last, sealed = s.Last, !s.Active
		}
		bytes += s.Bytes
	}
	if bytes == 0 || offset >= end {
		return ""
	}
	if policy.Age > 0 {
		if left := policy.Age - now.Sub(last); left < policy.Age/share && !last.After(now) {
			unit := time.Second
			if left > 5*time.Minute {
				unit = time.Minute
			}
			return fmt.Sprintf("it is deleted by its age in %v", max(left, 0).Round(unit))
		}
	}
	if policy.Bytes > 0 && sealed && bytes > policy.Bytes-policy.Bytes/int64(share) {
		return fmt.Sprintf("it and later ones take %d of the %d bytes that are kept", bytes, policy.Bytes)
	}
	if policy.Messages > 0 {
		if behind := end - offset - min(removed.Count(offset, end), end-offset); behind > policy.Messages-policy.Messages/uint64(share) {
			return fmt.Sprintf("it and later ones are %d of the %d messages that are kept", behind, policy.Messages)
		}
	}
	return ""
}
