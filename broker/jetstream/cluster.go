package jetstream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/topic"
)

// clusterInfo describes the leader and the replicas of a shard for clients. A nil shard is not
// placed yet.
func clusterInfo(cluster string, state *coordination.State, shard *coordination.Shard, name func(id string) string) *jsapi.ClusterInfo {
	info := &jsapi.ClusterInfo{Name: cluster}
	if shard == nil {
		return info
	}
	if shard.Leader != "" {
		info.Leader = name(shard.Leader)
	}
	for _, id := range shard.Replicas {
		if id == shard.Leader {
			continue
		}
		member, here := state.Broker(id)
		info.Replicas = append(info.Replicas, &jsapi.PeerInfo{
			Name: name(id), Peer: id, Offline: !here,
			Current: here && slices.Contains(shard.InSync, coordination.Replica{Broker: id, Incarnation: member.Incarnation}),
			Pending: slices.Contains(shard.Adding, id) || slices.Contains(shard.Removing, id),
		})
	}
	slices.SortFunc(info.Replicas, func(a, b *jsapi.PeerInfo) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Peer, b.Peer))
	})
	return info
}

// cluster describes the leader and the replicas of a shard of a stream. It is nil on a standalone
// broker.
func (s *Server) cluster(id string, number int) *jsapi.ClusterInfo {
	if s.config.Standalone {
		return nil
	}
	state := s.state()
	return clusterInfo(s.config.Cluster, state, state.Shard(id, number), s.topics.BrokerName)
}

// noteFollowers adds what the leader knows of the replicas: when it heard of them, and what they
// lack.
func noteFollowers(cluster *jsapi.ClusterInfo, shard *topic.ShardLeader) {
	if cluster == nil || len(cluster.Replicas) == 0 {
		return
	}
	_, end := shard.Offsets()
	for _, f := range shard.Followers() {
		for _, peer := range cluster.Replicas {
			if peer.Peer != f.Broker || f.Gone {
				continue
			}
			if f.Joined {
				peer.Active = jsapi.InContact
			} else {
				peer.Active = f.Behind
			}
			if safe := f.Safe[replica.Data]; safe < end {
				peer.Lag = end - safe
			}
		}
	}
}

// replicasOf returns how many replicas a Topic has or is to have, also if the number is left to the
// brokers.
func replicasOf(state *coordination.State, t *coordination.Topic) int {
	if t.Spec.Replicas > 0 {
		return t.Spec.Replicas
	}
	if shard := state.Shard(t.ID, 0); shard != nil {
		return max(len(shard.Replicas)-len(shard.Removing), 1)
	}
	return 1
}

// streamOf returns the stream configuration that clients see for a Topic.
func (s *Server) streamOf(t *coordination.Topic) jsapi.StreamConfig {
	config := jsapi.StreamOf(t.Name, &t.Spec)
	config.Replicas = replicasOf(s.state(), t)
	return config
}

// enoughBrokers refuses more replicas than there are brokers.
func (s *Server) enoughBrokers(replicas int) *jsapi.Error {
	switch brokers := len(s.state().Brokers); {
	case replicas <= max(brokers, 1):
		return nil
	case brokers <= 1:
		return jsapi.ErrStreamReplicasNotSupported
	default:
		return jsapi.ErrClusterNoPeers.With(fmt.Sprintf("no suitable peers for placement, %d replicas are asked for and %d brokers are there", replicas, brokers))
	}
}
