package client

import "fmt"

// Added is what one shard got between two snapshots: its records from Start up to, not including,
// High. Lost is how many offsets before Start were added, too, and deleted by retention before the
// later snapshot was taken.
type Added struct {
	Number      int
	Start, High uint64
	Lost        uint64
}

// Since returns what was added to each shard since an earlier snapshot of the same Topic, whose
// Shards a program has kept: that snapshot may be closed. Reader reads it, from Start on; where
// Start is High nothing was added. The error says why the shards can't be those of an earlier
// snapshot.
func (s *Snapshot) Since(earlier []Shard) ([]Added, error) {
	if len(earlier) != len(s.shards) {
		return nil, fmt.Errorf("compare snapshots of topic %s: the earlier one has %d shards, and this one %d: they are of different Topics",
			s.topic, len(earlier), len(s.shards))
	}
	all := make([]Added, len(s.shards))
	for n, now := range s.shards {
		before := earlier[n]
		if before.Number != now.Number || before.High > now.High || before.High == 0 {
			return nil, fmt.Errorf("compare snapshots of topic %s: the earlier one ends at offset %d of shard %d, and this one at %d of shard %d: is it an earlier one, and of the same Topic?",
				s.topic, before.High, before.Number, now.High, now.Number)
		}
		start := max(before.High, min(now.Start, now.High))
		all[n] = Added{Number: now.Number, Start: start, High: now.High, Lost: start - before.High}
	}
	return all, nil
}
