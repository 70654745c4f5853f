package jsapi

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subject"
)

// StreamConfig is the configuration of a stream, as clients request it and see it. Policies are
// checked by Normalize only.
type StreamConfig struct {
	Name                   string            `json:"name"`
	Description            string            `json:"description,omitempty"`
	Subjects               []string          `json:"subjects,omitempty"`
	Retention              string            `json:"retention"`
	MaxConsumers           int               `json:"max_consumers"`
	MaxMessages            int64             `json:"max_msgs"`
	MaxBytes               int64             `json:"max_bytes"`
	MaxAge                 time.Duration     `json:"max_age"`
	MaxPerSubject          int64             `json:"max_msgs_per_subject"`
	MaxMessageSize         int32             `json:"max_msg_size,omitempty"`
	Discard                string            `json:"discard"`
	Storage                string            `json:"storage"`
	Replicas               int               `json:"num_replicas"`
	NoAck                  bool              `json:"no_ack,omitempty"`
	DuplicateWindow        time.Duration     `json:"duplicate_window,omitempty"`
	Placement              *Placement        `json:"placement,omitempty"`
	Mirror                 *StreamSource     `json:"mirror,omitempty"`
	Sources                []*StreamSource   `json:"sources,omitempty"`
	Compression            string            `json:"compression"`
	FirstSequence          uint64            `json:"first_seq,omitempty"`
	SubjectTransform       *SubjectTransform `json:"subject_transform,omitempty"`
	RePublish              *RePublish        `json:"republish,omitempty"`
	AllowDirect            bool              `json:"allow_direct"`
	MirrorDirect           bool              `json:"mirror_direct"`
	DiscardNewPerSubject   bool              `json:"discard_new_per_subject,omitempty"`
	Sealed                 bool              `json:"sealed"`
	DenyDelete             bool              `json:"deny_delete"`
	DenyPurge              bool              `json:"deny_purge"`
	AllowRollup            bool              `json:"allow_rollup_hdrs"`
	ConsumerLimits         ConsumerLimits    `json:"consumer_limits"`
	AllowMessageTTL        bool              `json:"allow_msg_ttl"`
	SubjectDeleteMarkerTTL time.Duration     `json:"subject_delete_marker_ttl,omitempty"`
	AllowCounter           bool              `json:"allow_msg_counter,omitempty"`
	AllowAtomic            bool              `json:"allow_atomic,omitempty"`
	AllowSchedules         bool              `json:"allow_msg_schedules,omitempty"`
	PersistMode            string            `json:"persist_mode,omitempty"`
	AllowBatched           bool              `json:"allow_batched,omitempty"`
	Metadata               map[string]string `json:"metadata,omitempty"`
}

// DiscardsNew reports whether the stream refuses messages beyond its limits instead of deleting old
// ones.
func (c *StreamConfig) DiscardsNew() bool { return c.Discard == discardNew }

// ConsumerLimits are the defaults and the upper bounds for consumers of a stream.
type ConsumerLimits struct {
	InactiveThreshold time.Duration `json:"inactive_threshold,omitempty"`
	MaxAckPending     int           `json:"max_ack_pending,omitempty"`
}

// Placement restricts where a stream is placed.
type Placement struct {
	Cluster   string   `json:"cluster,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	Preferred string   `json:"preferred,omitempty"`
}

// given reports whether p restricts anything: nats.go sends an empty one, too.
func (p *Placement) given() bool {
	return p != nil && (p.Cluster != "" || len(p.Tags) > 0 || p.Preferred != "")
}

// StreamRequest is the payload of a StreamCreate and a StreamUpdate.
type StreamRequest struct {
	StreamConfig
	Pedantic bool `json:"pedantic,omitempty"` // refuse what Normalize would correct
}

// Values of policies, as in JSON. The first of each is the default.
const (
	limitsRetention, interestRetention, workQueueRetention = "limits", "interest", "workqueue"
	discardOld, discardNew                                 = "old", "new"
	fileStorage, memoryStorage                             = "file", "memory"
	noCompression, s2Compression                           = "none", "s2"
	defaultPersist, asyncPersist                           = "default", "async"
)

// Bounds of nats-server, so that a configuration is valid on both.
const (
	MaxName        = 255
	maxDescription = 4096
	maxMetadata    = 128 << 10
	maxReplicas    = 5
	// maxFirstSequence leaves more sequences than a stream ever has.
	maxFirstSequence = 1 << 62
	minAge           = 100 * time.Millisecond
	minDuplicates    = 100 * time.Millisecond
	// defaultDuplicates is the deduplication window of a stream that requests none. A shorter
	// MaxAge replaces it.
	defaultDuplicates = 2 * time.Minute
)

// unsupportedStream are the settings that Carillon does not support yet. Each is refused by name,
// since a setting that is dropped silently seems to be in effect. Remove a line when the setting is
// supported.
var unsupportedStream = []struct {
	setting string
	asked   func(*StreamConfig) bool
}{
	{"placement", func(c *StreamConfig) bool { return c.Placement.given() }},
	{"mirror: external", func(c *StreamConfig) bool { return c.Mirror != nil && given(c.Mirror.External) }},
	{"mirror: consumer", func(c *StreamConfig) bool { return c.Mirror != nil && given(c.Mirror.Consumer) }},
	{"sources: external", func(c *StreamConfig) bool {
		return slices.ContainsFunc(c.Sources, func(s *StreamSource) bool { return s != nil && given(s.External) })
	}},
	{"sources: consumer", func(c *StreamConfig) bool {
		return slices.ContainsFunc(c.Sources, func(s *StreamSource) bool { return s != nil && given(s.Consumer) })
	}},
}

// UnsupportedSettings returns the settings of streams and of consumers that are refused by name, as
// "setting" or "setting: value".
func UnsupportedSettings() (streams, consumers []string) {
	for _, feature := range unsupportedStream {
		streams = append(streams, feature.setting)
	}
	for _, feature := range unsupportedConsumer {
		consumers = append(consumers, feature.setting)
	}
	return streams, consumers
}

// unsupported returns the settings in use that are not supported yet.
func (c *StreamConfig) unsupported() (settings []string) {
	for _, feature := range unsupportedStream {
		if feature.asked(c) {
			settings = append(settings, feature.setting)
		}
	}
	return settings
}

// refusal says which settings are missing, in the words of what the user asked for: clients make
// key-value buckets and object stores of streams with settings that their users never typed.
func (c *StreamConfig) refusal(missing []string) string {
	settings := listed(missing)
	for _, kind := range []struct{ prefix, subjects, of string }{
		{"KV_", "$KV.", "key-value buckets"}, {"OBJ_", "$O.", "object stores"},
	} {
		bucket, ok := strings.CutPrefix(c.Name, kind.prefix)
		if ok && slices.ContainsFunc(c.Subjects, func(s string) bool { return strings.HasPrefix(s, kind.subjects) }) {
			return fmt.Sprintf("%s need %s, not supported yet: %s can't be made", kind.of, settings, bucket)
		}
	}
	if len(missing) > 1 {
		return settings + " are not supported yet"
	}
	return settings + " is not supported yet"
}

// listed joins words as a sentence does: a, b and c.
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

func given(setting json.RawMessage) bool { return len(setting) > 0 && string(setting) != "null" }

// Normalize checks the configuration and fills in defaults as nats-server does, so that clients see
// the same configuration on both.
func (c *StreamConfig) Normalize() *Error {
	if why := assetName("stream", c.Name); why != "" {
		return ErrStreamInvalidConfig.With(why)
	}
	if len(c.Description) > maxDescription {
		return ErrStreamInvalidConfig.With(fmt.Sprintf("stream description is too long, maximum allowed is %d", maxDescription))
	}
	if metadataSize(c.Metadata) > maxMetadata {
		return ErrStreamInvalidConfig.With(fmt.Sprintf("stream metadata exceeds maximum size of %d bytes", maxMetadata))
	}
	var err *Error
	if c.Metadata, err = userMetadata(c.Metadata); err != nil {
		return err
	}
	for _, word := range []struct {
		value *string
		wrong string
		of    []string
	}{
		{&c.Retention, "invalid retention", []string{limitsRetention, interestRetention, workQueueRetention}},
		{&c.Discard, "invalid discard policy", []string{discardOld, discardNew}},
		{&c.Storage, "invalid storage type", []string{fileStorage, memoryStorage}},
		{&c.Compression, "invalid compression", []string{noCompression, s2Compression}},
		{&c.PersistMode, "invalid persist mode", []string{defaultPersist, asyncPersist}},
	} {
		if !normalizeChoice(word.value, word.of...) {
			return ErrStreamInvalidConfig.With(word.wrong)
		}
	}
	if missing := c.unsupported(); len(missing) > 0 {
		return ErrStreamInvalidConfig.With(c.refusal(missing))
	}
	c.Placement = nil // the others are empty
	if err := c.normalizeMirror(); err != nil {
		return err
	}
	if c.PersistMode == defaultPersist {
		c.PersistMode = ""
	} else if c.Storage == memoryStorage {
		return ErrStreamInvalidConfig.With("async persist mode is only supported on file storage")
	} else if c.AllowAtomic {
		return ErrStreamInvalidConfig.With("async persist mode is not supported with atomic batch publish")
	}
	if c.Sealed { // nothing comes in or goes out
		c.MaxAge, c.Discard, c.DenyDelete, c.DenyPurge, c.AllowRollup = 0, discardNew, true, true, false
	}
	if err := c.normalizeMarkers(); err != nil {
		return err
	}
	if err := c.normalizeSources(); err != nil {
		return err
	}
	if err := c.normalizeSchedules(); err != nil {
		return err
	}
	if err := c.normalizeReplicas(); err != nil {
		return err
	}
	if err := c.normalizeLimits(); err != nil {
		return err
	}
	if err := c.normalizeSubjects(); err != nil {
		return err
	}
	if err := c.checkCounter(); err != nil {
		return err
	}
	if err := c.checkTransform(); err != nil {
		return err
	}
	return c.normalizeRepublish()
}

// checkCounter refuses what a stream of counters can't have.
func (c *StreamConfig) checkCounter() *Error {
	switch {
	case !c.AllowCounter:
	case c.DiscardsNew() && !c.Sealed: // which an update may set, and nothing comes in then
		return ErrStreamInvalidConfig.With("counter stream cannot use discard new")
	case c.AllowMessageTTL:
		return ErrStreamInvalidConfig.With("counter stream cannot use message TTLs")
	case c.AllowSchedules:
		return ErrStreamInvalidConfig.With("counter stream cannot use message schedules")
	case c.RemovesAcked():
		return ErrStreamInvalidConfig.With("counter stream can only use limits retention")
	}
	return nil
}

// normalizeMarkers allows what markers need.
func (c *StreamConfig) normalizeMarkers() *Error {
	switch ttl := c.SubjectDeleteMarkerTTL; {
	case ttl == 0:
		return nil
	case ttl < 0:
		return ErrStreamInvalidConfig.With("subject delete marker TTL must not be negative")
	case ttl < time.Second:
		return ErrStreamInvalidConfig.With("subject delete marker TTL must be at least 1 second")
	case c.SubjectTransform != nil: // a marker is stored under the subject that it marks
		return ErrStreamInvalidConfig.With("subject_delete_marker_ttl with subject_transform is not supported yet")
	}
	c.AllowMessageTTL = true
	if !c.AllowRollup && !c.Sealed {
		c.AllowRollup, c.DenyPurge = true, false
	}
	return nil
}

// normalizeSchedules allows what schedules need.
func (c *StreamConfig) normalizeSchedules() *Error {
	switch {
	case !c.AllowSchedules:
		return nil
	case c.DiscardsNew() && !c.Sealed:
		return ErrStreamInvalidConfig.With("message scheduling cannot use discard new")
	case c.SubjectTransform != nil: // a target is a subject under which messages are stored
		return ErrStreamInvalidConfig.With("allow_msg_schedules with subject_transform is not supported yet")
	}
	if !c.AllowRollup && !c.Sealed {
		c.AllowRollup, c.DenyPurge = true, false
	}
	return nil
}

func (c *StreamConfig) normalizeReplicas() *Error {
	switch {
	case c.Replicas < 0:
		return ErrReplicasCountCannotBeNegative
	case c.Replicas > maxReplicas:
		return ErrStreamInvalidConfig.With(fmt.Sprintf("maximum replicas is %d", maxReplicas))
	}
	c.Replicas = max(c.Replicas, 1)
	return nil
}

func (c *StreamConfig) normalizeLimits() *Error {
	unlimited(&c.MaxMessages)
	unlimited(&c.MaxBytes)
	unlimited(&c.MaxPerSubject)
	unlimited(&c.MaxMessageSize)
	unlimited(&c.MaxConsumers)
	if c.DuplicateWindow == 0 && len(c.Sources) == 0 && c.Mirror == nil {
		c.DuplicateWindow = defaultDuplicates
		if c.MaxAge > 0 {
			c.DuplicateWindow = min(c.DuplicateWindow, c.MaxAge)
		}
	}
	switch {
	case c.FirstSequence > maxFirstSequence:
		return ErrStreamInvalidConfig.With(fmt.Sprintf("first sequence can be at most %d", uint64(maxFirstSequence)))
	case c.MaxAge < 0:
		return ErrStreamInvalidConfig.With("max age can not be negative")
	case c.MaxAge != 0 && c.MaxAge < minAge:
		return ErrStreamInvalidConfig.With("max age needs to be >= 100ms")
	case c.DuplicateWindow < 0:
		return ErrStreamInvalidConfig.With("duplicates window can not be negative")
	case c.MaxAge != 0 && c.DuplicateWindow > c.MaxAge:
		return ErrStreamInvalidConfig.With("duplicates window can not be larger then max age")
	case c.DuplicateWindow < minDuplicates && c.DuplicateWindow > 0:
		return ErrStreamInvalidConfig.With("duplicates window needs to be >= 100ms")
	case c.DenyPurge && c.AllowRollup:
		return ErrStreamInvalidConfig.With("roll-ups require the purge permission")
	case c.DiscardNewPerSubject && !c.DiscardsNew():
		return ErrStreamInvalidConfig.With("discard new per subject requires discard new policy to be set")
	case c.DiscardNewPerSubject && c.MaxPerSubject <= 0:
		return ErrStreamInvalidConfig.With("discard new per subject requires max msgs per subject > 0")
	case c.ConsumerLimits.InactiveThreshold < 0 || c.ConsumerLimits.MaxAckPending < -1:
		return ErrStreamInvalidConfig.With("consumer limits can not be negative")
	}
	return nil
}

// normalizeSubjects checks the subjects by themselves. Overlaps with other streams and reserved
// subjects are checked by package coordination.
func (c *StreamConfig) normalizeSubjects() *Error {
	switch {
	case len(c.Subjects) == 0 && (len(c.Sources) > 0 || c.Mirror != nil):
		c.Subjects = nil // it gets messages from its sources only
	case len(c.Subjects) == 0:
		c.Subjects = []string{c.Name}
	case len(c.Subjects) > coordination.MaxTopicSubjects: // which takes seconds to compare
		return ErrStreamInvalidConfig.With(fmt.Sprintf("%d subjects (use wildcards, and at most %d)", len(c.Subjects), coordination.MaxTopicSubjects))
	}
	for i, s := range c.Subjects {
		if !subject.ValidPattern([]byte(s)) {
			return ErrStreamInvalidConfig.With("invalid subject")
		}
		for _, other := range c.Subjects[:i] {
			if s == other {
				return ErrStreamInvalidConfig.With("duplicate subjects detected")
			}
			if subject.Overlap(other, s) {
				return ErrStreamInvalidConfig.With(fmt.Sprintf("subject %q overlaps with %q", other, s))
			}
		}
	}
	return nil
}

// TopicSpec returns the Topic of a stream. The configuration must be normalized.
func (c *StreamConfig) TopicSpec() coordination.TopicSpec {
	compression := c.Compression
	if compression == noCompression {
		compression = ""
	}
	return coordination.TopicSpec{
		Subjects:   c.Subjects,
		Shards:     1, // a stream has one order of messages
		Replicas:   c.Replicas,
		Durability: durability(c.Storage, c.PersistMode),
		Retention: coordination.Retention{
			Age: c.MaxAge, Bytes: max(c.MaxBytes, 0), Messages: max(c.MaxMessages, 0),
		},
		Deduplication: c.DuplicateWindow,
		MaxMessage:    int(max(c.MaxMessageSize, 0)),
		Stream: coordination.StreamSettings{
			Description:            c.Description,
			Metadata:               c.Metadata,
			MaxConsumers:           max(c.MaxConsumers, 0),
			NoAck:                  c.NoAck,
			DenyDelete:             c.DenyDelete,
			DenyPurge:              c.DenyPurge,
			Retention:              retentions[c.Retention],
			DiscardNew:             c.DiscardsNew(),
			MaxPerSubject:          max(c.MaxPerSubject, 0),
			AllowRollup:            c.AllowRollup,
			DiscardNewPerSubject:   c.DiscardNewPerSubject,
			Sealed:                 c.Sealed,
			Compression:            compression,
			AllowDirect:            c.AllowDirect,
			AllowMessageTTL:        c.AllowMessageTTL,
			AllowAtomic:            c.AllowAtomic,
			AllowBatched:           c.AllowBatched,
			AllowCounter:           c.AllowCounter,
			SubjectDeleteMarkerTTL: c.SubjectDeleteMarkerTTL,
			AllowSchedules:         c.AllowSchedules,
			FirstSequence:          c.FirstSequence,
			InactiveThreshold:      c.ConsumerLimits.InactiveThreshold,
			ConsumerMaxPending:     c.ConsumerLimits.MaxAckPending,
			Transform:              (*coordination.SubjectMapping)(c.SubjectTransform),
			Republish:              (*coordination.Republish)(c.RePublish),
			Sources:                sourcesFor(c.Sources),
			Mirror:                 mirrorFor(c.Mirror),
			MirrorDirect:           c.MirrorDirect,
		},
	}
}

// retentions are the retention policies of Topics, by their names in JSON.
var retentions = map[string]coordination.StreamRetention{
	interestRetention: coordination.InterestPolicy, workQueueRetention: coordination.WorkQueue,
}

// RemovesAcked reports whether acks remove messages of the stream.
func (c *StreamConfig) RemovesAcked() bool { return retentions[c.Retention] != "" }

// IsWorkQueue reports whether each message of the stream has one consumer.
func (c *StreamConfig) IsWorkQueue() bool { return c.Retention == workQueueRetention }

// durability maps storage and persist mode to a durability. The default is the strictest, so that
// an ack without special settings means that the message is durable.
func durability(storage, persist string) coordination.Durability {
	switch {
	case storage == memoryStorage:
		return coordination.Memory
	case persist == asyncPersist:
		return coordination.Replicated
	}
	return coordination.Synced
}

// StreamOf returns the stream configuration that clients see for a Topic, whoever declared it.
// Settings that only manifests support are shown as far as JetStream can express them. Compaction
// is not shown: max_msgs_per_subject would promise that older messages are removed at once, while
// compaction removes them later.
func StreamOf(name string, spec *coordination.TopicSpec) StreamConfig {
	s := &spec.Stream
	c := StreamConfig{
		Name:                   name,
		Description:            s.Description,
		Subjects:               spec.Subjects,
		Retention:              limitsRetention,
		MaxConsumers:           s.MaxConsumers,
		MaxMessages:            spec.Retention.Messages,
		MaxBytes:               spec.Retention.Bytes,
		MaxAge:                 spec.Retention.Age,
		MaxPerSubject:          s.MaxPerSubject,
		MaxMessageSize:         int32(min(spec.MaxMessage, math.MaxInt32)),
		Discard:                discardOld,
		Storage:                fileStorage,
		Replicas:               max(spec.Replicas, 1),
		NoAck:                  s.NoAck,
		DuplicateWindow:        spec.Deduplication,
		Compression:            noCompression,
		FirstSequence:          s.FirstSequence,
		AllowDirect:            s.AllowDirect,
		DiscardNewPerSubject:   s.DiscardNewPerSubject,
		Sealed:                 s.Sealed,
		DenyDelete:             s.DenyDelete,
		DenyPurge:              s.DenyPurge,
		AllowRollup:            s.AllowRollup,
		ConsumerLimits:         ConsumerLimits{s.InactiveThreshold, s.ConsumerMaxPending},
		AllowMessageTTL:        s.AllowMessageTTL,
		AllowAtomic:            s.AllowAtomic,
		AllowBatched:           s.AllowBatched,
		AllowCounter:           s.AllowCounter,
		SubjectDeleteMarkerTTL: s.SubjectDeleteMarkerTTL,
		AllowSchedules:         s.AllowSchedules,
		SubjectTransform:       (*SubjectTransform)(s.Transform),
		RePublish:              (*RePublish)(s.Republish),
		Sources:                sourcesOf(s.Sources),
		Mirror:                 mirrorOf(s.Mirror),
		MirrorDirect:           s.MirrorDirect,
		Metadata:               s.Metadata,
	}
	for name, policy := range retentions {
		if s.Retention == policy {
			c.Retention = name
		}
	}
	if s.DiscardNew {
		c.Discard = discardNew
	}
	if s.Compression != "" {
		c.Compression = s.Compression
	}
	switch spec.Durability {
	case coordination.Memory:
		c.Storage = memoryStorage
	case coordination.Replicated:
		c.PersistMode = asyncPersist
	}
	unlimited(&c.MaxMessages)
	unlimited(&c.MaxBytes)
	unlimited(&c.MaxPerSubject)
	unlimited(&c.MaxMessageSize)
	unlimited(&c.MaxConsumers)
	return c
}

// CheckCreate refuses what only an update may set.
func (c *StreamConfig) CheckCreate() *Error {
	if c.Sealed {
		return ErrStreamInvalidConfig.With("stream configuration for create can not be sealed")
	}
	if c.MirrorDirect && c.Mirror == nil {
		return ErrStreamInvalidConfig.With("stream has no mirror but does have mirror direct")
	}
	return nil
}

// CheckStreamUpdate returns the reason why a stream cannot be updated, or nil. Both configurations
// are normalized.
func CheckStreamUpdate(from, to *StreamConfig) *Error {
	switch {
	case from.Sealed && !to.Sealed:
		return ErrStreamInvalidConfig.With("stream configuration update can not unseal a sealed stream")
	case from.Name != to.Name:
		return ErrStreamInvalidConfig.With("stream configuration name must match original")
	case from.Storage != to.Storage:
		return ErrStreamInvalidConfig.With("stream configuration update can not change storage type")
	case from.Retention != to.Retention && (from.IsWorkQueue() || to.IsWorkQueue()):
		return ErrStreamInvalidConfig.With("stream configuration update can not change retention policy to/from workqueue")
	case from.PersistMode != to.PersistMode:
		return ErrStreamInvalidConfig.With("stream configuration update can not change persist mode")
	case from.AllowCounter != to.AllowCounter:
		return ErrStreamInvalidConfig.With("stream configuration update can not change message counter setting")
	case to.Mirror != nil && !reflect.DeepEqual(from.Mirror, to.Mirror):
		return ErrStreamMirrorNotUpdatable
	case from.AllowMessageTTL && !to.AllowMessageTTL:
		return ErrStreamInvalidConfig.With("message TTL status can not be disabled")
	case from.AllowSchedules && !to.AllowSchedules:
		return ErrStreamInvalidConfig.With("message schedules can not be disabled")
	case from.DenyDelete && !to.DenyDelete:
		return ErrStreamInvalidConfig.With("stream configuration update can not cancel deny message deletes")
	case from.DenyPurge && !to.DenyPurge:
		return ErrStreamInvalidConfig.With("stream configuration update can not cancel deny purge")
	}
	return nil
}

// assetName returns what is wrong with the name of a stream or consumer, or "".
func assetName(kind, name string) string {
	if name == "" || strings.ContainsAny(name, " \t\r\n\f.*>\\/") {
		return kind + ` name is required and can not contain '.', '*', '>', '\', '/'`
	}
	if len(name) > MaxName {
		return fmt.Sprintf("%s name is too long, maximum allowed is %d", kind, MaxName)
	}
	return ""
}

// normalizeChoice reports whether the word is one of the given ones. It replaces an empty word by
// the first one.
func normalizeChoice(word *string, of ...string) bool {
	if *word == "" {
		*word = of[0]
	}
	for _, w := range of {
		if *word == w {
			return true
		}
	}
	return false
}

// unlimited replaces a limit of 0 or less by -1, JetStream's "no limit".
func unlimited[N int | int32 | int64](limit *N) {
	if *limit <= 0 {
		*limit = -1
	}
}

func metadataSize(metadata map[string]string) (size int) {
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size
}
