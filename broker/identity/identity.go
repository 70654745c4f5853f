package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Identity is who a client is, and what it may do. A nil *Identity may do everything: the client of
// a broker without users. Its methods are safe for concurrent use and allocate nothing.
type Identity struct {
	// Name is the user's name. It is unique, and may be shown.
	Name  string
	Roles Roles
	// Expires is when the user's access ends; zero: never.
	Expires time.Time
	Limits  Limits
	// Permissions are what the rights were compiled from, to be shown; nil: everything.
	Permissions *Permissions

	rights *rights
}

// Limits bound what one user may take of a broker or of the cluster. 0: as much as any client.
type Limits struct {
	// Connections is how many connections to one broker a user may have at a time.
	Connections int `json:"connections,omitempty"`
	// Subscriptions is how many subscriptions a connection may have.
	Subscriptions int `json:"subscriptions,omitempty"`
	// SubscriptionBytes bounds the memory of a connection's subscriptions, as the broker counts it.
	SubscriptionBytes int `json:"subscriptionBytes,omitempty"`
	// Tokens is the most tokens of a subscription's subject.
	Tokens int `json:"tokens,omitempty"`
	// Payload is the largest message in bytes, with its header.
	Payload int `json:"payload,omitempty"`
	// Messages and Bytes are how much all connections of a user to the cluster may publish a second.
	// Bytes are those of Payload.
	Messages int `json:"messages,omitempty"`
	Bytes    int `json:"bytes,omitempty"`
	// Streams is how many streams that the user made may exist in the cluster.
	Streams int `json:"streams,omitempty"`
	// Consumers is how many consumers that the user made may exist: the durable ones of the cluster,
	// and those without a durable name of the streams that one broker leads.
	Consumers int `json:"consumers,omitempty"`
	// Pulls is how many requests of the user for messages of consumers may wait or be served at a time
	// on one broker, which is the one that leads the stream.
	Pulls int `json:"pulls,omitempty"`
	// Snapshots is how many snapshots of the user one broker holds at a time.
	Snapshots int `json:"snapshots,omitempty"`
	// StoredBytes bounds the sum of what the streams that the user made may store, on all replicas.
	// Each needs a bound then.
	StoredBytes int `json:"storedBytes,omitempty"`
}

// named returns the limits with their names in a Document.
func (l *Limits) named() []namedLimit {
	return []namedLimit{
		{"connections", l.Connections}, {"subscriptions", l.Subscriptions}, {"subscriptionBytes", l.SubscriptionBytes},
		{"tokens", l.Tokens}, {"payload", l.Payload},
		{"messages", l.Messages}, {"bytes", l.Bytes},
		{"streams", l.Streams}, {"consumers", l.Consumers}, {"storedBytes", l.StoredBytes},
		{"pulls", l.Pulls}, {"snapshots", l.Snapshots},
	}
}

type namedLimit struct {
	name string
	most int
}

// check refuses limits below 0.
func (l *Limits) check() error {
	for _, is := range l.named() {
		if is.most < 0 {
			return fmt.Errorf("limits.%s: give a number above 0, or leave it out", is.name)
		}
	}
	return nil
}

// String returns the limits that there are, such as "connections 10, messages 5000".
func (l *Limits) String() string {
	var all []string
	for _, is := range l.named() {
		if is.most > 0 {
			all = append(all, fmt.Sprintf("%s %d", is.name, is.most))
		}
	}
	return strings.Join(all, ", ")
}

// Single returns the identity of the only user of a broker, who may do everything.
func Single(name string) *Identity { return &Identity{Name: name, Roles: AllRoles} }

// Revoked returns the identity of the user after it has lost all rights.
func (i *Identity) Revoked() *Identity {
	return &Identity{Name: i.Name, rights: noRights()}
}

// MayPublish reports whether a message may be published on the subject.
func (i *Identity) MayPublish(to []byte) bool {
	return i == nil || i.Roles.mayAsk(to) && i.rights.mayPublish(to)
}

// MayPublishAll reports whether messages may be published on all subjects of the pattern.
func (i *Identity) MayPublishAll(pattern string) bool {
	return i == nil || i.Roles.mayAskAll(pattern) && i.rights.mayPublishAll(pattern)
}

// MaySubscribe reports whether a subscription to the pattern is allowed, in the queue group or, if
// it is empty, in none.
func (i *Identity) MaySubscribe(pattern, queue []byte) bool {
	return i == nil || i.Roles.maySubscribe(pattern) && i.rights.maySubscribe(pattern, queue)
}

// SubscribeDigest returns a number that is equal for users with equal rights to subscribe, at every
// broker.
func (i *Identity) SubscribeDigest() uint64 {
	if i == nil {
		return 0
	}
	is := struct {
		Roles     Roles
		All       bool
		Subscribe *Subjects
	}{i.Roles, i.rights == nil, nil}
	if i.Permissions != nil {
		is.Subscribe = i.Permissions.Subscribe
	}
	text, err := json.Marshal(is)
	if err != nil {
		return rand.Uint64() // never; equal to no other
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// Filters reports whether the messages of an allowed subscription need MayReceive.
func (i *Identity) Filters(pattern, queue string) bool {
	return i != nil && (i.Roles.filters(pattern) || i.rights.filters(pattern, []byte(queue)))
}

// MayReceive reports whether a message on the subject may be delivered to a subscription, in the
// queue group or, if it is empty, in none.
func (i *Identity) MayReceive(on []byte, queue string) bool {
	return i == nil || i.Roles.mayReceive(on) && i.rights.mayReceive(on, queue)
}

// MayRespond reports whether a message may be published on the reply subject of a received message,
// as far as the roles decide.
func (i *Identity) MayRespond(to []byte) bool { return i == nil || i.Roles.mayAsk(to) }

// MaySee reports whether the user may subscribe to the subject of a message, in no queue group. So
// it may read the message where it is stored.
func (i *Identity) MaySee(on []byte) bool {
	return i == nil || i.Roles.mayReceive(on) && i.rights.maySee(on)
}

// MaySeeAll reports whether MaySee is true for all subjects that the pattern matches, as far as
// permissions decide. Roles may deny reserved subjects among them.
func (i *Identity) MaySeeAll(pattern string) bool { return i == nil || i.rights.maySeeAll(pattern) }

// MaySeeSome reports whether MaySee may be true for a subject that the pattern matches. It may
// report true for none if several denied patterns together have all of them.
func (i *Identity) MaySeeSome(pattern string) bool { return i == nil || i.rights.maySeeSome(pattern) }

// Responses returns how many messages may be published to the reply subject of a received message,
// and within which time. Below 0: without a bound. 0: none.
func (i *Identity) Responses() (most int, within time.Duration) {
	if i == nil || i.rights == nil {
		return 0, 0
	}
	return i.rights.responses, i.rights.responsesExpire
}
