package monitoring

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/view"
)

// countTime bounds the counting of what all filtered Subscriptions lag, together. Beyond it their
// lags are upper bounds.
const countTime = 250 * time.Millisecond

// topicsz answers /topics with the numbers of the shards that this broker leads. The operator
// requests it twice a minute.
func (c *Config) topicsz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	type served struct {
		ID           string `json:"id"`
		Name         string `json:"name"`
		Shard        int    `json:"shard"`
		Epoch        uint64 `json:"epoch"`
		First        uint64 `json:"first"`
		Last         uint64 `json:"last"`
		Messages     uint64 `json:"messages"`
		Bytes        int64  `json:"bytes"`
		Trouble      string `json:"trouble,omitempty"`
		AgePaused    string `json:"agePaused,omitempty"` // why deletion by age is paused
		AgePausedWhy string `json:"agePausedWhy,omitempty"`
		// Unscrubbed is the longest time since a segment was scrubbed, in seconds.
		Unscrubbed    int64                 `json:"unscrubbed"`
		Subscriptions []subscription.Report `json:"subscriptions,omitempty"`
		Views         []view.Report         `json:"views,omitempty"`
	}
	all := []served{}
	for _, t := range c.Topics.Shards() {
		if t.Leader() != c.ID {
			continue
		}
		one := served{ID: t.ID(), Name: t.Topic().Name(), Shard: t.Number(), Trouble: t.Trouble(), Unscrubbed: int64(t.Unscrubbed().Seconds())}
		if s := t.Led(); s != nil {
			info := s.Info()
			reason, why := s.AgePaused()
			one.AgePaused, one.AgePausedWhy = string(reason), why
			one.Epoch, one.First, one.Last, one.Messages, one.Bytes = s.Epoch(), info.First, info.Last, info.Messages, info.Bytes
			one.Views = c.Views(s)
		}
		for _, s := range c.Subscriptions.List(t.Key()) {
			if !s.Spec().Consumer.Ephemeral {
				one.Subscriptions = append(one.Subscriptions, s.Report(ctx))
			}
		}
		all = append(all, one)
	}
	revision := int64(0)         // of etcd, as seen by this broker
	var clients []activity.Count // of this broker, wherever the leaders are
	if state := c.Topics.State(); state != nil {
		revision, clients = state.Revision, c.Readers.Counts(state)
	}
	reply(w, map[string]any{"broker": c.ID, "revision": revision, "topics": all, "clients": clients})
}
