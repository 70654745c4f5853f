//go:build e2e && linux

package chaos

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// kept is a Topic of one shard that is kept in another way than the three that every client uses.
type kept struct {
	*checker.Topic
	how admin.CreateRequest
	// least is how many messages stay at least; 0: all do.
	least int
	// holds says whether, after these harms, what was acknowledged is to be there. Else its replicas
	// are to agree, and no more.
	holds func(h harms) bool
	// inMemory says that what is on the disks means nothing.
	inMemory bool
	// spared says that bits don't flip in it.
	spared bool
}

// retained is how many messages of the Topic with a retention stay.
const retained = 300

// keptOtherwise are the Topics besides orders, clicks and accounts.
func keptOtherwise() []*kept {
	always := func(harms) bool { return true }
	return []*kept{
		// A single copy may be all that is in sync, so that a flipped bit may take what nobody else has.
		{Topic: checker.NewTopic("single", 1), how: admin.CreateRequest{MinInSync: 1}, holds: func(h harms) bool { return !h.rolledBack }, spared: true},
		{Topic: checker.NewTopic("recent", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{MaxMessages: retained}}, least: retained, holds: always},
		// Nothing becomes so old in a world, whatever clocks say.
		{Topic: checker.NewTopic("aged", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{MaxAge: window}}, holds: always},
		{Topic: checker.NewTopic("replicated", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{PersistMode: "async"}},
			holds: func(h harms) bool { return !h.unsynced }, spared: true},
		{Topic: checker.NewTopic("memory", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{Storage: "memory"}},
			holds: func(h harms) bool { return !h.unsynced && !h.ended }, inMemory: true, spared: true},
	}
}

// harms is what was done to a cluster that takes what is not on every disk.
type harms struct {
	unsynced bool // what was written and not synced was taken from some broker
	ended    bool // a process ended without order, so that perhaps nobody who was in sync went on
	// rolledBack: a broker's volume was.
	rolledBack bool
}

// harmed notes what a step takes.
func (c *cluster) harmed(s Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.Kind {
	case Power, Failing, Recover:
		c.harms.unsynced = true
	case Kill, Hang, Flip, Roll:
		c.harms.ended = true
	case Lost:
		c.harms.ended = true
	case Rollback:
		c.harms.unsynced, c.harms.ended, c.harms.rolledBack = true, true, true
	case Scale:
		c.harms.ended = c.harms.ended || s.Killed || s.Joins
	}
}

func (k *kept) String() string { return fmt.Sprintf("Topic %s", k.Name) }
