package replica

import (
	"fmt"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// Logs are the open logs of a copy.
type Logs [Parts]*log.Log

// Lacking returns how many segments the logs lack.
func (l *Logs) Lacking() (n int) {
	for _, part := range l {
		n += len(part.Lacks())
	}
	return n
}

// Opening is what opening the logs found.
type Opening struct {
	Lost   bool   // the manifest of the data log was rebuilt
	Anew   bool   // there are faults beyond damaged or missing segments
	Torn   bool   // a write that was under way was cut, and no damage of that log is known
	Short  bool   // a log ends before the durable end that it had
	Damage string // for people; empty: none
	// EndLost reports that the end of a log is missing, and how far it went is not known.
	EndLost bool
}

// Opening returns what opening the logs found. reached are the durable ends that they had before.
// torn is called for each log with a cut write.
func (l *Logs) Opening(reached [Parts]uint64, torn func(name string, bytes int64)) (found Opening) {
	var damage []string
	for part, l := range l {
		r := l.Recovery()
		found.Lost = found.Lost || r.Rebuilt && Part(part) == Data
		found.Anew = found.Anew || r.Strange
		found.EndLost = found.EndLost || r.EndLost
		switch {
		case r.Cut > 0 && len(r.Damaged) == 0 && !r.Rebuilt:
			found.Torn = true
			torn(l.Name(), r.Cut)
		case r.Suspect:
			damage = append(damage, r.Reason)
		}
		_, _, durable := l.Offsets()
		found.Short = found.Short || durable < reached[part]
	}
	if n := l.Lacking(); n > 0 && len(damage) == 0 { // found while origins were read
		damage = append(damage, fmt.Sprintf("segments are damaged: %d", n))
	}
	found.Damage = strings.Join(damage, "; ")
	return found
}

// Reach returns how far the data log goes.
func (l *Logs) Reach() (r coordination.Reach) {
	return coordination.Reach{Epoch: int64(lastEpoch(l[Data])), End: reach(l[Data])}
}

// Suspect returns the report of a copy of a shard: how far its logs go.
func (l *Logs) Suspect(topicID string, shard int) coordination.Suspect {
	return coordination.Suspect{Topic: topicID, Shard: shard, Epoch: lastEpoch(l[Data]), End: reach(l[Data]), State: reach(l[State])}
}

// StateEpoch returns the last epoch of the state log, or 0.
func (l *Logs) StateEpoch() uint64 { return lastEpoch(l[State]) }

// lastEpoch returns the last epoch of a log's batches, or 0.
func lastEpoch(l *log.Log) uint64 {
	if epochs := l.Epochs(); len(epochs) > 0 {
		return epochs[len(epochs)-1].Epoch
	}
	return 0
}

// reach returns how far a log goes. If its last segments are missing, its next offset is higher.
func reach(l *log.Log) (end uint64) {
	start, _, _ := l.Offsets()
	if infos := l.SegmentInfos(); len(infos) > 0 {
		return max(start, infos[len(infos)-1].End)
	}
	return start
}
