package jsapi

import "strconv"

// ServerVersion is the version of nats-server that clients see: the release whose API level is
// APILevel. Clients choose features by it.
const ServerVersion = "2.14.0"

// APILevel is the JetStream API level of this implementation: the highest level that a served
// setting requires (allow_batched). A setting of such a level that is not served is refused
// by name. A stream, a consumer or a request that requires a higher level is refused.
const APILevel = 4

// RequiredLevelHeader is the header of a request that requires an API level.
const RequiredLevelHeader = "Nats-Required-Api-Level"

// Metadata that the server adds to configurations in its answers. Clients send it back when they
// copy a configuration, so it is removed from requests and never stored.
const (
	levelMetadata         = "_nats.level"
	versionMetadata       = "_nats.ver"
	requiredLevelMetadata = "_nats.req.level"
)

// Versioned returns the configuration as answers show it: with the server's version, its API level
// and the level that the configuration requires. Its metadata is a copy.
func (c StreamConfig) Versioned() StreamConfig {
	c.Metadata = versioned(c.Metadata, c.requiredLevel())
	return c
}

// Versioned returns the configuration as answers show it, as that of StreamConfig does.
func (c ConsumerConfig) Versioned() ConsumerConfig {
	c.Metadata = versioned(c.Metadata, c.requiredLevel())
	return c
}

func versioned(metadata map[string]string, required int) map[string]string {
	shown := make(map[string]string, len(metadata)+3)
	for key, value := range metadata {
		shown[key] = value
	}
	shown[versionMetadata] = ServerVersion
	shown[levelMetadata] = strconv.Itoa(APILevel)
	shown[requiredLevelMetadata] = strconv.Itoa(required)
	return shown
}

// requiredLevel returns the API level in which nats-server introduced the newest setting in use.
func (c *StreamConfig) requiredLevel() int {
	switch {
	case c.AllowBatched:
		return 4
	case c.AllowCounter, c.AllowAtomic, c.AllowSchedules, c.PersistMode == asyncPersist:
		return 2
	case c.AllowMessageTTL, c.SubjectDeleteMarkerTTL > 0:
		return 1
	}
	return 0
}

// requiredLevel returns the API level in which nats-server introduced the newest setting in use.
func (c *ConsumerConfig) requiredLevel() int {
	prioritized := c.PriorityPolicy != "" && c.PriorityPolicy != priorityNone
	switch {
	case c.AckPolicy == ackFlowControl:
		return 4
	case c.PauseUntil != nil && !c.PauseUntil.IsZero(),
		prioritized, len(c.PriorityGroups) > 0, c.PriorityTimeout != 0:
		return 1
	}
	return 0
}

// LevelServed reports whether a required API level, as text, is at most APILevel.
func LevelServed(required []byte) bool {
	level, ok := ParseUint(required)
	return ok && level <= APILevel
}

// userMetadata returns the metadata without what the server added to an earlier answer. It refuses
// a required level that is not served.
func userMetadata(metadata map[string]string) (map[string]string, *Error) {
	if needs := metadata[requiredLevelMetadata]; needs != "" && !LevelServed([]byte(needs)) {
		return nil, ErrRequiredAPILevel
	}
	return ownMetadata(metadata), nil
}

// ownMetadata returns the metadata without what the server added. It is nil if nothing is left.
func ownMetadata(metadata map[string]string) (own map[string]string) {
	for key, value := range metadata {
		if key == requiredLevelMetadata || key == versionMetadata || key == levelMetadata {
			continue
		}
		if own == nil {
			own = make(map[string]string, len(metadata))
		}
		own[key] = value
	}
	return own
}
