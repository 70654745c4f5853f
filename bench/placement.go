package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Placement is where a stream was, and where its publishers connected to, in a run on servers
// that say so.
type Placement struct {
	Leader      string `json:"leader"`
	Replicas    int    `json:"replicas"`              // that follow and are current, and the leader
	Connections int    `json:"publisher_connections"` // of all publishers together
	AtLeader    int    `json:"publishers_at_leader"`
}

// whole says what is missing for a stream to have a leader and all its replicas in step.
func whole(info *jetstream.StreamInfo, replicas int) error {
	if info.Config.Replicas != replicas {
		return fmt.Errorf("it has %d replicas instead of %d", info.Config.Replicas, replicas)
	}
	if info.Cluster == nil {
		if replicas > 1 {
			return errors.New("the server does not say where its replicas are")
		}
		return nil // a server by itself
	}
	if info.Cluster.Leader == "" {
		return errors.New("it has no leader")
	}
	if n := len(info.Cluster.Replicas) + 1; n < replicas {
		return fmt.Errorf("it has %d of %d replicas", n, replicas)
	}
	for _, peer := range info.Cluster.Replicas {
		if !peer.Current || peer.Offline {
			return fmt.Errorf("the replica on %s is not current", peer.Name)
		}
	}
	return nil
}

// brokers asks each address for the name of the server behind it.
func (t Target) brokers(ctx context.Context) ([]string, error) {
	names := make([]string, len(t.Addresses))
	for i, a := range t.Addresses {
		s, err := a.identify(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its name: %w", a.HostPort, err)
		}
		names[i] = s.Server
	}
	return names, nil
}

// choose returns the addresses that publishers connect to, and whether each is the leader's.
func choose(addresses []Address, names []string, leader, connect string) (chosen []Address, leads []bool, err error) {
	for i, a := range addresses {
		if at := names[i] == leader; connect == ConnectSpread || at == (connect == ConnectLeader) {
			chosen, leads = append(chosen, a), append(leads, at)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("publishers are to connect to the %s, the stream is led by %q, and the addresses are of %q: give the address of every broker", connect, leader, slices.Compact(names))
	}
	return chosen, leads, nil
}
