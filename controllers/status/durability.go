package status

import (
	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// risks sets the conditions about settings of a Topic that allow acknowledged records to be lost.
func (l *list) risks(spec *coordination.TopicSpec, replicas int32) {
	message := ""
	switch {
	case spec.Durability == coordination.Replicated && replicas > 1:
		message = "a record is acknowledged when the in-sync brokers' operating systems have it: a power cut that takes all of them at once can lose the newest ones; write durability: Synced to have them on disk first"
	case spec.Durability == coordination.Replicated:
		message = "a record is acknowledged when its broker's operating system has it: a power cut can lose the newest ones; write durability: Synced to have them on disk first"
	case spec.Durability == coordination.Memory && replicas > 1:
		message = "records are in memory only: all of them are lost once no in-sync broker is left running; write durability: Synced in a new Topic to have them on disk"
	case spec.Durability == coordination.Memory:
		message = "records are in memory only: all of them are lost when their broker stops; write durability: Synced in a new Topic to have them on disk"
	}
	l.only(message != "", v1alpha1.ConditionDurabilityReduced, string(spec.Durability), message)
	l.only(spec.UncleanElection, v1alpha1.ConditionUncleanElection, string(v1alpha1.UncleanElectionAllowed),
		"when no broker that has every acknowledged record is there, one that lacks some may lead, and those are lost; write uncleanElection: Forbidden to wait instead")
}
