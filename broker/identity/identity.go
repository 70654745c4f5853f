package identity

import "time"

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

// Limits bound what one user may take of a broker. 0: as much as any client.
type Limits struct {
	// Connections is how many connections to one broker a user may have at a time.
	Connections int `json:"connections,omitempty"`
	// Subscriptions is how many subscriptions a connection may have.
	Subscriptions int `json:"subscriptions,omitempty"`
	// Payload is the largest message in bytes, with its header.
	Payload int `json:"payload,omitempty"`
}

// Single returns the identity of the only user of a broker, who may do everything.
func Single(name string) *Identity { return &Identity{Name: name, Roles: AllRoles} }

// Revoked returns the identity of the user after it has lost all rights.
func (i *Identity) Revoked() *Identity {
	none := rule{deny: newPatterns([]string{">"})}
	return &Identity{Name: i.Name, rights: &rights{publish: none, subscribe: none}}
}

// MayPublish reports whether a message may be published on the subject.
func (i *Identity) MayPublish(to []byte) bool {
	return i == nil || i.Roles.mayAsk(to) && i.rights.mayPublish(to)
}

// MaySubscribe reports whether a subscription to the pattern is allowed, in the queue group or, if
// it is empty, in none.
func (i *Identity) MaySubscribe(pattern, queue []byte) bool {
	return i == nil || i.Roles.maySubscribe(pattern) && i.rights.maySubscribe(pattern, queue)
}

// Filters reports whether the messages of an allowed subscription need MayReceive.
func (i *Identity) Filters(pattern string) bool {
	return i != nil && (i.Roles.filters(pattern) || i.rights.filters(pattern))
}

// MayReceive reports whether a message on the subject may be delivered.
func (i *Identity) MayReceive(on []byte) bool {
	return i == nil || i.Roles.mayReceive(on) && i.rights.mayReceive(on)
}

// MayRespond reports whether a message may be published on the reply subject of a received message,
// as far as the roles decide.
func (i *Identity) MayRespond(to []byte) bool { return i == nil || i.Roles.mayAsk(to) }

// Responses returns how many messages may be published to the reply subject of a received message,
// and within which time. Below 0: without a bound. 0: none.
func (i *Identity) Responses() (most int, within time.Duration) {
	if i == nil || i.rights == nil {
		return 0, 0
	}
	return i.rights.responses, i.rights.responsesExpire
}
