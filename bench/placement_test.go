package bench

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestAnIncompleteStreamNamesWhatIsMissing(t *testing.T) {
	peers := func(list ...jetstream.PeerInfo) (all []*jetstream.PeerInfo) {
		for i := range list {
			all = append(all, &list[i])
		}
		return all
	}
	good, behind, gone := jetstream.PeerInfo{Name: "b", Current: true}, jetstream.PeerInfo{Name: "c"}, jetstream.PeerInfo{Name: "d", Current: true, Offline: true}
	for i, c := range []struct {
		has, want int
		cluster   *jetstream.ClusterInfo
		says      string // nothing if it is whole
	}{
		{1, 1, nil, ""},
		{1, 1, &jetstream.ClusterInfo{Leader: "a"}, ""},
		{3, 3, &jetstream.ClusterInfo{Leader: "a", Replicas: peers(good, good)}, ""},
		{1, 3, &jetstream.ClusterInfo{Leader: "a"}, "it has 1 replicas instead of 3"},
		{3, 3, nil, "does not say where"},
		{1, 1, &jetstream.ClusterInfo{}, "it has no leader"},
		{3, 3, &jetstream.ClusterInfo{Leader: "a", Replicas: peers(good)}, "it has 2 of 3 replicas"},
		{3, 3, &jetstream.ClusterInfo{Leader: "a", Replicas: peers(good, behind)}, "the replica on c is not current"},
		{3, 3, &jetstream.ClusterInfo{Leader: "a", Replicas: peers(gone, good)}, "the replica on d is not current"},
	} {
		err := whole(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: c.has}, Cluster: c.cluster}, c.want)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("case %d: %v, want %q", i, err, c.says)
		}
	}
}

func TestPublishersConnectToTheChosenBrokers(t *testing.T) {
	addresses, names := []Address{{HostPort: "h:1"}, {HostPort: "h:2"}, {HostPort: "h:3"}}, []string{"a", "b", "c"}
	for connect, want := range map[string][]int{ConnectSpread: {0, 1, 2}, ConnectLeader: {1}, ConnectFollower: {0, 2}} {
		chosen, leads, err := choose(addresses, names, "b", connect)
		if err != nil || len(chosen) != len(want) {
			t.Fatalf("%s: %v, %v", connect, chosen, err)
		}
		for i, which := range want {
			if chosen[i] != addresses[which] || leads[i] != (which == 1) {
				t.Errorf("%s: %v, leader %v", connect, chosen, leads)
			}
		}
	}
	if _, _, err := choose(addresses, names, "elsewhere", ConnectLeader); err == nil || !strings.Contains(err.Error(), `led by "elsewhere"`) {
		t.Errorf("the leader is none of them: %v", err)
	}
	if _, _, err := choose(addresses[:1], names[:1], "a", ConnectFollower); err == nil {
		t.Errorf("there is no follower: %v", err)
	}
}
