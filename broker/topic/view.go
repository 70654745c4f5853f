package topic

import (
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/expiring"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/republish"
	"github.com/carillon-mq/carillon/broker/transform"
)

// view is a shard in one State, in the form that serving it needs. It never changes.
type view struct {
	desired   *coordination.Topic
	shard     *coordination.Shard // nil: not placed yet
	leader    string              // id of a broker; empty: none
	epoch     uint64
	minInSync int
	lead      bool // this broker leads, in its current incarnation
	follow    bool // another broker leads, and this one has a replica
	member    bool // this broker has a replica, whoever leads
	gone      bool // deleted, or being deleted
	vanished  bool // gone, as etcd was restored from a backup that lacks it
	// restored: the shard is of an earlier generation of etcd. Nobody leads it until the controller
	// has compared all copies.
	restored bool

	unsupported string // why it can't be published to, or empty
	durability  log.Durability
	window      time.Duration
	maxMessage  int
	retention   log.Retention
	bound       publish.Bound // beyond which messages are refused
	limits      publish.Limits
	expiry      expiring.Rules
	noAck       bool
	subjects    publish.Subjects
	transform   *transform.Transform // nil: messages are stored under their own subjects
	republish   *republish.Rule      // nil: none is published again
	batches     *batching.Topic      // nil: it takes no batches
	counts      bool                 // it has counters, and nothing else
	plain       bool                 // a message without a header is kept if it isn't too large
}

// newView returns the view of a shard in a State. A broker that led in the view before goes on
// leading as long as the shard names it, also while it registers anew: an ack needs every member of
// the in-sync set anyway.
func newView(self string, t *coordination.Topic, number int, state *coordination.State, before *view, payload int) *view {
	spec := &t.Spec
	v := &view{
		desired: t, gone: t.Deleting, unsupported: placement.Unsupported(t), durability: replica.DurabilityOf(spec.Durability),
		window: spec.Deduplication, maxMessage: payload, noAck: spec.Stream.NoAck, counts: spec.Stream.AllowCounter,
		subjects: publish.NewSubjects(spec.Subjects), republish: republish.RuleOf(t.Name, spec),
		retention: log.Retention{Age: spec.Retention.Age, Bytes: spec.Retention.Bytes, Messages: uint64(max(spec.Retention.Messages, 0))},
	}
	if v.expiry = expiring.RulesOf(spec); v.expiry.On {
		v.retention.Age = 0
	}
	if spec.Stream.DiscardNew {
		v.bound = publish.Bound{Messages: v.retention.Messages, Bytes: v.retention.Bytes, Sealed: spec.Stream.Sealed}
		v.retention.Messages, v.retention.Bytes = 0, 0
	}
	v.limits = publish.LimitsOf(spec)
	v.plain = !v.counts && v.republish == nil && v.limits == (publish.Limits{}) && v.bound == (publish.Bound{})
	if m := spec.Stream.Transform; m != nil {
		v.transform, _ = transform.New(m.Source, m.Destination) // checked when it was asked for
	}
	if spec.MaxMessage > 0 && (payload == 0 || spec.MaxMessage < payload) {
		v.maxMessage = spec.MaxMessage
	}
	if s := &spec.Stream; (s.AllowAtomic || s.AllowBatched) && spec.Shards <= 1 {
		v.batches = &batching.Topic{ID: t.ID, Name: t.Name, Atomic: s.AllowAtomic, Fast: s.AllowBatched, Sealed: v.bound.Sealed, Silent: v.noAck, MaxMessage: v.maxMessage, Subjects: &v.subjects}
	}
	v.shard = state.Shard(t.ID, number)
	if v.gone || v.shard == nil {
		return v
	}
	v.leader, v.epoch, v.minInSync = v.shard.Leader, uint64(v.shard.Epoch), v.shard.MinInSync(spec)
	v.member = slices.Contains(v.shard.Replicas, self)
	if v.restored = v.shard.Generation < state.Generation; v.restored {
		v.leader = ""
		return v
	}
	v.follow = v.member && v.leader != "" && v.leader != self
	if v.leader != self {
		return v
	}
	if before != nil && before.lead {
		v.lead = true
		return v
	}
	if me, ok := state.Broker(self); ok {
		v.lead = slices.Contains(v.shard.InSync, coordination.Replica{Broker: self, Incarnation: me.Incarnation})
	}
	return v
}

// The methods of sender.View.

func (v *view) Gone() bool          { return v.gone }
func (v *view) Served() bool        { return v.unsupported == "" && v.shard != nil }
func (v *view) Leader() string      { return v.leader }
func (v *view) Leads() bool         { return v.lead }
func (v *view) Epoch() uint64       { return v.epoch }
func (v *view) Replicas() int       { return len(v.shard.Replicas) }
func (v *view) NoAck() bool         { return v.noAck }
func (v *view) Keeps(s []byte) bool { return v.subjects.Keep(s) }

func (v *view) Batches() *batching.Topic { return v.batches }
