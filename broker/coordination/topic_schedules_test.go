package coordination

import (
	"strings"
	"testing"
)

// TestSchedulesHaveOneShard: a schedule and its target may be in two.
func TestSchedulesHaveOneShard(t *testing.T) {
	spec := TopicSpec{Subjects: []string{"orders.>"}, Shards: 1, Stream: StreamSettings{AllowSchedules: true}}
	if why := spec.valid(); why != "" {
		t.Error(why)
	}
	spec.Shards = 2
	if why := spec.valid(); !strings.Contains(why, "use one shard") {
		t.Errorf("two shards: %q", why)
	}
}
