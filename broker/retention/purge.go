package retention

import (
	"context"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/replica"
)

// Purged is a shard that is purged.
type Purged interface {
	Offsets() (start, end uint64)
	Messages(start, end uint64) uint64
	Removed() *removal.Set
	Data() *log.Log
}

// Purge deletes the records of a shard below an offset and returns their number. Records beyond its
// high watermark, or that a reader holds, stay. visible is its first offset that readers see.
func Purge(ctx context.Context, s Purged, visible *replica.Watermark, below uint64) (purged uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	start, end := s.Offsets()
	if below = min(below, end); below <= start {
		return 0, nil
	}
	s.Data().CountHoles(start)
	before := s.Messages(start, end)
	now, err := s.Data().Trim(below)
	if err != nil {
		return 0, err
	}
	if now = visible.Raise(now); now <= start {
		return 0, nil
	}
	s.Removed().Trim(now)
	s.Data().CountHoles(now)
	return before - min(s.Messages(now, end), before), nil
}
