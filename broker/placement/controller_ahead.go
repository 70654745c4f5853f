package placement

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// ahead holds the controller's writes that no State shows yet. With them the next plan need not
// wait for the watch.
type ahead struct {
	shards   map[string]map[int]*coordination.Shard // by Topic id and number
	swept    map[string]bool                        // ids of Topics whose deletion is finished
	revision int64                                  // of the last write
}

func newAhead() *ahead {
	return &ahead{shards: make(map[string]map[int]*coordination.Shard), swept: make(map[string]bool)}
}

func (a *ahead) wrote(s *coordination.Shard, revision int64) {
	after := *s
	after.Revision = revision
	if a.shards[s.Topic] == nil {
		a.shards[s.Topic] = make(map[int]*coordination.Shard)
	}
	a.shards[s.Topic][s.Number] = &after
	a.revision = max(a.revision, revision)
}

// facts returns the facts of the State with the later writes on top. It drops the writes that the
// State shows.
func (a *ahead) facts(state *coordination.State) Facts {
	for topic, shards := range a.shards {
		for number, s := range shards {
			if s.Revision <= state.Revision {
				delete(shards, number)
			}
		}
		if len(shards) == 0 {
			delete(a.shards, topic)
		}
	}
	for id := range a.swept {
		if state.TopicByID(id) == nil {
			delete(a.swept, id)
		}
	}
	facts := FactsOf(state)
	if len(a.swept) > 0 {
		facts.Topics = slices.DeleteFunc(facts.Topics,
			func(t *coordination.Topic) bool { return a.swept[t.ID] })
	}
	if len(a.shards) > 0 {
		facts.Shards = func(topicID string) []*coordination.Shard { return a.over(topicID, state.Shards(topicID)) }
	}
	return facts
}

func (a *ahead) over(topicID string, shown []*coordination.Shard) []*coordination.Shard {
	written := a.shards[topicID]
	if len(written) == 0 {
		return shown
	}
	merged := slices.Clone(shown)
	for number, s := range written {
		i, found := slices.BinarySearchFunc(merged, number,
			func(s *coordination.Shard, n int) int { return s.Number - n })
		if found {
			merged[i] = s
		} else {
			merged = slices.Insert(merged, i, s)
		}
	}
	return merged
}
