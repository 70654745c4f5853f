package coordination

import (
	"fmt"
	"strconv"
	"strings"
)

// ShardName returns the name of a Topic's shard: NAME--NUMBER, or the Topic's if it has one shard.
func ShardName(t *Topic, number int) string { return ShardStream(t.Name, t.Spec.Shards, number) }

// ShardStream is ShardName for a Topic of a name with so many shards.
func ShardStream(topic string, shards, number int) string {
	if shards <= 1 {
		return topic
	}
	return fmt.Sprintf("%s--%d", topic, number)
}

// ParseShardName returns the name of the Topic and the number of a shard in a name NAME--NUMBER, as
// ShardName has it of a Topic with several shards.
func ParseShardName(name string) (topic string, number int, ok bool) {
	at := max(strings.LastIndex(name, "--"), 0)
	digits := strings.TrimPrefix(name[at:], "--")
	number, err := strconv.Atoi(digits)
	return name[:at], number, err == nil && at > 0 && number >= 0 && strconv.Itoa(number) == digits
}

// ShardKey returns the Key of a Topic's shard.
func ShardKey(topicID string, number int) string {
	if number == 0 {
		return topicID
	}
	return topicID + "/" + strconv.Itoa(number)
}
