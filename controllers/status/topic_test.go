package status

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
)

func TestTheStatusOfATopicShowsItsFacts(t *testing.T) {
	self := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "default", Name: "orders", UID: "1"}
	facts := plan.TopicFacts{
		Self: self, Name: "orders", Link: plan.Link{Exists: true, Known: true, Wanted: 1},
		Found:  &coordination.Topic{Name: "orders", ID: "x", Owner: self, Spec: coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: 1}},
		Shards: []plan.ShardFacts{{Leader: "main-0", LeaderID: "b0", Led: true, Want: 1, Min: 1, Replicas: []plan.ReplicaFacts{{Broker: "main-0", ID: "b0", Member: true, Current: true}}}},
	}
	topic := &v1alpha1.Topic{}
	topic.Generation = 2
	served := plan.Action{Kind: plan.None, Reason: plan.Served, Message: "served"}
	topic.Status = Topic(topic, facts, served, &mirror.Numbers{Messages: 7, Bytes: 70})
	if s := topic.Status; say(s.Conditions) != "Ready=True:Served" || s.ObservedGeneration != 2 || s.ID != "x" || s.Leader.Name != "main-0" || s.LedBy != "main-0" || s.Replicas != 1 || s.InSync != "1/1" || len(s.Brokers) != 1 || s.Messages != 7 || s.Bytes != 70 {
		t.Errorf("served, it is %+v", s)
	}
	// Without newer facts the former status stays: the numbers, and all of it while etcd can't be
	// read.
	if again := Topic(topic, facts, served, nil); !equality.Semantic.DeepEqual(again, topic.Status) {
		t.Errorf("without numbers it became %+v", again)
	}
	unknown := plan.TopicFacts{Self: self, Name: "orders", Link: plan.Link{Exists: true}}
	waiting := plan.Action{Kind: plan.Wait, Reason: plan.CoordinationUnavailable, Message: "away"}
	if s := Topic(topic, unknown, waiting, nil); say(s.Conditions) != "Ready=False:CoordinationUnavailable Reconciling=True:CoordinationUnavailable" || s.ID != "x" || s.LedBy != "main-0" || s.Messages != 7 {
		t.Errorf("with etcd away it is %+v", s)
	}
	// Deletion by age is paused until the numbers report that it isn't.
	paused := Topic(topic, facts, served, &mirror.Numbers{Messages: 7, Bytes: 70, AgePaused: "ClockJumped", AgePausedWhy: "a clock jumped"})
	if say(paused.Conditions) != "Ready=True:Served RetentionPaused=True:ClockJumped" {
		t.Errorf("with a clock that jumped it is %+v", paused)
	}
	of := &v1alpha1.Topic{Status: paused}
	if s := Topic(of, facts, served, nil); say(s.Conditions) != say(paused.Conditions) {
		t.Errorf("without numbers it became %+v", s)
	}
	if s := Topic(of, facts, served, &mirror.Numbers{}); say(s.Conditions) != "Ready=True:Served" {
		t.Errorf("with the clock put right it is %+v", s)
	}
	if s := Topic(of, plan.TopicFacts{Self: self, Name: "orders"}, served, nil); say(s.Conditions) != "Ready=True:Served" {
		t.Errorf("gone, it is %+v", s)
	}
	refused := facts
	refused.AttributesRefused = "subject x is none of this Topic"
	told := Topic(topic, refused, served, nil)
	if say(told.Conditions) != "Ready=True:Served AttributesRefused=True:NotSet" {
		t.Errorf("with attributes that can't be set it is %+v", told)
	}
	if s := Topic(&v1alpha1.Topic{Status: told}, facts, served, nil); say(s.Conditions) != "Ready=True:Served" {
		t.Errorf("with attributes that are set again it is %+v", s)
	}
	// With several shards, the leaders are named with their counts, and the lowest number of
	// in-sync replicas is shown.
	wide, first := facts, facts.Shards[0]
	second, third := first, first
	second.Leader, second.LeaderID, third.Want = "main-1", "b1", 2
	wide.Shards = []plan.ShardFacts{first, second, third}
	if s := Topic(topic, wide, served, nil); s.LedBy != "main-0(2),main-1" || s.Leader.Name != "main-0" || s.InSync != "1/2" {
		t.Errorf("with three shards it is %+v", s)
	}
	// A recreated Topic has another id and no records.
	facts.Found = &coordination.Topic{Name: "orders", ID: "y", Owner: self}
	if s := Topic(topic, facts, served, nil); s.ID != "y" || s.Messages != 0 {
		t.Errorf("made again it is %+v", s)
	}
	// A Topic of another owner is not shown.
	facts.Found = &coordination.Topic{Name: "orders", ID: "z", Owner: coordination.Owner{Kind: coordination.ClientOwner}}
	if s := Topic(topic, facts, plan.Action{Kind: plan.Stall, Reason: plan.Exists, Message: "taken"}, nil); say(s.Conditions) != "Ready=False:Exists Stalled=True:Exists" || s.ID != "" || s.Leader != nil || s.LedBy != "" || s.Messages != 0 {
		t.Errorf("with the name taken it is %+v", s)
	}
}
