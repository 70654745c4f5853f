package plan

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// Doubted returns the event about the election of a leader that may lack acknowledged records.
// leader is its broker's name.
func Doubted(shard *coordination.Shard, leader string) Action {
	return Action{Kind: Elect, Reason: RecordsMayBeLost, Target: leader, Message: fmt.Sprintf(
		"broker %s leads shard %d from epoch %d on and may lack records that were acknowledged (%s): compare with what publishers know, and see the brokers' logs for why no better replica was there",
		leader, shard.Number, shard.Doubt.Epoch, shard.Doubt.Reason)}
}
