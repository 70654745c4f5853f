package monitoring

import (
	"context"
	"net/http"
	"time"
)

// countTime bounds the counting of what all filtered Subscriptions lag, together. Beyond it their
// lags are upper bounds.
const countTime = 250 * time.Millisecond

// topicsz answers /topics with the numbers of the shards that this broker leads. The operator
// requests it twice a minute.
func (c *Config) topicsz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), countTime)
	defer cancel()
	type subscribed struct {
		Name        string `json:"name"`
		Lag         uint64 `json:"lag"`
		Pending     int    `json:"pending"`
		Redelivered int    `json:"redelivered"`
		// DeadLettered counts since this broker leads; GivenUp wait for their dead-letter Topic.
		DeadLettered      uint64 `json:"deadLettered,omitempty"`
		GivenUp           int    `json:"givenUp,omitempty"`
		DeadLetterTrouble string `json:"deadLetterTrouble,omitempty"`
		// Endangered is why retention is about to delete a message that was not acknowledged.
		Endangered string `json:"endangered,omitempty"`
		// Endpoint is why the endpoint that it pushes to is not reached; EndpointWhy is for people.
		Endpoint    string `json:"endpoint,omitempty"`
		EndpointWhy string `json:"endpointWhy,omitempty"`
	}
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
		Unscrubbed    int64        `json:"unscrubbed"`
		Subscriptions []subscribed `json:"subscriptions,omitempty"`
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
		}
		for _, s := range c.Subscriptions.List(t.Key()) {
			if !s.Spec().Consumer.Ephemeral {
				s.Count(ctx)
				i := s.Info()
				one.Subscriptions = append(one.Subscriptions, subscribed{s.Name(), i.Lag, i.Pending, i.Redelivered, i.DeadLettered, i.GivenUp, i.DeadLetterTrouble, s.Endangered(&i), i.Endpoint.Reason, i.Endpoint.Trouble})
			}
		}
		all = append(all, one)
	}
	revision := int64(0) // of etcd, as seen by this broker
	if state := c.Topics.State(); state != nil {
		revision = state.Revision
	}
	reply(w, map[string]any{"broker": c.ID, "revision": revision, "topics": all})
}
