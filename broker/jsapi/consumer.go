package jsapi

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/subject"
)

// ConsumerConfig is the configuration of a consumer, as clients request it and see it.
type ConsumerConfig struct {
	Durable            string            `json:"durable_name,omitempty"`
	Name               string            `json:"name,omitempty"`
	Description        string            `json:"description,omitempty"`
	DeliverPolicy      string            `json:"deliver_policy"`
	StartSequence      uint64            `json:"opt_start_seq,omitempty"`
	StartTime          *time.Time        `json:"opt_start_time,omitempty"`
	AckPolicy          string            `json:"ack_policy"`
	AckWait            time.Duration     `json:"ack_wait,omitempty"`
	MaxDeliver         int               `json:"max_deliver,omitempty"`
	Backoff            []time.Duration   `json:"backoff,omitempty"`
	FilterSubject      string            `json:"filter_subject,omitempty"`
	FilterSubjects     []string          `json:"filter_subjects,omitempty"`
	ReplayPolicy       string            `json:"replay_policy"`
	RateLimit          uint64            `json:"rate_limit_bps,omitempty"`
	SampleFrequency    string            `json:"sample_freq,omitempty"`
	MaxWaiting         int               `json:"max_waiting,omitempty"`
	MaxAckPending      int               `json:"max_ack_pending,omitempty"`
	FlowControl        bool              `json:"flow_control,omitempty"`
	HeadersOnly        bool              `json:"headers_only,omitempty"`
	MaxRequestBatch    int               `json:"max_batch,omitempty"`
	MaxRequestExpires  time.Duration     `json:"max_expires,omitempty"`
	MaxRequestMaxBytes int               `json:"max_bytes,omitempty"`
	DeliverSubject     string            `json:"deliver_subject,omitempty"`
	DeliverGroup       string            `json:"deliver_group,omitempty"`
	Heartbeat          time.Duration     `json:"idle_heartbeat,omitempty"`
	InactiveThreshold  time.Duration     `json:"inactive_threshold,omitempty"`
	Replicas           int               `json:"num_replicas"`
	MemoryStorage      bool              `json:"mem_storage,omitempty"`
	Direct             bool              `json:"direct,omitempty"`
	Sourcing           bool              `json:"sourcing,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	PauseUntil         *time.Time        `json:"pause_until,omitempty"`
	PriorityGroups     []string          `json:"priority_groups,omitempty"`
	PriorityPolicy     string            `json:"priority_policy,omitempty"`
	PriorityTimeout    time.Duration     `json:"priority_timeout,omitempty"`
}

// ConsumerRequest is the payload of a ConsumerCreate and a ConsumerDurable.
type ConsumerRequest struct {
	Stream   string         `json:"stream_name"`
	Config   ConsumerConfig `json:"config"`
	Action   ConsumerAction `json:"action,omitempty"`
	Pedantic bool           `json:"pedantic,omitempty"`

	// NoThreshold: the request has no inactive_threshold, whatever Normalize made of that.
	NoThreshold bool `json:"-"`
	// User is who asks; empty: there are no users.
	User string `json:"-"`
}

// SubscriptionSpec returns the Subscription of the requested consumer, which delivers on behalf of
// the user.
func (r *ConsumerRequest) SubscriptionSpec() coordination.SubscriptionSpec {
	spec := r.Config.SubscriptionSpec()
	if spec.Consumer.DeliverSubject != "" {
		spec.Consumer.User = r.User
	}
	return spec
}

// ConsumerAction reports whether the consumer must exist, must not exist, or may.
type ConsumerAction string

// The actions.
const (
	CreateOrUpdateConsumer ConsumerAction = ""
	CreateConsumer         ConsumerAction = "create" // an equal existing one is accepted
	UpdateConsumer         ConsumerAction = "update"
)

// Values of policies, as in JSON. The first of each is the default.
const (
	DeliverAll, deliverLast, deliverNew = "all", "last", "new"
	DeliverFromSequence                 = "by_start_sequence"
	deliverFromTime                     = "by_start_time"
	deliverLastBySubject                = "last_per_subject"

	ackNone, ackAll, AckExplicit, ackFlowControl = "none", "all", "explicit", "flow_control"
	replayInstant, replayOriginal                = "instant", "original"
	priorityNone, priorityOverflow               = "none", "overflow"
	priorityPinned, priorityPrioritized          = "pinned_client", "prioritized"
)

// Defaults and bounds of nats-server.
const (
	defaultAckWait    = 30 * time.Second
	defaultAckPending = 1000
	DefaultMaxWaiting = 512
	// DefaultInactiveThreshold is how long a consumer without a durable name lives after its last
	// request.
	DefaultInactiveThreshold = 5 * time.Second
	minExpires               = time.Millisecond
)

// unsupportedConsumer are the settings that Carillon does not support yet, as unsupportedStream
// does for streams.
var unsupportedConsumer = []struct {
	setting string
	asked   func(*ConsumerConfig) bool
}{
	{"ack_policy: flow_control", func(c *ConsumerConfig) bool { return c.AckPolicy == ackFlowControl }},
	{"direct", func(c *ConsumerConfig) bool { return c.Direct }},
	{"sourcing", func(c *ConsumerConfig) bool { return c.Sourcing }},
}

// CheckSubject checks the request against the subject that it came on, and sets the consumer's name
// from it.
func (r *ConsumerRequest) CheckSubject(to *Request) *Error {
	c := &r.Config
	name, filter := string(to.Consumer), string(to.Filter)
	switch {
	case r.Stream != string(to.Stream):
		return ErrStreamMismatch
	case r.Action != CreateOrUpdateConsumer && r.Action != CreateConsumer && r.Action != UpdateConsumer:
		return ErrInvalidJSON.With(fmt.Sprintf("unknown consumer action: %q", string(r.Action)))
	case containsSeparator(name):
		return ErrConsumerNameContainsPathSeparators
	case to.Call == ConsumerDurable && c.Durable == "":
		return ErrConsumerDurableNameNotSet
	case name != "" && c.Durable != "" && c.Durable != name:
		return ErrConsumerDurableNameNotMatchSubject
	case name == "" && c.Durable != "":
		return ErrConsumerEphemeralWithDurableName
	case filter != "" && len(c.FilterSubjects) > 0:
		return ErrConsumerMultipleFiltersNotAllowed
	case filter != "" && c.FilterSubject != filter:
		return ErrConsumerCreateFilterSubjectMismatch
	}
	if name != "" {
		c.Name = name
	}
	return nil
}

func containsSeparator(name string) bool {
	return slices.ContainsFunc([]byte(name), func(b byte) bool { return b == '/' || b == '\\' })
}

// Normalize checks the configuration of a consumer of the stream, and fills in defaults, as
// nats-server does. The caller has set the name, if need be to a generated one.
func (c *ConsumerConfig) Normalize(stream *StreamConfig) *Error {
	if why := assetName("consumer", c.Name); why != "" {
		return ErrStreamInvalidConfig.With(why)
	}
	if c.Durable != "" && c.Durable != c.Name {
		return ErrConsumerCreateDurableAndNameMismatch
	}
	for _, word := range []struct {
		value *string
		wrong *Error
		of    []string
	}{
		{&c.DeliverPolicy, ErrConsumerInvalidPolicy.With("consumer deliver policy invalid"), []string{DeliverAll, deliverLast, deliverNew, DeliverFromSequence, deliverFromTime, deliverLastBySubject}},
		{&c.AckPolicy, ErrConsumerAckPolicyInvalid, []string{ackNone, ackAll, AckExplicit, ackFlowControl}},
		{&c.ReplayPolicy, ErrConsumerReplayPolicyInvalid, []string{replayInstant, replayOriginal}},
		{&c.PriorityPolicy, ErrConsumerInvalidPolicy.With("consumer priority policy invalid"), []string{priorityNone, priorityOverflow, priorityPinned, priorityPrioritized}},
	} {
		if !normalizeChoice(word.value, word.of...) {
			return word.wrong
		}
	}
	for _, feature := range unsupportedConsumer {
		if feature.asked(c) {
			return ErrConsumerCreate.With(feature.setting + " is not supported yet")
		}
	}
	if err := c.normalizePriorities(); err != nil {
		return err
	}
	if c.PauseUntil != nil {
		c.PauseUntil = optionalTime(*c.PauseUntil)
	}
	if err := c.normalizeText(); err != nil {
		return err
	}
	if err := c.normalizeBounds(stream); err != nil {
		return err
	}
	if err := c.checkFilters(); err != nil {
		return err
	}
	return c.checkStart()
}

func (c *ConsumerConfig) normalizeText() (err *Error) {
	if len(c.Description) > maxDescription {
		return ErrConsumerDescriptionTooLong.With(maxDescription)
	}
	if metadataSize(c.Metadata) > maxMetadata {
		return ErrConsumerMetadataLength.With(fmt.Sprintf("%dKB", maxMetadata>>10))
	}
	c.Metadata, err = userMetadata(c.Metadata)
	return err
}

func (c *ConsumerConfig) normalizeBounds(stream *StreamConfig) *Error {
	switch {
	case c.Replicas < 0:
		return ErrReplicasCountCannotBeNegative
	case c.Replicas > stream.Replicas:
		return ErrConsumerReplicasExceedsStream
	case stream.RemovesAcked() && c.Replicas != 0 && c.Replicas != stream.Replicas:
		return ErrConsumerReplicasShouldMatchStream
	case c.AckWait < 0:
		return ErrConsumerAckWaitNegative
	case slices.ContainsFunc(c.Backoff, func(pause time.Duration) bool { return pause < 0 }):
		return ErrConsumerBackOffNegative
	}
	if _, err := SamplePercent(c.SampleFrequency); err != nil {
		return ErrConsumerInvalidSampling.With(err)
	}
	if c.Replicas > 0 { // the cursor has as many replicas as its stream
		c.Replicas = stream.Replicas
	}
	c.Heartbeat, c.MaxWaiting = max(c.Heartbeat, 0), max(c.MaxWaiting, 0)
	c.MaxRequestBatch, c.MaxRequestMaxBytes = max(c.MaxRequestBatch, 0), max(c.MaxRequestMaxBytes, 0)
	c.MaxRequestExpires, c.InactiveThreshold = max(c.MaxRequestExpires, 0), max(c.InactiveThreshold, 0)
	unlimited(&c.MaxDeliver)
	if c.AckWait == 0 && c.AckPolicy != ackNone {
		c.AckWait = defaultAckWait
	}
	if len(c.Backoff) > 0 {
		c.AckWait = c.Backoff[0]
		if c.MaxDeliver != -1 && len(c.Backoff) > c.MaxDeliver {
			return ErrConsumerMaxDeliverBackoff
		}
	}
	if err := c.normalizePending(&stream.ConsumerLimits); err != nil {
		return err
	}
	if c.DeliverSubject != "" {
		return c.checkPush(stream)
	}
	return c.normalizePull(stream)
}

func (c *ConsumerConfig) normalizePending(limits *ConsumerLimits) *Error {
	c.MaxAckPending = max(c.MaxAckPending, -1)
	if c.MaxAckPending == 0 {
		c.MaxAckPending = limits.MaxAckPending
	}
	if c.MaxAckPending == 0 && c.AckPolicy != ackNone {
		c.MaxAckPending = defaultAckPending
	}
	if c.InactiveThreshold == 0 {
		c.InactiveThreshold = limits.InactiveThreshold
	}
	if limits.MaxAckPending > 0 && c.MaxAckPending > limits.MaxAckPending {
		return ErrConsumerMaxPendingAckExcess.With(limits.MaxAckPending)
	}
	if limits.InactiveThreshold > 0 && c.InactiveThreshold > limits.InactiveThreshold {
		return ErrConsumerInactiveThresholdExcess.With(limits.InactiveThreshold)
	}
	if c.InactiveThreshold == 0 && c.Durable == "" {
		c.InactiveThreshold = DefaultInactiveThreshold
	}
	return nil
}

// Filters returns the patterns of the delivered subjects. None means all.
func (c *ConsumerConfig) Filters() []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

func (c *ConsumerConfig) checkFilters() *Error {
	if c.FilterSubject != "" && len(c.FilterSubjects) > 0 {
		return ErrConsumerDuplicateFilterSubjects
	}
	if where, ok := c.Metadata[coordination.WhereMetadata]; ok {
		if _, err := filter.Shared(where); err != nil {
			return ErrConsumerCreate.With(fmt.Sprintf("metadata %s: %v", coordination.WhereMetadata, err))
		}
	}
	filters := c.Filters()
	if n := len(filters); n > coordination.MaxFilterSubjects { // which takes seconds to compare
		return ErrConsumerCreate.With(fmt.Sprintf("%d filter subjects (use wildcards, and at most %d)", n, coordination.MaxFilterSubjects))
	}
	for i, f := range filters {
		if f == "" {
			return ErrConsumerEmptyFilter
		}
		if !subject.ValidPattern([]byte(f)) {
			return ErrStreamInvalidConfig.With("invalid subject")
		}
		for _, other := range filters[:i] {
			if subject.Overlap(f, other) {
				return ErrConsumerOverlappingSubjectFilters
			}
		}
	}
	return nil
}

// checkStart checks the optional start against the deliver policy, and bounds a start time.
func (c *ConsumerConfig) checkStart() *Error {
	const also, missing = "consumer delivery policy is deliver %s, but optional start %s is also set", "consumer delivery policy is deliver %s, but optional %s is not set"
	policy := map[string]string{
		DeliverAll: "all", deliverLast: "last", deliverNew: "new", deliverLastBySubject: "last per subject",
		DeliverFromSequence: "by start sequence", deliverFromTime: "by start time",
	}[c.DeliverPolicy]
	bySequence, byTime := c.DeliverPolicy == DeliverFromSequence, c.DeliverPolicy == deliverFromTime
	switch {
	case bySequence && c.StartSequence == 0:
		return ErrConsumerInvalidPolicy.With(fmt.Sprintf(missing, policy, "start sequence"))
	case byTime && c.StartTime == nil:
		return ErrConsumerInvalidPolicy.With(fmt.Sprintf(missing, policy, "start time"))
	case !bySequence && c.StartSequence > 0:
		return ErrConsumerInvalidPolicy.With(fmt.Sprintf(also, policy, "sequence"))
	case !byTime && c.StartTime != nil:
		return ErrConsumerInvalidPolicy.With(fmt.Sprintf(also, policy, "time"))
	case c.DeliverPolicy == deliverLastBySubject && len(c.Filters()) == 0:
		return ErrConsumerInvalidPolicy.With(fmt.Sprintf(missing, policy, "filter subject"))
	case byTime:
		start := RecordTime(*c.StartTime)
		c.StartTime = &start
	}
	return nil
}

// RecordTime returns the time nearest to t that a record can have: records have nanoseconds since
// 1970. Some clients send the year 1 for "from the start".
func RecordTime(t time.Time) time.Time {
	if first := time.Unix(0, 0); t.Before(first) {
		return first.UTC()
	}
	if last := time.Unix(0, math.MaxInt64); t.After(last) {
		return last.UTC()
	}
	return t
}

// SubscriptionSpec returns the Subscription of a consumer. The configuration must be normalized.
// A consumer without a durable name is not in etcd, unless it reads a Topic with several shards.
func (c *ConsumerConfig) SubscriptionSpec() coordination.SubscriptionSpec {
	spec := coordination.SubscriptionSpec{
		Start:    coordination.Start{From: coordination.FromEarliest},
		Subjects: c.Filters(),
		Ack: coordination.Ack{
			Policy: coordination.AckExplicit, Wait: c.AckWait, MaxDeliver: max(c.MaxDeliver, 0),
			MaxPending: c.MaxAckPending, Backoff: c.Backoff,
		},
		Consumer: coordination.ConsumerSettings{
			DeliverSubject:    c.DeliverSubject,
			DeliverGroup:      c.DeliverGroup,
			FlowControl:       c.FlowControl,
			IdleHeartbeat:     c.Heartbeat,
			RateLimit:         c.RateLimit,
			Description:       c.Description,
			Metadata:          c.Metadata,
			HeadersOnly:       c.HeadersOnly,
			MaxWaiting:        c.MaxWaiting,
			MaxBatch:          c.MaxRequestBatch,
			MaxBytes:          c.MaxRequestMaxBytes,
			MaxExpires:        c.MaxRequestExpires,
			InactiveThreshold: c.InactiveThreshold,
			Replicas:          c.Replicas,
			MemoryStorage:     c.MemoryStorage,
			FilterList:        len(c.FilterSubjects) == 1,
			Ephemeral:         c.Durable == "",
			ReplayOriginal:    c.ReplayPolicy == replayOriginal,
			SampleFrequency:   c.SampleFrequency,
			PriorityGroups:    c.PriorityGroups,
			PriorityPolicy:    priorityPolicies[c.PriorityPolicy],
			PriorityTimeout:   c.PriorityTimeout,
		},
	}
	spec.Where, spec.Consumer.Metadata = splitWhere(c.Metadata)
	if c.PauseUntil != nil {
		spec.Consumer.PauseUntil = *c.PauseUntil
	}
	switch c.DeliverPolicy {
	case deliverLast:
		spec.Start.From = coordination.FromLast
	case deliverNew:
		spec.Start.From = coordination.FromLatest
	case deliverLastBySubject:
		spec.Start.From = coordination.FromLastBySubject
	case DeliverFromSequence:
		spec.Start = coordination.Start{From: coordination.FromOffset, Offset: c.StartSequence}
	case deliverFromTime:
		spec.Start = coordination.Start{From: coordination.FromTime, Time: *c.StartTime}
	}
	switch c.AckPolicy {
	case ackNone:
		spec.Ack.Policy = coordination.AckNone
	case ackAll:
		spec.Ack.Policy = coordination.AckAll
	}
	return spec
}

// ConsumerOf returns the consumer configuration that clients see for a Subscription, whoever
// declared it. Its condition is in the metadata. Dead letters cannot be expressed in JetStream.
func ConsumerOf(name string, spec *coordination.SubscriptionSpec) ConsumerConfig {
	s := &spec.Consumer
	c := ConsumerConfig{
		Name:               name,
		Description:        s.Description,
		DeliverPolicy:      deliverNew,
		AckPolicy:          AckExplicit,
		AckWait:            spec.Ack.Wait,
		MaxDeliver:         spec.Ack.MaxDeliver,
		Backoff:            spec.Ack.Backoff,
		ReplayPolicy:       replayInstant,
		MaxWaiting:         s.MaxWaiting,
		MaxAckPending:      spec.Ack.MaxPending,
		HeadersOnly:        s.HeadersOnly,
		MaxRequestBatch:    s.MaxBatch,
		MaxRequestExpires:  s.MaxExpires,
		MaxRequestMaxBytes: s.MaxBytes,
		InactiveThreshold:  s.InactiveThreshold,
		Replicas:           s.Replicas,
		MemoryStorage:      s.MemoryStorage,
		Metadata:           joinWhere(s.Metadata, spec.Where),
		DeliverSubject:     s.DeliverSubject,
		DeliverGroup:       s.DeliverGroup,
		FlowControl:        s.FlowControl,
		Heartbeat:          s.IdleHeartbeat,
		RateLimit:          s.RateLimit,
		SampleFrequency:    s.SampleFrequency,
		PauseUntil:         optionalTime(s.PauseUntil),
		PriorityGroups:     s.PriorityGroups,
		PriorityTimeout:    s.PriorityTimeout,
	}
	for shown, policy := range priorityPolicies {
		if s.PriorityPolicy == policy {
			c.PriorityPolicy = shown
		}
	}
	if s.ReplayOriginal {
		c.ReplayPolicy = replayOriginal
	}
	if !s.Ephemeral {
		c.Durable = name
	}
	switch spec.Start.From {
	case coordination.FromEarliest:
		c.DeliverPolicy = DeliverAll
	case coordination.FromLast:
		c.DeliverPolicy = deliverLast
	case coordination.FromLastBySubject:
		c.DeliverPolicy = deliverLastBySubject
	case coordination.FromOffset:
		// A manifest may write offset 0 for the beginning. Sequences begin at 1.
		c.DeliverPolicy, c.StartSequence = DeliverFromSequence, max(spec.Start.Offset, 1)
	case coordination.FromTime:
		start := spec.Start.Time
		c.DeliverPolicy, c.StartTime = deliverFromTime, &start
	}
	switch spec.Ack.Policy {
	case coordination.AckNone:
		c.AckPolicy = ackNone
	case coordination.AckAll:
		c.AckPolicy = ackAll
	}
	if len(spec.Subjects) == 1 && !s.FilterList {
		c.FilterSubject = spec.Subjects[0]
	} else {
		c.FilterSubjects = spec.Subjects
	}
	if c.MaxWaiting == 0 && c.DeliverSubject == "" {
		c.MaxWaiting = DefaultMaxWaiting
	}
	unlimited(&c.MaxDeliver)
	if c.AckPolicy != ackNone {
		if c.AckWait == 0 {
			c.AckWait = defaultAckWait
		}
		if c.MaxAckPending == 0 {
			c.MaxAckPending = defaultAckPending
		}
	}
	return c
}

// splitWhere returns the condition that metadata names, and the rest of the metadata.
func splitWhere(metadata map[string]string) (where string, rest map[string]string) {
	where, ok := metadata[coordination.WhereMetadata]
	if !ok {
		return "", metadata
	}
	if len(metadata) > 1 {
		rest = maps.Clone(metadata)
		delete(rest, coordination.WhereMetadata)
	}
	return where, rest
}

// joinWhere returns metadata with a condition, as clients see it.
func joinWhere(metadata map[string]string, where string) map[string]string {
	if where == "" {
		return metadata
	}
	joined := make(map[string]string, len(metadata)+1)
	maps.Copy(joined, metadata)
	joined[coordination.WhereMetadata] = where
	return joined
}

// CheckUpdate reports whether an existing consumer equals the requested one, or why it cannot be
// changed to it. Both configurations are normalized.
func (r *ConsumerRequest) CheckUpdate(is *ConsumerConfig) (same bool, _ *Error) {
	r.stayDurable(is)
	switch refusal := CheckConsumerUpdate(is, &r.Config); {
	case is.Equal(&r.Config):
		return true, nil
	case r.Action == CreateConsumer:
		return false, ErrConsumerAlreadyExists
	case refusal != nil:
		return false, refusal
	}
	return false, nil
}

// stayDurable completes a change of a durable consumer that gives its name only.
func (r *ConsumerRequest) stayDurable(is *ConsumerConfig) {
	c := &r.Config
	if r.Action == CreateConsumer || is.Durable == "" || c.Durable != "" {
		return
	}
	c.Durable = is.Durable
	if r.NoThreshold && c.InactiveThreshold == DefaultInactiveThreshold {
		c.InactiveThreshold = 0
	}
}

// CheckQueued returns why a consumer can't read a stream that is a work queue, or nil. others are
// the stream's other consumers. All configurations are normalized.
func (c *ConsumerConfig) CheckQueued(others []ConsumerConfig) *Error {
	switch {
	case c.AckPolicy != AckExplicit:
		return ErrConsumerWQRequiresExplicitAck
	case c.DeliverPolicy != DeliverAll:
		return ErrConsumerWQConsumerNotDeliverAll
	case len(others) > 0 && len(c.Filters()) == 0:
		return ErrConsumerWQMultipleUnfiltered
	}
	for i := range others {
		its := others[i].Filters()
		if len(its) == 0 {
			return ErrConsumerWQConsumerNotUnique
		}
		for _, mine := range c.Filters() {
			if slices.ContainsFunc(its, func(other string) bool { return subject.Overlap(mine, other) }) {
				return ErrConsumerWQConsumerNotUnique
			}
		}
	}
	return nil
}

// CheckConsumerUpdate returns the reason why a consumer cannot be updated, or nil. Both
// configurations are normalized.
func CheckConsumerUpdate(from, to *ConsumerConfig) *Error {
	fixed := func(setting string) *Error { return ErrConsumerCreate.With(setting + " can not be updated") }
	switch {
	case from.DeliverPolicy != to.DeliverPolicy:
		return fixed("deliver policy")
	case from.StartSequence != to.StartSequence:
		return fixed("start sequence")
	case !sameTime(from.StartTime, to.StartTime):
		return fixed("start time")
	case from.AckPolicy != to.AckPolicy:
		return fixed("ack policy")
	case from.ReplayPolicy != to.ReplayPolicy:
		return fixed("replay policy")
	case from.Heartbeat != to.Heartbeat:
		return fixed("heart beats")
	case from.FlowControl != to.FlowControl:
		return fixed("flow control")
	case from.DeliverSubject == "" && to.DeliverSubject != "":
		return ErrConsumerCreate.With("can not update pull consumer to push based")
	case from.DeliverSubject != "" && to.DeliverSubject == "":
		return ErrConsumerCreate.With("can not update push consumer to pull based")
	case from.MaxWaiting != to.MaxWaiting:
		return fixed("max waiting")
	case from.Durable != "" && to.Durable == "":
		return fixed("durable name")
	case from.MemoryStorage != to.MemoryStorage:
		return fixed("storage type")
	}
	return nil
}

// optionalTime returns a time in UTC, or nil if it is zero.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// SamplePercent returns the share of acks that is sampled, in percent. It may end with a percent
// sign; empty is 0.
func SamplePercent(frequency string) (int, error) {
	if frequency == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(frequency, "%"))
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, fmt.Errorf("%d is negative", n)
	}
	return min(n, 100), nil
}

// IsOrdered reports whether the configuration is that of an ordered consumer, which clients create
// anew whenever they miss a sequence. JetStream does not mark them; all clients use this
// combination for them, and hardly anything else does.
func (c *ConsumerConfig) IsOrdered() bool {
	return c.Durable == "" && c.AckPolicy == ackNone && c.MemoryStorage
}

func sameTime(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// Equal reports whether two normalized configurations mean the same, even if they write it
// differently, or if only one of them is Versioned.
func (c *ConsumerConfig) Equal(other *ConsumerConfig) bool {
	return c.Name == other.Name && c.Durable == other.Durable &&
		sameTime(c.StartTime, other.StartTime) && sameTime(c.PauseUntil, other.PauseUntil) && sameButTimes(c, other)
}

func sameButTimes(a, b *ConsumerConfig) bool {
	x, y := *a, *b
	x.StartTime, y.StartTime, x.PauseUntil, y.PauseUntil = nil, nil, nil, nil
	x.Metadata, y.Metadata = ownMetadata(a.Metadata), ownMetadata(b.Metadata)
	x.FilterSubject, x.FilterSubjects = "", slices.Clip(slices.Clone(a.Filters()))
	y.FilterSubject, y.FilterSubjects = "", slices.Clip(slices.Clone(b.Filters()))
	return reflect.DeepEqual(x, y)
}
