package coordination

import (
	"fmt"
	"strconv"
)

// ShardName returns the name of a Topic's shard: NAME--NUMBER, or the Topic's if it has one shard.
func ShardName(t *Topic, number int) string {
	if t.Spec.Shards <= 1 {
		return t.Name
	}
	return fmt.Sprintf("%s--%d", t.Name, number)
}

// ShardKey returns the Key of a Topic's shard.
func ShardKey(topicID string, number int) string {
	if number == 0 {
		return topicID
	}
	return topicID + "/" + strconv.Itoa(number)
}
