package inventory

import (
	"context"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// Cluster is what a broker knows of the Topics of its cluster.
type Cluster struct {
	Self string // id of this broker
	// State returns the latest State.
	State func() *coordination.State
	// Deleted reports whether it is proven that the Topic of an id was deleted. Its error is that of
	// the context.
	Deleted func(ctx context.Context, id string) (bool, error)
}

// KeptElsewhere is why a copy is set aside that is not one of the shard's replicas any more.
const KeptElsewhere = "other brokers keep the replicas of a shard that this one had; its copy here was set aside"

// Settle deletes logs of Topics deleted while the broker was away, and sets others aside. first is
// the first State that the broker saw. It is called once.
func (i *Inventory) Settle(ctx context.Context, first *coordination.State, of Cluster) {
	if key := first.UnreadableTopic(); key != "" {
		i.logger.Warn("logs of unknown Topics are left where they are, since not every Topic's key can be read", "key", key)
		return
	}
	defer func() { i.found = nil }()
	for _, name := range i.found {
		named, ok := log.ParseName(name)
		if ok && (first.Keeps(of.Self, named.Topic, named.Shard) || of.State().Keeps(of.Self, named.Topic, named.Shard)) {
			continue
		}
		stored, there := i.disk.Stored(name)
		if !there {
			continue
		}
		is := log.Identity{Topic: stored.Meta.Topic, Shard: stored.Meta.Shard}
		if stored.Err != nil {
			is = named
		}
		deleted, err := of.Deleted(ctx, is.Topic)
		if err != nil {
			return
		}
		i.Gone(name) // first: if a restored etcd has the Topic again, this log is missing
		switch exists := first.TopicByID(is.Topic) != nil || of.State().TopicByID(is.Topic) != nil; {
		case exists && (stored.Err != nil || !first.Elsewhere(of.Self, is.Topic, is.Shard) || !of.State().Elsewhere(of.Self, is.Topic, is.Shard)):
			i.Note(name)
		case exists:
			err = i.moveAside(name, KeptElsewhere)
		case deleted && is.Topic == named.Topic:
			i.logger.Info("a log of a Topic that was deleted while this broker was away is deleted", "log", name)
			err = i.disk.Delete(name)
		default:
			err = i.moveAside(name, "a log of a Topic that does not exist was set aside", "spec", string(stored.Meta.Spec))
		}
		if err != nil {
			if _, there := i.disk.Stored(name); there { // or it was moved, and not deleted yet
				i.Note(name)
			}
			i.logger.Error("a log of an unknown Topic could not be deleted or set aside", "log", name, "error", err)
		}
	}
}
