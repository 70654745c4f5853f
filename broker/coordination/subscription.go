package coordination

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Subscription is a declared durable reader of a Topic.
type Subscription struct {
	Topic      string // id of the Topic
	Name       string
	Spec       *SubscriptionSpec // never changed: equal ones share it
	Generation int64             // 1, and one more with every change of the spec
	Owner      Owner
	Created    time.Time
	Resets     int64 // how often its cursor was reset
	ResetTo    Start // where the last reset has it begin

	Revision int64 // of its key, when it was read
	Made     int64 // create revision of its key: a recreated one has no cursor

	bytes int64 // that it takes in etcd, see clientRoom
	usage usage // that it is of its user's limits
}

// Incarnation is a number that grows when the Subscription is made again or reset: leaders begin a
// new cursor then. Without resets it is Made.
func (s *Subscription) Incarnation() int64 { return s.Made | s.Resets<<madeBits }

// Forgot reports whether an incarnation is that of a later reset of the same Subscription: etcd was
// restored from before it.
func (s *Subscription) Forgot(incarnation int64) bool {
	return incarnation&(1<<madeBits-1) == s.Made && incarnation>>madeBits > s.Resets
}

// Supersedes reports whether an incarnation is that of the same Subscription before its last reset.
func (s *Subscription) Supersedes(incarnation int64) bool {
	return incarnation&(1<<madeBits-1) == s.Made && incarnation>>madeBits < s.Resets
}

// Begin returns where a new cursor begins. It is not changed.
func (s *Subscription) Begin() *Start {
	if s.Resets > 0 {
		return &s.ResetTo
	}
	return &s.Spec.Start
}

// reset notes a reset. After as many as can be counted, it is refused.
func (s *Subscription) reset(what string, to Start) error {
	if s.Resets >= maxResets {
		return &InvalidError{what, fmt.Sprintf("it was reset %d times (delete it and make it again)", s.Resets)}
	}
	s.Resets++
	s.ResetTo = to
	return nil
}

// SubscriptionSpec is the desired state. Comments give the meaning of zero values.
type SubscriptionSpec struct {
	Start          Start            `json:"start,omitzero"`     // immutable
	Subjects       []string         `json:"subjects,omitempty"` // filter; none: all
	Where          string           `json:"where,omitempty"`    // filter, in CEL; empty: all
	Ack            Ack              `json:"ack,omitzero"`
	Push           *Push            `json:"push,omitempty"`           // nil: clients pull
	DeadLetter     string           `json:"deadLetter,omitempty"`     // name of a Topic; empty: none
	DeletionPolicy DeletionPolicy   `json:"deletionPolicy,omitempty"` // empty: Retain
	Rate           int              `json:"rate,omitempty"`           // messages per second, of all shards; 0: any
	Reset          *Reset           `json:"reset,omitempty"`          // each change but to nil resets once
	Consumer       ConsumerSettings `json:"consumer,omitzero"`
}

// Reset moves the cursor once. Only written if all brokers announce FeatureResets, since others
// would ignore it.
type Reset struct {
	ID string `json:"id,omitempty"` // another one repeats a reset
	To Start  `json:"to"`
}

// Start is the start position.
type Start struct {
	From   StartFrom `json:"from,omitempty"` // empty: Latest
	Time   time.Time `json:"time,omitzero"`
	Offset uint64    `json:"offset,omitempty"`
}

// StartFrom is the kind of a start position.
type StartFrom string

// The kinds of start positions.
const (
	FromLatest        StartFrom = "Latest"        // records published after its creation
	FromEarliest      StartFrom = "Earliest"      // the oldest record
	FromTime          StartFrom = "Time"          // the first record not older than Time
	FromOffset        StartFrom = "Offset"        // Offset, in each shard
	FromLast          StartFrom = "Last"          // the newest record; JetStream clients only
	FromLastBySubject StartFrom = "LastBySubject" // the newest of each subject; JetStream clients only
)

// Ack bounds the time, the attempts and the number of pending records.
type Ack struct {
	Policy     AckPolicy       `json:"policy,omitempty"`     // empty: Explicit
	Wait       time.Duration   `json:"wait,omitempty"`       // in nanoseconds; 0: 30 s
	MaxDeliver int             `json:"maxDeliver,omitempty"` // attempts; 0: no limit
	MaxPending int             `json:"maxPending,omitempty"` // 0: 1000; -1: no limit
	Backoff    []time.Duration `json:"backoff,omitempty"`    // in nanoseconds
}

// AckPolicy is which records an ack covers.
type AckPolicy string

// The ack policies.
const (
	AckExplicit AckPolicy = "Explicit" // the acknowledged record
	AckAll      AckPolicy = "All"      // that one and all before it
	AckNone     AckPolicy = "None"     // no acks
)

// ConsumerSettings are settings that only JetStream clients can request.
type ConsumerSettings struct {
	Description       string            `json:"description,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	ReplayOriginal    bool              `json:"replayOriginal,omitempty"`
	HeadersOnly       bool              `json:"headersOnly,omitempty"`
	SampleFrequency   string            `json:"sampleFrequency,omitempty"`
	RateLimit         uint64            `json:"rateLimit,omitempty"` // bits per second; 0: none
	MaxWaiting        int               `json:"maxWaiting,omitempty"`
	MaxBatch          int               `json:"maxBatch,omitempty"`
	MaxBytes          int               `json:"maxBytes,omitempty"`
	MaxExpires        time.Duration     `json:"maxExpires,omitempty"`
	InactiveThreshold time.Duration     `json:"inactiveThreshold,omitempty"`
	Replicas          int               `json:"replicas,omitempty"` // 0: as the Topic
	MemoryStorage     bool              `json:"memoryStorage,omitempty"`
	DeliverSubject    string            `json:"deliverSubject,omitempty"` // empty: clients pull
	DeliverGroup      string            `json:"deliverGroup,omitempty"`   // queue group of its subscribers
	User              string            `json:"user,omitempty"`           // on whose behalf brokers deliver; empty: there were no users
	Maker             string            `json:"maker,omitempty"`          // Owner.User, if it is not in etcd
	FlowControl       bool              `json:"flowControl,omitempty"`
	IdleHeartbeat     time.Duration     `json:"idleHeartbeat,omitempty"`
	PauseUntil        time.Time         `json:"pauseUntil,omitzero"`
	FilterList        bool              `json:"filterList,omitempty"` // shown as a list of one filter
	// PriorityGroups, with their policy: which of the waiting requests are served first. Only written
	// if all brokers announce FeaturePriorities, since others ignore it.
	PriorityGroups  []string       `json:"priorityGroups,omitempty"`
	PriorityPolicy  PriorityPolicy `json:"priorityPolicy,omitempty"`  // empty: none
	PriorityTimeout time.Duration  `json:"priorityTimeout,omitempty"` // of a pinned client
	// Ephemeral: delete it when it was unused for InactiveThreshold. It does not count as declared
	// by a user.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

// PriorityPolicy is how a Subscription chooses among waiting requests.
type PriorityPolicy string

// The priority policies.
const (
	PriorityOverflow    PriorityPolicy = "Overflow"    // requests may ask for a minimum of waiting records
	PriorityPinned      PriorityPolicy = "Pinned"      // one client is served until it is silent
	PriorityPrioritized PriorityPolicy = "Prioritized" // requests with the lowest number come first
)

const (
	// maxSubscriptionName is the longest name of a consumer for JetStream clients.
	maxSubscriptionName = 255
	// MaxFilterSubjects, maxWhere, maxBackoffs and maxURL bound the work per record, and the value.
	// Filters are also compared two by two. JetStream clients may name more backoffs than manifests.
	MaxFilterSubjects = 64
	maxWhere          = 4096
	maxBackoffs       = 64
	maxURL            = 2048
	// madeBits is how many bits of an incarnation are the revision: enough for 500 years of a thousand
	// writes a second. What is left is for a quarter of a million resets.
	madeBits = 44
	// maxResets is that number.
	maxResets = 1<<(62-madeBits) - 1
	// maxResetID is the longest name of a reset.
	maxResetID = 128
)

type subscriptionValue struct {
	V          int             `json:"v"`
	Spec       json.RawMessage `json:"spec"` // a SubscriptionSpec
	Generation int64           `json:"generation"`
	Owner      Owner           `json:"owner"`
	Created    time.Time       `json:"created"`
	Resets     int64           `json:"resets,omitempty"`
	ResetTo    Start           `json:"resetTo,omitzero"`
}

// A value with resets is of version 2: an earlier program would drop them, and begin at the start.
const (
	subscriptionValueVersion = 1
	subscriptionResetVersion = 2
)

func (c *Client) allSubscriptions() string { return c.prefix + "subscriptions/" }

func (c *Client) subscriptionsPrefix(topic string) string { return c.allSubscriptions() + topic + "/" }

func (c *Client) subscriptionKey(topic, name string) string {
	return c.subscriptionsPrefix(topic) + name
}

func (s *Subscription) encode() (string, error) {
	version := subscriptionValueVersion
	if s.Resets > 0 {
		version = subscriptionResetVersion
	}
	spec, err := encodeValue("subscription "+s.Name, s.Spec)
	if err != nil {
		return "", err
	}
	return encodeValue("subscription "+s.Name, subscriptionValue{version, json.RawMessage(spec), s.Generation, s.Owner, s.Created, s.Resets, s.ResetTo})
}

func (c *Client) decodeSubscription(kv *mvccpb.KeyValue) (*Subscription, error) {
	topic, name, _ := strings.Cut(strings.TrimPrefix(string(kv.GetKey()), c.allSubscriptions()), "/")
	s := &Subscription{Topic: topic, Name: name, Revision: kv.GetModRevision(), Made: kv.GetCreateRevision()}
	var value subscriptionValue
	if err := decodeValue("subscription "+name, kv.GetValue(), subscriptionResetVersion, &value, &value.V); err != nil {
		return nil, err
	}
	spec, why, err := c.specs.decode(value.Spec)
	if err != nil {
		return nil, fmt.Errorf("decode subscription %s: %w", name, err)
	}
	if why := firstUnknown(validName(name, maxSubscriptionName), why); why != "" || !validID(topic) {
		return nil, fmt.Errorf("decode subscription %s of topic id %q: %s", name, topic, why)
	}
	s.Spec, s.Generation, s.Owner, s.Created = spec, value.Generation, value.Owner, value.Created
	s.Resets, s.ResetTo = value.Resets, value.ResetTo
	s.bytes, s.usage = s.room(string(kv.GetKey()), len(kv.GetValue())), s.uses()
	return s, nil
}

// valid returns why a start position can't be, or "".
func (s *Start) valid() string {
	switch {
	case (s.From == FromTime) == s.Time.IsZero():
		return "by Time goes with a time, and nothing else does"
	case s.From != FromOffset && s.Offset != 0:
		return "by Offset goes with an offset, and nothing else does"
	}
	return ""
}

func (r *Reset) valid() string {
	switch r.To.From {
	case FromLatest, FromEarliest, FromTime, FromOffset:
	default:
		return fmt.Sprintf("to %q is not possible (use Earliest, Latest, Time or Offset)", r.To.From)
	}
	if len(r.ID) > maxResetID {
		return fmt.Sprintf("with an id of %d bytes (use at most %d)", len(r.ID), maxResetID)
	}
	return r.To.valid()
}

func (s *SubscriptionSpec) valid() string {
	if len(s.Subjects) > MaxFilterSubjects {
		return fmt.Sprintf("%d filter subjects (use wildcards, and at most %d)", len(s.Subjects), MaxFilterSubjects)
	}
	for i, a := range s.Subjects {
		if !subject.ValidPattern([]byte(a)) || len(a) > maxSubject {
			return fmt.Sprintf("filter %q is not a subject of at most %d bytes (write tokens with dots between them, * for one token, > at the end for the rest)", a, maxSubject)
		}
		for _, b := range s.Subjects[:i] {
			if subject.Overlap(a, b) {
				return fmt.Sprintf("its filters %q and %q overlap (keep the wider one, or make them distinct)", b, a)
			}
		}
	}
	switch {
	case len(s.Where) > maxWhere:
		return fmt.Sprintf("an expression of %d bytes (use at most %d)", len(s.Where), maxWhere)
	case s.Ack.Wait < 0 || s.Ack.MaxDeliver < 0 || s.Ack.MaxPending < -1:
		return "a negative bound of acks (leave it out to have the default)"
	case len(s.Ack.Backoff) > maxBackoffs:
		return fmt.Sprintf("%d backoffs (use at most %d; the last holds for all that follow)", len(s.Ack.Backoff), maxBackoffs)
	case s.Rate < 0:
		return "a negative rate (leave it out to have none)"
	case s.Start.valid() != "":
		return "start " + s.Start.valid()
	case s.Reset != nil && s.Reset.valid() != "":
		return "reset " + s.Reset.valid()
	case s.Consumer.DeliverSubject != "" && (!subject.Valid([]byte(s.Consumer.DeliverSubject)) || len(s.Consumer.DeliverSubject) > maxSubject):
		return fmt.Sprintf("it delivers to %.300q, which is not a subject without wildcards of at most %d bytes", s.Consumer.DeliverSubject, maxSubject)
	case s.DeletionPolicy == DeleteIfEmpty:
		return "deletionPolicy DeleteIfEmpty is for topics (write Retain or Delete)"
	}
	for _, pause := range s.Ack.Backoff {
		if pause < 0 {
			return "a negative backoff (write for example 1s)"
		}
	}
	if why := s.Push.valid(); why != "" {
		return why
	}
	if s.DeadLetter != "" {
		if why := validTopicName(s.DeadLetter); why != "" {
			return "dead letters: " + why
		}
	}
	return firstUnknown(
		choice("start", s.Start.From, FromLatest, FromEarliest, FromTime, FromOffset, FromLast, FromLastBySubject),
		choice("ack policy", s.Ack.Policy, AckExplicit, AckAll, AckNone),
		choice("deletionPolicy", s.DeletionPolicy, Retain, DeleteIfEmpty, Delete),
		choice("priority policy", s.Consumer.PriorityPolicy, PriorityOverflow, PriorityPinned, PriorityPrioritized),
	)
}
