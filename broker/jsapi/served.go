package jsapi

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// CheckServed refuses settings that a broker of an earlier version would not honour, while one is
// registered. shards is the number of the Topic's shards.
func (c *StreamConfig) CheckServed(state *coordination.State, shards int) *Error {
	for _, needs := range []struct {
		asked   bool
		setting string
		feature coordination.Feature
	}{
		{c.DiscardsNew(), "discard: new", coordination.FeatureDiscardNew},
		{c.RemovesAcked(), "retention: " + c.Retention, coordination.FeatureAckRemovals},
		{c.RemovesAcked() && shards > 1, fmt.Sprintf("retention: %s with %d shards", c.Retention, shards), coordination.FeatureShardReleases},
		{c.AllowSchedules, "allow_msg_schedules", coordination.FeatureSchedules},
		{c.MaxPerSubject > 0, "max_msgs_per_subject", coordination.FeatureRemovals},
		{c.AllowRollup, "allow_rollup_hdrs", coordination.FeatureRemovals},
		{c.SubjectTransform != nil, "subject_transform", coordination.FeatureTransforms},
		{c.RePublish != nil, "republish", coordination.FeatureRepublish},
		{c.AllowMessageTTL, "allow_msg_ttl", coordination.FeatureExpiries},
		{c.AllowAtomic, "allow_atomic", coordination.FeatureBatches},
		{c.AllowBatched, "allow_batched", coordination.FeatureFastBatches},
		{len(c.Sources) > 0, "sources", coordination.FeatureSources},
		{c.AllowCounter, "allow_msg_counter", coordination.FeatureCounters},
		{c.AllowCounter && len(c.Sources) > 0, "allow_msg_counter with sources", coordination.FeatureCounterSources},
		{c.Mirror != nil, "mirror", coordination.FeatureSources},
		{len(c.Sources) > 0 && shards > 1, fmt.Sprintf("sources with %d shards", shards), coordination.FeatureShardedSources},
		{c.Mirror != nil && shards > 1, fmt.Sprintf("a mirror of %d shards", shards), coordination.FeatureShardedSources},
	} {
		if !needs.asked {
			continue
		}
		for _, b := range state.Brokers {
			if !b.Features.Has(needs.feature) {
				return ErrStreamInvalidConfig.With(fmt.Sprintf("%s is not supported until broker %s runs a newer version", needs.setting, b.Name))
			}
		}
	}
	return nil
}
