package admin

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// BenchmarkTopicList measures one page of 10,000 Topics.
func BenchmarkTopicList(b *testing.B) {
	var topics []*coordination.Topic
	var shards []*coordination.Shard
	for i := range 10_000 {
		id := fmt.Sprintf("id%d", i)
		topics = append(topics, &coordination.Topic{Name: fmt.Sprintf("topic-%d", i), ID: id, Spec: coordination.TopicSpec{Subjects: []string{id}, Shards: 1}})
		shards = append(shards, &coordination.Shard{Topic: id, Epoch: 1, Leader: "a", Replicas: []string{"a"}, InSync: []coordination.Replica{{Broker: "a", Incarnation: 1}}})
	}
	s, _ := newServer(coordination.NewState(1, []coordination.Broker{{ID: "a", Incarnation: 1}}, topics, shards, nil))
	for b.Loop() {
		s.answer(&protocol.Message{Subject: []byte(TopicListSubject)}, origin{})
	}
}
