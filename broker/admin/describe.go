package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
)

// view is the input of one answer.
type view struct {
	state *coordination.State
	// trouble returns why this broker does not serve a shard that it leads, or nil.
	trouble func(topicID string, shard int) error
	// name returns the last known name of a broker that is away; nil: unknown.
	name func(id string) string
}

func (v view) topic(t *coordination.Topic) Topic {
	shown := Topic{
		Name: t.Name, ID: t.ID, Generation: t.Generation, Created: t.Created, Owner: ownerOf(t.Owner),
		Spec: topicDefaults(t.Spec), Deleting: t.Deleting, Shards: []Shard{},
	}
	for _, s := range v.state.Subscriptions(t.ID) {
		if !s.Spec.Consumer.Ephemeral {
			shown.Subscriptions++
		}
	}
	waits := v.waits(t)
	whole := waits[-1]
	for number := range t.Spec.Shards {
		shown.Shards = append(shown.Shards, v.shard(t, number, waits))
	}
	shown.Status = Status{Served: true}
	for _, shard := range shown.Shards {
		if !shard.Served {
			shown.Status = shard.Status
			break
		}
		if shown.Reason == "" {
			shown.Status = shard.Status
		}
	}
	if whole != nil && !shown.Served {
		shown.Status = *whole
	}
	return shown
}

// waits returns what the planner reports about the Topic, by shard number; -1: the whole Topic. It
// runs the controller's own plan.
func (v view) waits(t *coordination.Topic) map[int]*Status {
	if t.Deleting || v.settled(t) {
		return nil
	}
	plan := placement.Decide(placement.FactsOf(v.state, t))
	waits := make(map[int]*Status, len(plan.Waits))
	for _, w := range plan.Waits {
		waits[w.Shard] = &Status{Reason: Reason(w.Reason), Why: w.Why}
	}
	return waits
}

// settled reports whether the planner has nothing to report, which is the usual case.
func (v view) settled(t *coordination.Topic) bool {
	shards := v.state.Shards(t.ID)
	if len(shards) != t.Spec.Shards || t.Spec.Shards > placement.MaxShards {
		return false
	}
	for _, shard := range shards {
		if !v.led(shard) {
			return false
		}
	}
	return true
}

// led reports whether the leader is registered in the incarnation in which it was elected.
func (v view) led(s *coordination.Shard) bool {
	leader, ok := v.state.Broker(s.Leader)
	if !ok {
		return false
	}
	for _, m := range s.InSync {
		if m.Broker == s.Leader {
			return m.Incarnation == leader.Incarnation
		}
	}
	return false
}

func (v view) shard(t *coordination.Topic, number int, waits map[int]*Status) Shard {
	shown := Shard{Number: number, Replicas: []Replica{}}
	shard := v.state.Shard(t.ID, number)
	if shard != nil {
		shown.Epoch, shown.Want, shown.MinInSync = shard.Epoch, wanted(shard, &t.Spec), shard.MinInSync(&t.Spec)
		for _, id := range shard.Replicas {
			r := v.replica(shard, id)
			shown.Replicas = append(shown.Replicas, r)
			if r.InSync {
				shown.InSync++
			}
		}
		if shard.Leader != "" {
			leader := v.broker(shard.Leader)
			shown.Leader = &leader
		}
	}
	shown.Status = v.status(t, number, shard, waits)
	if shown.Served {
		shown.Status = replication(t.Name, &shown)
	}
	return shown
}

// wanted returns the desired number of replicas of a shard. If its Topic does not specify it, the
// number placed.
func wanted(s *coordination.Shard, spec *coordination.TopicSpec) int {
	if spec.Replicas > 0 {
		return spec.Replicas
	}
	return max(1, len(s.Replicas)-max(len(s.Adding), len(s.Removing)))
}

func (v view) replica(s *coordination.Shard, id string) Replica {
	broker, here := v.state.Broker(id)
	member, in := s.Member(id)
	r := Replica{
		Broker: v.broker(id),
		Adding: slices.Contains(s.Adding, id), Removing: slices.Contains(s.Removing, id),
		Suspect: v.state.Suspect(id, s.Topic, s.Number),
	}
	if r.Suspect {
		said, _ := v.state.Reported(id, s.Topic, s.Number)
		r.Lacks = said.Lacks
	}
	r.InSync = here && in && !r.Suspect && broker.Holds(member.Incarnation)
	return r
}

// replication returns the status of a shard that has a leader: what it lacks, if anything.
func replication(name string, s *Shard) Status {
	stays, missing := 0, []string{}
	for _, r := range s.Replicas {
		if r.InSync && !r.Removing {
			stays++
		}
		if !r.Removing {
			if why := r.Missing(); why != "" {
				missing = append(missing, cmp.Or(r.Name, "broker "+r.ID)+" "+why)
			}
		}
	}
	if more := s.Want - stays - len(missing); more > 0 {
		missing = append(missing, fmt.Sprintf("%d have no broker yet (if this lasts, start more brokers or ask for fewer replicas)", more))
	}
	what := fmt.Sprintf("shard %d of topic %s has %d of %d replicas in sync", s.Number, name, s.InSync, s.Want)
	lacks := strings.Join(missing, ", ")
	switch {
	case s.InSync < s.MinInSync:
		return Status{Reason: NotEnoughInSync, Why: fmt.Sprintf("%s, and %d must be, so publishing waits: %s", what, s.MinInSync, cmp.Or(lacks, "brokers come and go"))}
	case stays < s.Want && lacks != "":
		return Status{Served: true, Reason: UnderReplicated, Why: what + ": " + lacks}
	}
	return Status{Served: true}
}

// Missing returns why a replica is not in sync, or "".
func (r *Replica) Missing() string {
	switch {
	case r.InSync:
		return ""
	case r.Away:
		return "is away"
	case r.Lacks > 0:
		return fmt.Sprintf("has damaged segments, which are fetched from the leader (%d)", r.Lacks)
	case r.Suspect:
		return "can't vouch for its data"
	}
	return "catches up"
}

func (v view) status(t *coordination.Topic, number int, shard *coordination.Shard, waits map[int]*Status) Status {
	switch wait := cmp.Or(waits[number], waits[-1]); {
	case t.Deleting:
		return Status{Reason: Deleting, Why: fmt.Sprintf("topic %s is being deleted (wait until it is gone)", t.Name)}
	case shard != nil && v.led(shard):
		if err := v.trouble(t.ID, number); err != nil {
			return Status{Reason: Trouble, Why: err.Error()}
		}
		return Status{Served: true}
	case wait != nil:
		return *wait
	case v.state.Controller.Term == 0:
		return Status{Reason: NoController, Why: fmt.Sprintf("shard %d of topic %s waits for a controller, which brokers elect within seconds (if none comes, look at the coordinators)", number, t.Name)}
	case shard == nil:
		return Status{Reason: Placing, Why: fmt.Sprintf("shard %d of topic %s is about to be placed on a broker (ask again in a second)", number, t.Name)}
	}
	return Status{Reason: Placing, Why: fmt.Sprintf("shard %d of topic %s is about to be given a leader again (ask again in a second)", number, t.Name)}
}

func (v view) broker(id string) Broker {
	if member, here := v.state.Broker(id); here {
		return Broker{ID: id, Name: member.Name}
	}
	b := Broker{ID: id, Away: true}
	if v.name != nil {
		if name := v.name(id); name != id {
			b.Name = name
		}
	}
	return b
}

// subscriptionOf describes a Subscription. status is its Topic's.
func subscriptionOf(t *coordination.Topic, s *coordination.Subscription, status Status) Subscription {
	return Subscription{
		Topic: t.Name, Name: s.Name, Generation: s.Generation, Created: s.Created,
		Owner: ownerOf(s.Owner), Spec: subscriptionDefaults(*s.Spec), Status: status,
	}
}

func ownerOf(o coordination.Owner) Owner {
	owner := Owner{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	if !o.Orphaned.IsZero() {
		owner.Orphaned = &o.Orphaned
	}
	return owner
}

// topicDefaults replaces empty fields by their defaults, so that readers need not know them.
func topicDefaults(spec coordination.TopicSpec) coordination.TopicSpec {
	spec.PartitionBy = cmp.Or(spec.PartitionBy, coordination.BySubject)
	spec.Durability = cmp.Or(spec.Durability, coordination.Synced)
	spec.Compaction = cmp.Or(spec.Compaction, coordination.NoCompaction)
	spec.DeletionPolicy = cmp.Or(spec.DeletionPolicy, coordination.Retain)
	return spec
}

// subscriptionDefaults does the same. Values of headers are for the endpoint, not for clients.
func subscriptionDefaults(spec coordination.SubscriptionSpec) coordination.SubscriptionSpec {
	spec.Start.From = cmp.Or(spec.Start.From, coordination.FromLatest)
	spec.Ack.Policy = cmp.Or(spec.Ack.Policy, coordination.AckExplicit)
	if spec.Push != nil {
		shown := *spec.Push
		shown.Format = cmp.Or(shown.Format, coordination.CloudEventsBinary)
		shown.Headers = slices.Clone(shown.Headers)
		for i := range shown.Headers {
			shown.Headers[i].Value = ""
		}
		spec.Push = &shown
	}
	spec.DeletionPolicy = cmp.Or(spec.DeletionPolicy, coordination.Retain)
	return spec
}
