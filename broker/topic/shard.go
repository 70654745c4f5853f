package topic

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// Shard is one that this broker leads, with its logs open.
type Shard struct {
	topic *Topic
	data  *log.Log
	state *log.Log
}

// Topic is the one that the shard belongs to.
func (s *Shard) Topic() *Topic { return s.topic }

// Epoch is the one under which this broker leads.
func (s *Shard) Epoch() uint64 { return 0 }

// Data is the log of records. What stands at or beyond the high watermark is not to be shown.
func (s *Shard) Data() *log.Log { return s.data }

// State is the log of cursors.
func (s *Shard) State() *log.Log { return s.state }

// Offsets are what readers may see: from start up to, not including, end, the high watermark.
func (s *Shard) Offsets() (start, end uint64) { return 1, 1 }

// NewCursor reads from an offset on. It reads beyond the high watermark if it is let.
func (s *Shard) NewCursor(from uint64) *log.Cursor { return s.data.NewCursor(from) }

// Watch calls changed after the high watermark moved, and perhaps once more after stop. changed must not block.
func (s *Shard) Watch(changed func()) (stop func()) { return func() {} }

// ShardInfo is what readers see of a shard.
type ShardInfo struct {
	First, Last         uint64 // offsets; Last is First-1 if there is nothing
	FirstTime, LastTime time.Time
	Messages            uint64
	Bytes               int64 // on disk, of what is retained
}

// Info describes what readers see.
func (s *Shard) Info() ShardInfo { return ShardInfo{} }

// Purge lets go of the records below an offset, for good, and says how many that were.
func (s *Shard) Purge(ctx context.Context, below uint64) (purged uint64, err error) { return 0, nil }

// Get reads the record at an offset. A *NoRecordError says that there is none.
func (s *Shard) Get(offset uint64) (log.Record, error) { return log.Record{}, nil }

// NextFor reads the first record from an offset on whose subject matches a pattern.
func (s *Shard) NextFor(pattern string, from uint64) (log.Record, error) { return log.Record{}, nil }

// LastFor reads the last record whose subject matches a pattern.
func (s *Shard) LastFor(pattern string) (log.Record, error) { return log.Record{}, nil }
