package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
)

// topicView is the output about a Topic. Another server than Carillon leaves fields absent, and an
// unreachable leader leaves the numbers absent.
type topicView struct {
	Name       string                 `json:"name"`
	ID         string                 `json:"id,omitempty"`
	Generation int64                  `json:"generation,omitempty"`
	Created    time.Time              `json:"created,omitzero"`
	Owner      *admin.Owner           `json:"owner,omitempty"`
	Spec       coordination.TopicSpec `json:"spec"` // durations are nanoseconds
	Deleting   bool                   `json:"deleting,omitempty"`
	statusView
	Shards  []admin.Shard `json:"shards,omitempty"`
	Numbers *topicNumbers `json:"numbers,omitempty"`
	// ShardNumbers are the numbers of each of several shards; null: unknown.
	ShardNumbers  []*topicNumbers `json:"shardNumbers,omitempty"`
	Subscriptions int             `json:"subscriptionCount"`
	// Copies are the copies of each broker that answered, in the order of brokers.
	Copies []admin.TopicCopies `json:"copies,omitempty"`
}

// statusView reports whether it is served. Served is absent if that is unknown.
type statusView struct {
	Served *bool        `json:"served,omitempty"`
	Reason admin.Reason `json:"reason,omitempty"`
	Why    string       `json:"why,omitempty"`
}

type topicNumbers struct {
	Messages  uint64    `json:"messages"`
	Bytes     uint64    `json:"bytes"`
	First     uint64    `json:"first"` // sequence of the oldest message
	Last      uint64    `json:"last"`
	FirstTime time.Time `json:"firstTime,omitzero"`
	LastTime  time.Time `json:"lastTime,omitzero"`
}

// viewTopic combines the answers of both APIs, one of which may be missing.
func viewTopic(declared *admin.Topic, stream *jetstream.StreamInfo) topicView {
	var v topicView
	if declared != nil {
		v = topicView{
			Name: declared.Name, ID: declared.ID, Generation: declared.Generation, Created: declared.Created, Owner: &declared.Owner,
			Spec: declared.Spec, Deleting: declared.Deleting, statusView: viewStatus(declared.Status),
			Shards: declared.Shards, Subscriptions: declared.Subscriptions,
		}
	}
	if stream == nil {
		return v
	}
	if declared == nil {
		v = topicView{Name: stream.Config.Name, Created: stream.Created, Spec: topicSpec(stream.Config), Subscriptions: stream.State.Consumers}
	}
	v.Numbers = numbersOf(stream)
	return v
}

func numbersOf(stream *jetstream.StreamInfo) *topicNumbers {
	n := &topicNumbers{
		Messages: stream.State.Msgs, Bytes: stream.State.Bytes, First: stream.State.FirstSeq, Last: stream.State.LastSeq,
	}
	if stream.State.LastSeq > 0 { // an empty stream has no time
		n.FirstTime, n.LastTime = stream.State.FirstTime, stream.State.LastTime
	}
	return n
}

// text returns the numbers in one line.
func (n *topicNumbers) text() string {
	if n.Messages == 0 {
		return "no messages"
	}
	return fmt.Sprintf("%d messages, %s, #%d to #%d", n.Messages, bytesText(n.Bytes), n.First, n.Last)
}

func viewStatus(s admin.Status) statusView { return statusView{&s.Served, s.Reason, s.Why} }

// topicSpec returns a stream's configuration as a Topic's spec, by the broker's own conversion.
func topicSpec(config jetstream.StreamConfig) coordination.TopicSpec {
	var c jsapi.StreamConfig
	recode(config, &c)
	ownMetadata(c.Metadata)
	return c.TopicSpec()
}

// recode converts between two types with the same JSON.
func recode(from, to any) {
	if data, err := json.Marshal(from); err == nil {
		_ = json.Unmarshal(data, to)
	}
}

// ownMetadata removes the metadata that a server adds about itself.
func ownMetadata(metadata map[string]string) {
	maps.DeleteFunc(metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") })
}

// status returns the text of the last column of lists.
func (v *topicView) status() string {
	if v.Deleting {
		return "deleting"
	}
	return servedStatus(v.Served, v.Reason, v.Owner)
}

// servedStatus returns the status of a durable object in lists. served is nil if unknown.
func servedStatus(served *bool, reason admin.Reason, owner *admin.Owner) string {
	switch {
	case served == nil:
		return "-"
	case !*served:
		return "not served: " + string(reason)
	}
	status := "served"
	if reason == admin.UnderReplicated {
		status += ", under-replicated"
	}
	if owner != nil && owner.Orphaned != nil {
		status += ", orphaned"
	}
	return status
}

// leaders returns the leaders of its shards, each once.
func (v *topicView) leaders() string {
	var names []string
	seen := map[string]bool{}
	for _, shard := range v.Shards {
		if shard.Leader != nil && !seen[shard.Leader.ID] {
			seen[shard.Leader.ID] = true
			names = append(names, brokerText(*shard.Leader))
		}
	}
	return few(names, 2)
}

// brokerText returns a broker's name, or the beginning of its id if the name is unknown.
func brokerText(b admin.Broker) string {
	name := cmp.Or(b.Name, b.ID[:min(len(b.ID), 8)])
	if b.Away || b.Name == "" {
		name += " (away)"
	}
	return name
}

func ownerText(o *admin.Owner) string {
	switch {
	case o == nil:
		return "-"
	case o.Kind == coordination.ManifestOwner:
		return o.Namespace + "/" + o.Name
	case o.Name != "":
		return "client " + o.Name
	}
	return "a client"
}

// few returns the first words, and the number of others.
func few(words []string, most int) string {
	switch {
	case len(words) == 0:
		return "-"
	case len(words) > most:
		return fmt.Sprintf("%s +%d", strings.Join(words[:most], ","), len(words)-most)
	}
	return strings.Join(words, ",")
}

// subscriptionView is the output about a Subscription.
type subscriptionView struct {
	Topic      string                        `json:"topic"`
	Name       string                        `json:"name"`
	Generation int64                         `json:"generation,omitempty"`
	Created    time.Time                     `json:"created,omitzero"`
	Owner      *admin.Owner                  `json:"owner,omitempty"`
	Spec       coordination.SubscriptionSpec `json:"spec"` // durations are nanoseconds
	// Temporary means that it exists in its leader's memory while a client reads.
	Temporary bool `json:"temporary,omitempty"`
	statusView
	Numbers *subscriptionNumbers `json:"numbers,omitempty"`
	// Conditions are those that the status of a manifest would have; absent: no leader told.
	Conditions []conditionView `json:"conditions,omitempty"`
	// Push is the state of the endpoint, for each shard.
	Push []pushView `json:"push,omitempty"`
}

type subscriptionNumbers struct {
	Lag         uint64 `json:"lag"`       // messages not delivered yet
	Pending     int    `json:"pending"`   // delivered, and not acknowledged yet
	Delivered   uint64 `json:"delivered"` // sequence of the last one, in the Topic
	AckFloor    uint64 `json:"ackFloor"`  // all up to this one are acknowledged
	Redelivered int    `json:"redelivered"`
	// DeadLettered counts messages in the dead-letter Topic, since the present leaders lead; GivenUp
	// are those that wait for that.
	DeadLettered int64 `json:"deadLettered,omitempty"`
	// Unjudged counts messages that the condition could not judge, since the present leaders lead;
	// UnjudgedWhy is why it could not judge one of the newest.
	Unjudged    uint64 `json:"unjudged,omitempty"`
	UnjudgedWhy string `json:"unjudgedWhy,omitempty"`
	GivenUp     int64  `json:"givenUp,omitempty"`
	Waiting     int    `json:"waiting"` // requests of clients that wait for messages
	// Members are the clients that read by it, or the endpoint; absent: a broker did not answer.
	Members       *int64     `json:"members,omitempty"`
	LastDelivered *time.Time `json:"lastDelivered,omitempty"`
	LastAck       *time.Time `json:"lastAck,omitempty"`
}

func viewSubscription(declared *admin.Subscription, consumer *jetstream.ConsumerInfo) subscriptionView {
	var v subscriptionView
	if declared != nil {
		v = subscriptionView{
			Topic: declared.Topic, Name: declared.Name, Generation: declared.Generation, Created: declared.Created,
			Owner: &declared.Owner, Spec: declared.Spec, statusView: viewStatus(declared.Status), Temporary: declared.Spec.Consumer.Ephemeral,
		}
	}
	if consumer == nil {
		return v
	}
	if declared == nil {
		v = subscriptionView{
			Topic: consumer.Stream, Name: consumer.Name, Created: consumer.Created, Spec: subscriptionSpec(consumer.Config),
			Temporary: consumer.Config.Durable == "",
		}
	}
	v.Numbers = &subscriptionNumbers{
		Lag: consumer.NumPending, Pending: consumer.NumAckPending, Delivered: consumer.Delivered.Stream, AckFloor: consumer.AckFloor.Stream,
		Redelivered: consumer.NumRedelivered, Waiting: consumer.NumWaiting, LastDelivered: consumer.Delivered.Last, LastAck: consumer.AckFloor.Last,
	}
	return v
}

func subscriptionSpec(config jetstream.ConsumerConfig) coordination.SubscriptionSpec {
	var c jsapi.ConsumerConfig
	recode(config, &c)
	if c.StartTime == nil {
		c.StartTime = &time.Time{} // meaningless without its policy
	}
	ownMetadata(c.Metadata)
	return c.SubscriptionSpec()
}

func (v *subscriptionView) status() string {
	if v.Temporary {
		return "temporary"
	}
	return servedStatus(v.Served, v.Reason, v.Owner)
}
