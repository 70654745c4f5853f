package replica

import (
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// DurabilityOf returns a Topic's durability as logs have it.
func DurabilityOf(d coordination.Durability) log.Durability {
	switch d {
	case coordination.Replicated:
		return log.Replicated
	case coordination.Memory:
		return log.Memory
	}
	return log.Synced
}
