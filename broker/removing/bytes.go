package removing

import (
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

// RemovedBytes estimates how many bytes of a log's files, of those with offsets from from on, are
// of removed records: their share of the records of each segment. Where it can't tell a removed
// record from one that the file has lost, it returns less.
func RemovedBytes(data *log.Log, removed *removal.Set, from uint64) (n int64) {
	for _, g := range data.SegmentInfos() {
		gone := removed.Count(g.Base, g.End)
		if gone == 0 || g.End <= from {
			continue
		}
		holes := data.Holes(g.Base) - min(data.Holes(g.End), data.Holes(g.Base))
		gone -= min(holes, gone)
		if records := g.End - g.Base - min(holes, g.End-g.Base); records > 0 {
			n += int64(float64(g.Bytes) * float64(min(gone, records)) / float64(records))
		}
	}
	return n
}
