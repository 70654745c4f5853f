package advisory

import (
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
)

// Subjects is the pattern of all advisories and metrics.
const Subjects = "$JS.EVENT.>"

const (
	advisoryPrefix = "$JS.EVENT.ADVISORY."
	typePrefix     = "io.nats.jetstream.advisory.v1."
)

// head is the first part of every advisory.
type head struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

// Action is what happened to a stream or a consumer.
type Action string

// The actions.
const (
	Created Action = "create"
	Changed Action = "modify"
	Deleted Action = "delete"
)

// words are the subjects' words for actions.
var words = map[Action]string{Created: "CREATED", Changed: "UPDATED", Deleted: "DELETED"}

type audit struct {
	head
	Server   string `json:"server"`
	Client   client `json:"client"`
	Subject  string `json:"subject"`
	Request  string `json:"request,omitempty"`
	Response string `json:"response"`
}

// client stands for the client of an API call. Calls may come from another broker, so all that is
// known of it is its account.
type client struct {
	Account string `json:"acc"`
}

// account is the name of nats-server's only account without configuration.
const account = "$G"

type streamAction struct {
	head
	Stream string `json:"stream"`
	Action Action `json:"action"`
}

type consumerAction struct {
	head
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Action   Action `json:"action"`
}

type consumerPause struct {
	head
	Stream   string    `json:"stream"`
	Consumer string    `json:"consumer"`
	Paused   bool      `json:"paused"`
	Until    time.Time `json:"pause_until"`
}

type streamLeader struct {
	head
	Stream   string            `json:"stream"`
	Leader   string            `json:"leader"`
	Replicas []*jsapi.PeerInfo `json:"replicas"`
}

// Message is a message as one delivery of it to a consumer. Sequence counts the consumer's
// deliveries.
type Message struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"consumer_seq,omitempty"`
	Offset     uint64 `json:"stream_seq"`
	Deliveries uint64 `json:"deliveries"`
}

type messageEvent struct {
	head
	Message
	Reason string `json:"reason,omitempty"`
}

type ackMetric struct {
	head
	Message
	Delay int64 `json:"ack_time"` // nanoseconds
}

type groupPinned struct {
	head
	Account  string `json:"account"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Group    string `json:"group"`
	Pin      string `json:"pinned_id"`
}

type groupUnpinned struct {
	head
	Account  string      `json:"account"`
	Stream   string      `json:"stream"`
	Consumer string      `json:"consumer"`
	Group    string      `json:"group"`
	Reason   UnpinReason `json:"reason"`
}

// UnpinReason is why a client was unpinned.
type UnpinReason string

// The reasons.
const (
	ByAdmin   UnpinReason = "admin"   // a call
	ByTimeout UnpinReason = "timeout" // the client requested nothing
)

type batchAbandoned struct {
	head
	Account string `json:"account"`
	Stream  string `json:"stream"`
	Batch   string `json:"batch"`
	Reason  string `json:"reason"`
}

// Abandoned reports that an atomic batch ended without a commit.
func (p *Publisher) Abandoned(stream, batch, reason string) {
	p.publish(advisoryPrefix+"STREAM.BATCH_ABANDONED."+stream, len(stream)+len(batch), func(h head) any {
		return &batchAbandoned{h.of(typePrefix + "stream_batch_abandoned"), account, stream, batch, reason}
	})
}

// Audit reports an answered API call. It keeps the slices.
func (p *Publisher) Audit(subject, request, response []byte) {
	p.publish(advisoryPrefix+"API", len(subject)+len(request)+len(response), func(h head) any {
		return &audit{
			head: h.of(typePrefix + "api_audit"), Server: p.server, Client: client{account},
			Subject: string(subject), Request: string(request), Response: string(response),
		}
	})
}

// Stream reports that a stream was created, changed or deleted.
func (p *Publisher) Stream(stream string, action Action) {
	p.publish(advisoryPrefix+"STREAM."+words[action]+"."+stream, len(stream), func(h head) any {
		return &streamAction{h.of(typePrefix + "stream_action"), stream, action}
	})
}

// Consumer reports that a consumer was created or deleted.
func (p *Publisher) Consumer(stream, consumer string, action Action) {
	p.publish(advisoryPrefix+"CONSUMER."+words[action]+"."+stream+"."+consumer, len(stream)+len(consumer), func(h head) any {
		return &consumerAction{h.of(typePrefix + "consumer_action"), stream, consumer, action}
	})
}

// Paused reports that a client paused a consumer until a time, or ended a pause.
func (p *Publisher) Paused(stream, consumer string, paused bool, until time.Time) {
	p.publish(advisoryPrefix+"CONSUMER.PAUSE."+stream+"."+consumer, len(stream)+len(consumer), func(h head) any {
		return &consumerPause{h.of(typePrefix + "consumer_pause"), stream, consumer, paused, until.UTC()}
	})
}

// Pinned reports that a client of a priority group is served alone.
func (p *Publisher) Pinned(stream, consumer, group, pin string) {
	p.publish(advisoryPrefix+"CONSUMER.PINNED."+stream+"."+consumer, len(stream)+len(consumer), func(h head) any {
		return &groupPinned{h.of(typePrefix + "consumer_group_pinned"), account, stream, consumer, group, pin}
	})
}

// Unpinned reports that no client of a priority group is pinned any more.
func (p *Publisher) Unpinned(stream, consumer, group string, why UnpinReason) {
	p.publish(advisoryPrefix+"CONSUMER.UNPINNED."+stream+"."+consumer, len(stream)+len(consumer), func(h head) any {
		return &groupUnpinned{h.of(typePrefix + "consumer_group_unpinned"), account, stream, consumer, group, why}
	})
}

// Elected reports that a replicated stream has a new leader. replicas is called in the background.
func (p *Publisher) Elected(stream string, replicas func() *jsapi.ClusterInfo) {
	p.publish(advisoryPrefix+"STREAM.LEADER_ELECTED."+stream, len(stream), func(h head) any {
		is := replicas()
		return &streamLeader{h.of(typePrefix + "stream_leader_elected"), stream, is.Leader, is.Replicas}
	})
}

// Exhausted reports that a message was delivered as often as its consumer permits, and never acked.
func (p *Publisher) Exhausted(m Message) {
	m.Sequence = 0 // as with nats-server: it is about all deliveries
	p.message("CONSUMER.MAX_DELIVERIES.", "max_deliver", m, "")
}

// Refused reports that a client asked for another delivery.
func (p *Publisher) Refused(m Message) { p.message("CONSUMER.MSG_NAKED.", "nak", m, "") }

// Terminated reports that a client asked for no more deliveries.
func (p *Publisher) Terminated(m Message, reason string) {
	p.message("CONSUMER.MSG_TERMINATED.", "terminated", m, reason)
}

func (p *Publisher) message(subject, kind string, m Message, reason string) {
	p.publish(advisoryPrefix+subject+m.Stream+"."+m.Consumer, len(m.Stream)+len(m.Consumer)+len(reason), func(h head) any {
		return &messageEvent{h.of(typePrefix + kind), m, reason}
	})
}

// Acked reports a sampled ack, and how long after its delivery it came.
func (p *Publisher) Acked(m Message, after time.Duration) {
	p.publish("$JS.EVENT.METRIC.CONSUMER.ACK."+m.Stream+"."+m.Consumer, len(m.Stream)+len(m.Consumer), func(h head) any {
		return &ackMetric{h.of("io.nats.jetstream.metric.v1.consumer_ack"), m, int64(after)}
	})
}
