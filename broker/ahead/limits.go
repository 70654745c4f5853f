package ahead

import (
	"time"

	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// Default is the bound of each shard.
//
//  1. Bytes is twice an outbox, so that forwarding brokers wait first, and more than 1 Gbit/s
//     brings while a follower collects garbage.
//  2. Records are about 250 bytes each for pending answers.
//  3. Time is how long publishers wait for a watermark that doesn't move before they are refused. A
//     member that lags leaves the in-sync set before that (replica.LagTime and a sweep).
var Default = Bound{Bytes: 2 * sender.OutboxBytes, Records: 256 << 10, Time: replica.LagTime + 2*time.Second}
