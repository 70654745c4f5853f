package coordination

import (
	"fmt"
	"strconv"
	"strings"
)

// ShardName returns the name of a Topic's shard: NAME--NUMBER, or the Topic's if it has one shard.
func ShardName(t *Topic, number int) string {
	if t.Spec.Shards <= 1 {
		return t.Name
	}
	return fmt.Sprintf("%s--%d", t.Name, number)
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
