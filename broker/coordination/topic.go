package coordination

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Topic is a declared Topic.
type Topic struct {
	Name       string
	ID         string // random; a recreated Topic has another, so it never gets old data
	Spec       TopicSpec
	Generation int64 // 1, and one more with every change of the spec
	Owner      Owner
	Created    time.Time
	// Deleting marks a Topic that is being deleted and is not served any more. Its subjects stay
	// claimed until all of it is deleted.
	Deleting bool

	Revision int64 // of its key, when it was read; what a compare-and-swap compares
	Made     int64 // create revision of its key

	bytes int64 // that it takes in etcd, see clientRoom
	usage usage // that it is of its user's limits
}

// TopicSpec is the desired state. Comments give the meaning of zero values, so that values written
// before a field existed have a meaning.
type TopicSpec struct {
	Subjects        []string       `json:"subjects"`
	Shards          int            `json:"shards"`                    // immutable
	PartitionBy     Partitioning   `json:"partitionBy,omitempty"`     // immutable; empty: BySubject
	PartitionTokens []int          `json:"partitionTokens,omitempty"` // immutable; ByTokens, from 1
	Replicas        int            `json:"replicas,omitempty"`        // 0: depends on the brokers
	MinInSync       int            `json:"minInSync,omitempty"`       // 0: a majority of the replicas
	Durability      Durability     `json:"durability,omitempty"`      // empty: Synced
	Retention       Retention      `json:"retention,omitzero"`
	Compaction      Compaction     `json:"compaction,omitempty"`      // empty: none
	Deduplication   time.Duration  `json:"deduplication,omitempty"`   // window in nanoseconds; 0: none
	UncleanElection bool           `json:"uncleanElection,omitempty"` // false: forbidden
	MaxMessage      int            `json:"maxMessage,omitempty"`      // with headers; 0: broker's max
	DeletionPolicy  DeletionPolicy `json:"deletionPolicy,omitempty"`  // empty: Retain
	Stream          StreamSettings `json:"stream,omitzero"`
}

// Partitioning is how the shard of a record is chosen.
type Partitioning string

// The partitionings.
const (
	BySubject Partitioning = "Subject"
	ByTokens  Partitioning = "Tokens"
)

// Durability is what must have happened to a record on every in-sync replica before it is
// acknowledged.
type Durability string

// The durabilities.
const (
	Synced     Durability = "Synced"     // synced to disk
	Replicated Durability = "Replicated" // written to the operating system
	Memory     Durability = "Memory"     // in memory, and never written to disk
)

// Compaction reports whether older messages of a subject are removed.
type Compaction string

// The compactions.
const (
	NoCompaction Compaction = "None"
	LatestOnly   Compaction = "Latest"
)

// DeletionPolicy is what happens to a declared object when its manifest is deleted.
type DeletionPolicy string

// The deletion policies.
const (
	Retain        DeletionPolicy = "Retain"
	DeleteIfEmpty DeletionPolicy = "DeleteIfEmpty" // Topics only
	Delete        DeletionPolicy = "Delete"
)

// Retention is the limits beyond which old records are deleted. 0: no limit.
type Retention struct {
	Age      time.Duration `json:"age,omitempty"`      // in nanoseconds
	Bytes    int64         `json:"bytes,omitempty"`    // of each shard
	Messages int64         `json:"messages,omitempty"` // of each shard
}

// StreamSettings are settings of JetStream. Manifests have some of them.
type StreamSettings struct {
	Description            string            `json:"description,omitempty"`
	Metadata               map[string]string `json:"metadata,omitempty"`
	Retention              StreamRetention   `json:"retention,omitempty"` // empty: Limits
	DiscardNew             bool              `json:"discardNew,omitempty"`
	DiscardNewPerSubject   bool              `json:"discardNewPerSubject,omitempty"`
	MaxPerSubject          int64             `json:"maxPerSubject,omitempty"` // 0: no limit
	MaxConsumers           int               `json:"maxConsumers,omitempty"`  // 0: no limit
	NoAck                  bool              `json:"noAck,omitempty"`
	Sealed                 bool              `json:"sealed,omitempty"`
	DenyDelete             bool              `json:"denyDelete,omitempty"`
	DenyPurge              bool              `json:"denyPurge,omitempty"`
	AllowRollup            bool              `json:"allowRollup,omitempty"`
	AllowDirect            bool              `json:"allowDirect,omitempty"`
	AllowAtomic            bool              `json:"allowAtomic,omitempty"`  // one shard only
	AllowBatched           bool              `json:"allowBatched,omitempty"` // one shard only
	AllowCounter           bool              `json:"allowCounter,omitempty"` // of a Topic that has nothing else
	AllowMessageTTL        bool              `json:"allowMessageTTL,omitempty"`
	SubjectDeleteMarkerTTL time.Duration     `json:"subjectDeleteMarkerTTL,omitempty"`
	AllowSchedules         bool              `json:"allowSchedules,omitempty"`
	FirstSequence          uint64            `json:"firstSequence,omitempty"`
	Compression            string            `json:"compression,omitempty"`        // empty: none
	InactiveThreshold      time.Duration     `json:"inactiveThreshold,omitempty"`  // consumer default
	ConsumerMaxPending     int               `json:"consumerMaxPending,omitempty"` // consumer default
	Transform              *SubjectMapping   `json:"transform,omitempty"`          // of what is stored
	Republish              *Republish        `json:"republish,omitempty"`
	Sources                []StreamSource    `json:"sources,omitempty"` // what is copied from other streams
	Mirror                 *StreamSource     `json:"mirror,omitempty"`  // nil: it is no mirror
	MirrorDirect           bool              `json:"mirrorDirect,omitempty"`
	// User is on whose behalf brokers publish again and copy: the client's user who asked for that
	// last. Empty: a manifest did, or there were no users.
	User string `json:"user,omitempty"`
}

// Republish is what is published again when it was stored, and under which subjects. It is only
// written if all brokers announce FeatureRepublish.
type Republish struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	HeadersOnly bool   `json:"headersOnly,omitempty"`
}

// Copies returns what is copied into the stream: its sources, or what it mirrors.
func (s *StreamSettings) Copies() []StreamSource {
	if s.Mirror == nil {
		return s.Sources
	}
	mirror := *s.Mirror
	mirror.Mirrored = true
	return []StreamSource{mirror}
}

// StreamSource is a stream whose records are copied into another one. It is only written if all
// brokers announce FeatureSources, and into several shards FeatureShardedSources. At most one of
// StartSequence and StartTime is set, and at most one of Filter and Transforms.
type StreamSource struct {
	Name          string           `json:"name"`
	StartSequence uint64           `json:"startSequence,omitempty"` // 0: the first one
	StartTime     time.Time        `json:"startTime,omitzero"`
	Filter        string           `json:"filter,omitempty"`     // of subjects; empty: all
	Transforms    []SubjectMapping `json:"transforms,omitempty"` // the first that matches; others are left out
	// Mirrored means that the copies have the offsets and times of the stream. StreamSettings says it.
	Mirrored bool `json:"-"`
}

// SubjectMapping maps subjects to others, as package transform does.
type SubjectMapping struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// StreamRetention is JetStream's retention policy: what is removed beside old records. All but the
// first are only written if all brokers announce FeatureAckRemovals, and with several shards
// FeatureShardReleases.
type StreamRetention string

// The retention policies.
const (
	LimitsPolicy   StreamRetention = "Limits"    // nothing
	InterestPolicy StreamRetention = "Interest"  // what no Subscription is interested in
	WorkQueue      StreamRetention = "WorkQueue" // what is acknowledged; immutable, to and from it
)

// MaxSources is how many sources a stream has at most: each is a goroutine and a request that
// waits.
const MaxSources = 64

const (
	// maxTopicName leaves room for "--1023", the suffix of a shard's stream, within the 255 bytes
	// of a stream's name.
	maxTopicName = 255 - len("--1023")
	// MaxTopicSubjects bounds the comparisons of claims, and the value.
	MaxTopicSubjects = 256
	// maxSubject is the longest subject of a manifest, in bytes.
	maxSubject = 255
	// maxShards bounds one Topic's part of the 10,000 shards with which a cluster is measured.
	maxShards = 1024
	// maxReplicas is above any practical use; moving a shard doubles its replicas for a while.
	maxReplicas = 7
	// maxPartitionTokens and maxTokenPosition are the bounds of manifests.
	maxPartitionTokens, maxTokenPosition = 8, 32
	// maxValue bounds one value, in bytes: a transaction of etcd takes 1.5 MiB, and every broker
	// keeps all values in memory.
	maxValue = 256 << 10
)

// InvalidError reports a request that is invalid, whoever sends it.
type InvalidError struct {
	What string // "topic orders"
	Why  string // with the way out
}

func (e *InvalidError) Error() string { return e.What + ": " + e.Why }

// shardStream matches the names of shards' streams.
var shardStream = regexp.MustCompile(`--[0-9]+$`)

// validName checks a name by the rule of JetStream streams and consumers, which also keeps the keys
// in etcd apart. It returns what is wrong, or "".
func validName(name string, longest int) string {
	switch {
	case name == "":
		return "the name is empty"
	case len(name) > longest:
		return fmt.Sprintf("the name has %d bytes (use at most %d)", len(name), longest)
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool {
		return strings.ContainsRune(`.*>/\`, r) || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return `the name has a blank, or one of . * > / \ (use letters, digits, - and _)`
	}
	return ""
}

func validTopicName(name string) string {
	if why := validName(name, maxTopicName); why != "" {
		return why
	}
	if shardStream.MatchString(name) {
		return "the name ends in two hyphens and a number, which is how the shards of a Topic are named (write one hyphen)"
	}
	return ""
}

// claimable returns why a Topic may not claim the subject, or "". Subjects between clients and
// brokers are reserved; $KV and $O are plain data, and advisories may be kept.
func claimable(s string) string {
	if len(s) > maxSubject {
		return fmt.Sprintf("a subject of %d bytes (use at most %d)", len(s), maxSubject)
	}
	if !subject.ValidPattern([]byte(s)) || !utf8.ValidString(s) {
		return fmt.Sprintf("%q is not a subject (write tokens with dots between them, * for one token, > at the end for the rest)", s)
	}
	first, rest, _ := strings.Cut(s, ".")
	switch {
	case first == "$JS" && strings.HasPrefix(rest, "EVENT."):
		return ""
	case first == ">", first == "_INBOX", strings.HasPrefix(first, "$") && first != "$KV" && first != "$O":
		return fmt.Sprintf("subject %q is or holds the protocol's own messages (write for example orders.>)", s)
	}
	return ""
}

// Overlaps returns a subject of each that overlap, or "".
func (s *TopicSpec) Overlaps(other *TopicSpec) (mine, its string) {
	for _, mine := range s.Subjects {
		for _, its := range other.Subjects {
			if subject.Overlap(mine, its) {
				return mine, its
			}
		}
	}
	return "", ""
}

// defaultReplicas is the number of replicas of a Topic that does not specify it, if there are so
// many brokers.
const defaultReplicas = 3

// ResolvedReplicas returns the number of replicas of each shard in a cluster of the given number of
// brokers. A specified number is not reduced.
func (s *TopicSpec) ResolvedReplicas(brokers int) int {
	if s.Replicas > 0 {
		return s.Replicas
	}
	return max(min(defaultReplicas, brokers), s.MinInSync, 1)
}

// ResolvedMinInSync returns how many of a shard's replicas must be in sync for a record to be
// acknowledged.
func (s *TopicSpec) ResolvedMinInSync(replicas int) int {
	if s.MinInSync > 0 {
		return s.MinInSync
	}
	if s.Replicas > 0 {
		replicas = s.Replicas
	}
	return replicas/2 + 1
}

func (s *TopicSpec) valid() string {
	switch {
	case len(s.Stream.Sources) > MaxSources:
		return fmt.Sprintf("%d sources (use at most %d)", len(s.Stream.Sources), MaxSources)
	case s.Stream.Mirror != nil && (len(s.Subjects) > 0 || len(s.Stream.Sources) > 0 || s.Stream.FirstSequence > 0):
		return "a mirror with subjects, sources or a first offset (leave them out: it has those of its stream)"
	case len(s.Subjects) == 0 && len(s.Stream.Copies()) == 0:
		return "no subject (write for example orders.>)"
	case len(s.Subjects) > MaxTopicSubjects:
		return fmt.Sprintf("%d subjects (use wildcards, and at most %d)", len(s.Subjects), MaxTopicSubjects)
	}
	for i, a := range s.Subjects {
		if why := claimable(a); why != "" {
			return why
		}
		for _, b := range s.Subjects[:i] {
			if subject.Overlap(a, b) {
				return fmt.Sprintf("its subjects %q and %q overlap (keep the wider one, or make them distinct)", b, a)
			}
		}
	}
	if why := s.validPartitioning(); why != "" {
		return why
	}
	switch {
	case s.Replicas < 0 || s.Replicas > maxReplicas:
		return fmt.Sprintf("%d replicas (use 1 to %d)", s.Replicas, maxReplicas)
	case s.MinInSync < 0 || s.MinInSync > maxReplicas || s.Replicas > 0 && s.MinInSync > s.Replicas:
		return fmt.Sprintf("minInSync %d with %d replicas: nothing could ever be acknowledged (use a majority)", s.MinInSync, s.Replicas)
	case s.Retention.Age < 0 || s.Retention.Bytes < 0 || s.Retention.Messages < 0:
		return "a negative retention (leave a limit out to have none)"
	case s.Deduplication < 0 || s.MaxMessage < 0:
		return "a negative deduplication window or size of messages (leave it out to have none)"
	}
	if why := s.validCopies(); why != "" {
		return why
	}
	if s.Stream.AllowSchedules && s.Shards > 1 {
		return fmt.Sprintf("schedules with %d shards: a schedule and its target may be in two (use one shard)", s.Shards)
	}
	return firstUnknown(
		choice("durability", s.Durability, Synced, Replicated, Memory),
		choice("compaction", s.Compaction, NoCompaction, LatestOnly),
		choice("deletionPolicy", s.DeletionPolicy, Retain, DeleteIfEmpty, Delete),
		choice("retention policy", s.Stream.Retention, LimitsPolicy, InterestPolicy, WorkQueue),
	)
}

func (s *TopicSpec) validPartitioning() string {
	if s.Shards < 1 || s.Shards > maxShards {
		return fmt.Sprintf("%d shards (use 1 to %d)", s.Shards, maxShards)
	}
	if why := choice("partitionBy", s.PartitionBy, BySubject, ByTokens); why != "" {
		return why
	}
	if (s.PartitionBy == ByTokens) != (len(s.PartitionTokens) > 0) || len(s.PartitionTokens) > maxPartitionTokens {
		return fmt.Sprintf("partitionBy %q with %d tokens (write Tokens with 1 to %d positions, or neither)", s.PartitionBy, len(s.PartitionTokens), maxPartitionTokens)
	}
	for _, position := range s.PartitionTokens {
		if position < 1 || position > maxTokenPosition {
			return fmt.Sprintf("partition token %d (count from 1 to %d)", position, maxTokenPosition)
		}
	}
	return ""
}

// choice returns that got is none of the permitted values, or "". Empty means the first one.
func choice[S ~string](field string, got S, of ...S) string {
	names := make([]string, 0, len(of))
	for _, s := range of {
		if got == s || got == "" {
			return ""
		}
		names = append(names, string(s))
	}
	return fmt.Sprintf("%s %q (write one of %s)", field, got, strings.Join(names, ", "))
}

func firstUnknown(whys ...string) string {
	for _, why := range whys {
		if why != "" {
			return why
		}
	}
	return ""
}
