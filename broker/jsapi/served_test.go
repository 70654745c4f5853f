package jsapi

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestRetentionByAcksOfSeveralShardsNeedsAllBrokers: an earlier version has such retention for one
// shard, and can't read a Topic that has it for several.
func TestRetentionByAcksOfSeveralShardsNeedsAllBrokers(t *testing.T) {
	earlier := coordination.Broker{ID: "b", Name: "main-1", Features: coordination.MakeFeatureSet(coordination.FeatureAckRemovals, coordination.FeatureRemovals)}
	newer := coordination.Broker{ID: "a", Name: "main-0", Features: coordination.Features()}
	for _, retention := range []string{workQueueRetention, interestRetention} {
		c := StreamConfig{Name: "orders", Retention: retention}
		mixed := &coordination.State{Brokers: []coordination.Broker{newer, earlier}}
		if err := c.CheckServed(mixed, 3); err == nil || !strings.Contains(err.Description, retention+" with 3 shards is not supported until broker main-1") {
			t.Errorf("%s: %v", retention, err)
		}
		if err := c.CheckServed(mixed, 1); err != nil {
			t.Errorf("%s with one shard: %v", retention, err)
		}
		if err := c.CheckServed(&coordination.State{Brokers: []coordination.Broker{newer}}, 3); err != nil {
			t.Errorf("%s when all are updated: %v", retention, err)
		}
	}
}

// TestSourcesOfSeveralShardsNeedAllBrokers: an earlier version copies into one shard, and can't
// read a Topic that has sources, or is a mirror, and has several.
func TestSourcesOfSeveralShardsNeedAllBrokers(t *testing.T) {
	earlier := coordination.Broker{ID: "b", Name: "main-1", Features: coordination.MakeFeatureSet(coordination.FeatureSources)}
	mixed := &coordination.State{Brokers: []coordination.Broker{{ID: "a", Features: coordination.Features()}, earlier}}
	for want, c := range map[string]StreamConfig{
		"sources with 3 shards": {Name: "orders", Sources: []*StreamSource{{Name: "bills"}}},
		"a mirror of 3 shards":  {Name: "orders", Mirror: &StreamSource{Name: "bills"}},
	} {
		if err := c.CheckServed(mixed, 3); err == nil || !strings.Contains(err.Description, want+" is not supported until broker main-1") {
			t.Errorf("%s: %v", want, err)
		}
		if err := c.CheckServed(mixed, 1); err != nil {
			t.Errorf("%s, and one shard: %v", want, err)
		}
	}
}
