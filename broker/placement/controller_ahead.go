package placement

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// ahead is what a controller has written and no State shows yet. With it the next plan need not wait
// for the State to come round.
type ahead struct {
	shards   map[string]map[int]*coordination.Shard // by id of the Topic, and number
	swept    map[string]bool                        // ids of Topics that are gone
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

// facts are those of the State, and what it will show beyond them. What it shows by now is forgotten.
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
		facts.Topics = slices.DeleteFunc(facts.Topics, func(t *coordination.Topic) bool { return a.swept[t.ID] })
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
		i, found := slices.BinarySearchFunc(merged, number, func(s *coordination.Shard, n int) int { return s.Number - n })
		if found {
			merged[i] = s
		} else {
			merged = slices.Insert(merged, i, s)
		}
	}
	return merged
}
