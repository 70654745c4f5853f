package keptspec

import (
	"encoding/json"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestALogSaysWhetherItHasIDs: and one that says nothing, or says it wrong, may have some.
func TestALogSaysWhetherItHasIDs(t *testing.T) {
	d, err := log.OpenDisk(crashfs.New(), "data", log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	topic := &coordination.Topic{Name: "orders", ID: "id", Spec: coordination.TopicSpec{Subjects: []string{"orders.>"}}}
	for name, c := range map[string]struct {
		spec []byte
		want bool
	}{
		"none":    {Encode(topic, true), true},
		"some":    {Encode(topic, false), false},
		"empty":   {nil, false},
		"damaged": {[]byte(`{"noIDs":tru`), false},
	} {
		l, err := d.Open(log.Identity{Topic: name}, 1, 1, c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if NoIDs(l) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
	var back kept
	if err := json.Unmarshal(Encode(topic, true), &back); err != nil || back.Name != "orders" || back.Version != 1 || len(back.Spec.Subjects) != 1 {
		t.Error(back, err)
	}
}
