package jsapi

import "time"

// StreamState is the content of a stream.
type StreamState struct {
	Messages    uint64            `json:"messages"`
	Bytes       uint64            `json:"bytes"`
	FirstSeq    uint64            `json:"first_seq"`
	FirstTime   time.Time         `json:"first_ts"`
	LastSeq     uint64            `json:"last_seq"`
	LastTime    time.Time         `json:"last_ts"`
	NumSubjects int               `json:"num_subjects,omitempty"`
	Subjects    map[string]uint64 `json:"subjects,omitempty"`
	NumDeleted  int               `json:"num_deleted,omitempty"`
	Deleted     []uint64          `json:"deleted,omitempty"` // sequences without a message, if they were asked for
	Consumers   int               `json:"consumer_count"`
}

// StreamInfo is everything that clients see of a stream.
type StreamInfo struct {
	Config    StreamConfig `json:"config"`
	Created   time.Time    `json:"created"`
	State     StreamState  `json:"state"`
	Cluster   *ClusterInfo `json:"cluster,omitempty"`
	Mirror    *SourceInfo  `json:"mirror,omitempty"`
	Sources   []SourceInfo `json:"sources,omitempty"`
	TimeStamp time.Time    `json:"ts"`
}

// Alternate is a stream that has the messages of another one: itself, or a mirror.
type Alternate struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
}

// SourceInfo is how far a source has come. Active is how long ago its stream was last heard of; -1:
// never.
type SourceInfo struct {
	Name              string             `json:"name"`
	Lag               uint64             `json:"lag"`
	Sequence          uint64             `json:"seq,omitempty"`
	Active            time.Duration      `json:"active"`
	Error             *Error             `json:"error,omitempty"`
	FilterSubject     string             `json:"filter_subject,omitempty"`
	SubjectTransforms []SubjectTransform `json:"subject_transforms,omitempty"`
}

// SequenceInfo is a position in a consumer's sequence and in its stream's.
type SequenceInfo struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last_active,omitempty"`
}

// ConsumerInfo is everything that clients see of a consumer.
type ConsumerInfo struct {
	Stream         string         `json:"stream_name"`
	Name           string         `json:"name"`
	Created        time.Time      `json:"created"`
	Config         ConsumerConfig `json:"config"`
	Delivered      SequenceInfo   `json:"delivered"`
	AckFloor       SequenceInfo   `json:"ack_floor"`
	NumAckPending  int            `json:"num_ack_pending"`
	NumRedelivered int            `json:"num_redelivered"`
	NumWaiting     int            `json:"num_waiting"`
	NumPending     uint64         `json:"num_pending"`
	PushBound      bool           `json:"push_bound,omitempty"` // a push consumer with a subscriber
	Paused         bool           `json:"paused,omitempty"`

	PriorityGroups []PriorityGroup `json:"priority_groups,omitempty"`
	PauseRemaining time.Duration   `json:"pause_remaining,omitempty"`
	Cluster        *ClusterInfo    `json:"cluster,omitempty"`
	TimeStamp      time.Time       `json:"ts"`
}

// Account is the usage and the limits of the account. -1 means no limit.
type Account struct {
	Memory          uint64        `json:"memory"`
	Storage         uint64        `json:"storage"`
	ReservedMemory  uint64        `json:"reserved_memory"`
	ReservedStorage uint64        `json:"reserved_storage"`
	Streams         int           `json:"streams"`
	Consumers       int           `json:"consumers"`
	Limits          AccountLimits `json:"limits"`
	API             APIStats      `json:"api"`
}

// AccountLimits bound all streams together.
type AccountLimits struct {
	MaxMemory            int64 `json:"max_memory"`
	MaxStorage           int64 `json:"max_storage"`
	MaxStreams           int   `json:"max_streams"`
	MaxConsumers         int   `json:"max_consumers"`
	MaxAckPending        int   `json:"max_ack_pending"`
	MemoryMaxStreamBytes int64 `json:"memory_max_stream_bytes"`
	StoreMaxStreamBytes  int64 `json:"storage_max_stream_bytes"`
	MaxBytesRequired     bool  `json:"max_bytes_required"`
}

// NoAccountLimits are the limits of an account without limits.
var NoAccountLimits = AccountLimits{-1, -1, -1, -1, -1, -1, -1, false}

// APIStats are counters of API calls.
type APIStats struct {
	Level  int    `json:"level"`
	Total  uint64 `json:"total"`
	Errors uint64 `json:"errors"`
}

// The answers in JSON. The embedded pointers are nil in a refusal.
type (
	// AccountResponse answers AccountInfo.
	AccountResponse struct {
		Response
		*Account
	}
	// StreamResponse answers StreamUpdate and, with DidCreate, StreamCreate.
	StreamResponse struct {
		Response
		*StreamInfo
		DidCreate bool `json:"did_create,omitempty"`
	}
	// StreamInfoResponse answers StreamInfoCall. The page is that of State.Subjects.
	StreamInfoResponse struct {
		Response
		Paged
		*StreamInfo
		Alternates []Alternate `json:"alternates,omitempty"`
	}
	// DoneResponse answers deletions of streams, consumers and messages.
	DoneResponse struct {
		Response
		Success bool `json:"success,omitempty"`
	}
	// PurgeResponse answers StreamPurge.
	PurgeResponse struct {
		Response
		Success bool   `json:"success,omitempty"`
		Purged  uint64 `json:"purged"`
	}
	// StreamNamesResponse answers StreamNames.
	StreamNamesResponse struct {
		Response
		Paged
		Streams []string `json:"streams"`
	}
	// StreamListResponse answers StreamList. Missing are the streams without a reachable leader.
	StreamListResponse struct {
		Response
		Paged
		Streams []*StreamInfo `json:"streams"`
		Missing []string      `json:"missing,omitempty"`
	}
	// ConsumerResponse answers ConsumerCreate and ConsumerInfoCall.
	ConsumerResponse struct {
		Response
		*ConsumerInfo
	}
	// ConsumerNamesResponse answers ConsumerNames.
	ConsumerNamesResponse struct {
		Response
		Paged
		Consumers []string `json:"consumers"`
	}
	// ConsumerListResponse answers ConsumerList.
	ConsumerListResponse struct {
		Response
		Paged
		Consumers []*ConsumerInfo `json:"consumers"`
		Missing   []string        `json:"missing,omitempty"`
	}
)

// Size returns the approximate size of a stream in a list, in bytes.
func (i *StreamInfo) Size() int {
	size := 1024 + len(i.Config.Description) + metadataSize(i.Config.Metadata)
	for _, s := range i.Config.Subjects {
		size += len(s) + 3
	}
	return size
}

// Size returns the approximate size of a consumer in a list, in bytes.
func (i *ConsumerInfo) Size() int {
	size := 1024 + len(i.Config.Description) + metadataSize(i.Config.Metadata) + 20*len(i.Config.Backoff)
	for _, s := range i.Config.Filters() {
		size += len(s) + 3
	}
	return size
}

// Add adds the numbers of one shard.
func (i *ConsumerInfo) Add(shard *ConsumerInfo) {
	if shard == nil {
		return
	}
	i.Delivered.add(&shard.Delivered)
	i.AckFloor.add(&shard.AckFloor)
	i.NumAckPending += shard.NumAckPending
	i.NumRedelivered += shard.NumRedelivered
	i.NumPending += shard.NumPending
	i.PushBound = i.PushBound || shard.PushBound
	i.Paused = i.Paused || shard.Paused
	i.PauseRemaining = max(i.PauseRemaining, shard.PauseRemaining)
}

func (i *SequenceInfo) add(shard *SequenceInfo) {
	i.Consumer += shard.Consumer
	i.Stream += shard.Stream
	if shard.Last != nil && (i.Last == nil || shard.Last.After(*i.Last)) {
		i.Last = shard.Last
	}
}

// ClusterInfo names the brokers that have a stream.
type ClusterInfo struct {
	Name     string      `json:"name,omitempty"`
	Leader   string      `json:"leader,omitempty"`
	Replicas []*PeerInfo `json:"replicas,omitempty"` // without the leader
}

// InContact is the PeerInfo.Active of a replica that is connected to its leader: they exchange
// messages all the time.
const InContact = time.Millisecond

// PeerInfo is a broker that has or will have a replica of a stream, without its leader.
type PeerInfo struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`           // in sync: it has everything that was acknowledged
	Offline bool   `json:"offline,omitempty"` // not registered
	// Active is how long ago the leader heard of it: InContact, or for how long it has lagged. 0:
	// never.
	Active  time.Duration `json:"active"`
	Lag     uint64        `json:"lag,omitempty"`     // records that it lacks
	Peer    string        `json:"peer,omitempty"`    // broker id
	Pending bool          `json:"pending,omitempty"` // being added or removed
}

// PauseRequest pauses a consumer until a time. Without one it ends a pause.
type PauseRequest struct {
	Until time.Time `json:"pause_until,omitzero"`
}

// PauseResponse answers a ConsumerPause.
type PauseResponse struct {
	Response
	Paused    bool          `json:"paused"`
	Until     time.Time     `json:"pause_until"`
	Remaining time.Duration `json:"pause_remaining,omitempty"`
}

// ResetRequest moves a consumer to a sequence; 0: to its ack floor.
type ResetRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
}

// ResetResponse answers a ConsumerReset.
type ResetResponse struct {
	Response
	*ConsumerInfo
	Sequence uint64 `json:"reset_seq"`
}
