package topic

import "testing"

// TestABusyBrokerReleasesAShardThatItNoLongerLeads: a broker with an answer to send in every round
// still releases a shard that it no longer leads, and follows.
func TestABusyBrokerReleasesAShardThatItNoLongerLeads(t *testing.T) {
	t.Parallel()
	c, _ := spoilable(t, 1)
	a := c.sites[0]
	shard := a.service.Topic("orders").Shard()
	// There is another round after each.
	defer shard.Watch(func() { shard.acks.Touch() })()
	shard.acks.Touch()
	c.elect(1, 0, 1, 2)
	c.tell()
	c.sites[1].open("orders")
	c.settle("it follows", func() bool { return a.service.Topic("orders").shards[0].copying.Load() != nil })
	c.sites[1].expect(c.sites[1].ask("orders.a", "on"), "orders@2")
}
