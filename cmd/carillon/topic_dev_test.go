package main

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestTopicsFromTheCommandLine(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	useTopics(s)
	useSubscriptions(s)
	useOwners(s)
	useTail(s)
}

// useOwners sees what only a Carillon broker knows.
func useOwners(s shell) {
	v := read[topicView](s, "topic show orders")
	if v.Owner == nil || v.Owner.Kind != coordination.ClientOwner || v.Served == nil || !*v.Served || v.ID == "" || v.Generation != 1 || len(v.Shards) != 1 || v.Shards[0].Leader.Name != "dev" {
		s.Errorf("orders is %+v", v)
	}
	if one := read[subscriptionView](s, "subscription show billing eu"); one.Owner == nil || one.Served == nil || !*one.Served {
		s.Errorf("eu is %+v", one)
	}
}
