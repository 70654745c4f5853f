//go:build e2e && linux

package chaos

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// kept is a Topic of one shard with another durability, retention or minInSync than orders, clicks
// and accounts.
type kept struct {
	*checker.Topic
	how admin.CreateRequest
	// least is how many messages stay at least; 0: all.
	least int
	// holds reports whether the acknowledged messages must be present after these harms. Otherwise
	// the replicas only have to be equal.
	holds func(h harms) bool
	// inMemory says that the logs on the disks are not judged.
	inMemory bool
	// spared says that no bits flip in its files.
	spared bool
}

// retained is the number of messages that the Topic with a retention keeps.
const retained = 300

// keptOtherwise returns the Topics besides orders, clicks and accounts.
func keptOtherwise() []*kept {
	always := func(harms) bool { return true }
	return []*kept{
		// The in-sync set may be a single copy, so that a flipped bit may destroy a record of which
		// there is no other copy.
		{Topic: checker.NewTopic("single", 1), how: admin.CreateRequest{MinInSync: 1}, holds: func(h harms) bool { return !h.rolledBack }, spared: true},
		{Topic: checker.NewTopic("recent", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{MaxMessages: retained}}, least: retained, holds: always},
		// No record becomes that old in a world, whatever the clocks say.
		{Topic: checker.NewTopic("aged", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{MaxAge: window}}, holds: always},
		{Topic: checker.NewTopic("replicated", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{PersistMode: "async"}},
			holds: func(h harms) bool { return !h.unsynced }, spared: true},
		{Topic: checker.NewTopic("memory", 1), how: admin.CreateRequest{Stream: jsapi.StreamConfig{Storage: "memory"}},
			holds: func(h harms) bool { return !h.unsynced && !h.ended }, inMemory: true, spared: true},
	}
}

// harms is what was done to a cluster that destroys records which are not on every disk.
type harms struct {
	unsynced bool // some broker lost unsynced writes
	ended    bool // a process was killed, so that perhaps no process of the in-sync set ran on
	// rolledBack: a broker's volume was rolled back.
	rolledBack bool
}

// harmed records the harms of a step.
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
