package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
)

// copies asks each broker with replicas of a Topic for its copies, one after the other. It leaves
// out brokers that don't answer: they may be of an earlier version.
func (b *brokers) copies(ctx context.Context, v *topicView) (all []admin.TopicCopies) {
	var holders []admin.Broker
	for i := range v.Shards {
		for _, r := range v.Shards[i].Replicas {
			if !r.Away && !slices.ContainsFunc(holders, func(h admin.Broker) bool { return h.ID == r.ID }) {
				holders = append(holders, r.Broker)
			}
		}
	}
	slices.SortFunc(holders, func(x, y admin.Broker) int { return strings.Compare(x.Name+x.ID, y.Name+y.ID) })
	for _, h := range holders {
		var told admin.TopicCopies
		if err := b.ask(ctx, admin.TopicCopiesSubject+v.Name+"."+h.ID, nil, &told); err != nil {
			return all // the next one would take as long
		}
		if told.Error == nil {
			all = append(all, told)
		}
	}
	return all
}

// unscrubbedText names the copy with the segment that has waited longest to be scrubbed; empty:
// none is known.
func (v *topicView) unscrubbedText() string {
	longest, text := time.Duration(0), ""
	for _, of := range v.Copies {
		for _, c := range of.Copies {
			if c.Unscrubbed <= longest || of.Broker == nil {
				continue
			}
			longest = c.Unscrubbed
			text = fmt.Sprintf("%s ago, on %s", durationText(longest.Round(time.Second)), brokerText(*of.Broker))
			if len(v.Shards) > 1 {
				text += fmt.Sprintf(" (shard %d)", c.Shard)
			}
		}
	}
	return text
}
