package inventory

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestLogsOfUnknownTopicsAreSettled: a broker comes back with logs of five Topics. The one of a
// Topic with a tombstone is deleted; the one of a Topic that nobody knows, and the one of a shard
// whose replicas are elsewhere, are set aside; the others stay. If it can't be learned what was
// deleted, all stay.
func TestLogsOfUnknownTopicsAreSettled(t *testing.T) {
	fsys := crashfs.New()
	disk, err := log.OpenDisk(fsys, "data", log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := func(topic string) log.Identity { return log.Identity{Topic: topic} }
	for _, topic := range []string{"kept", "moved", "unplaced", "deleted", "lost"} {
		l, err := disk.Open(id(topic), 1, 1, nil)
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state := coordination.NewState(1, nil,
		[]*coordination.Topic{{Name: "kept", ID: "kept"}, {Name: "moved", ID: "moved"}, {Name: "unplaced", ID: "unplaced"}},
		[]*coordination.Shard{{Topic: "kept", Replicas: []string{"me"}}, {Topic: "moved", Replicas: []string{"other"}}}, nil)
	var unknown error
	cluster := Cluster{Self: "me", State: func() *coordination.State { return state },
		Deleted: func(_ context.Context, id string) (bool, error) { return id == "deleted", unknown }}
	settle := func() *Inventory {
		i, err := New(disk, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		i.Settle(t.Context(), state, cluster)
		return i
	}
	names := func(topics ...string) (all []string) {
		for _, topic := range topics {
			all = append(all, id(topic).Name())
		}
		slices.Sort(all)
		return all
	}
	check := func(i *Inventory, aside uint64, want []string) {
		t.Helper()
		got, err := disk.Names()
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) || i.SetAside() != aside {
			t.Errorf("%d logs were set aside, want %d, and left are %v, want %v: %v", i.SetAside(), aside, got, want, err)
		}
		for _, name := range names("kept", "moved", "unplaced", "deleted", "lost") {
			if i.Has(name) != slices.Contains(want, name) {
				t.Errorf("of %s it says that it is there: %v", name, i.Has(name))
			}
		}
	}
	unknown = errors.New("etcd is away")
	check(settle(), 0, names("kept", "moved", "unplaced", "deleted", "lost"))
	unknown = nil
	check(settle(), 2, names("kept", "unplaced"))
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
}
