package identity

import (
	"fmt"
	"strings"
)

// Role is a set of requests beyond publishing and subscribing that a user may make: those of
// Carillon's own API, and those of the NATS tools about servers.
type Role string

// The roles. Every user may ask for Topics and brokers, which clients need to find their way.
const (
	Publisher  Role = "publisher"  // changes attributes of subjects
	Subscriber Role = "subscriber" // reads records, snapshots, Subscriptions, Views and attributes; opens live queries
	Operator   Role = "operator"   // every request: creates, drains, deletes, asks servers
)

// Roles is a set of roles.
type Roles uint8

const (
	isPublisher Roles = 1 << iota
	isSubscriber
	isOperator
)

// AllRoles are the roles of who connects to a broker without users.
const AllRoles = isPublisher | isSubscriber | isOperator

// DefaultRoles are those of a user without any in its description.
const DefaultRoles = isPublisher | isSubscriber

var roleNames = map[Role]Roles{Publisher: isPublisher, Subscriber: isSubscriber, Operator: isOperator}

func parseRoles(names []Role) (of Roles, err error) {
	if names == nil {
		return DefaultRoles, nil
	}
	for _, name := range names {
		role, ok := roleNames[name]
		if !ok {
			return 0, fmt.Errorf("roles: %q is none; choose from publisher, subscriber and operator", name)
		}
		of |= role
	}
	return of, nil
}

// String returns the names with commas between them.
func (r Roles) String() string {
	var names []string
	for _, name := range []Role{Publisher, Subscriber, Operator} {
		if r&roleNames[name] != 0 {
			names = append(names, string(name))
		}
	}
	return strings.Join(names, ",")
}

// Subjects on which requests need a role. What begins with a reserved prefix, and is in no
// list, is for operators, and so are subscriptions there.
var (
	reserved = newPatterns([]string{"$CARILLON.>", "$SYS.>"})
	// everyone, publishers and subscribers are who may make these requests.
	everyone = newPatterns([]string{
		"$CARILLON.API.TOPIC.LIST", "$CARILLON.API.TOPIC.INFO.*", "$CARILLON.API.BROKER.LIST",
		"$SYS.REQ.USER.INFO",
	})
	publishers = newPatterns([]string{
		"$CARILLON.API.ATTRIBUTES.SET", "$CARILLON.API.ATTRIBUTES.DELETE",
	})
	subscribers = newPatterns([]string{
		"$CARILLON.API.RECORDS.>", "$CARILLON.API.SNAPSHOT.>",
		"$CARILLON.API.SUBSCRIPTION.LIST.>", "$CARILLON.API.SUBSCRIPTION.INFO.>",
		"$CARILLON.API.ATTRIBUTES.GET", "$CARILLON.API.ATTRIBUTES.LIST", "$CARILLON.API.QUERY.>",
		"$CARILLON.API.VIEW.LIST", "$CARILLON.API.VIEW.INFO", "$CARILLON.API.VIEW.GET",
	})
)

// mayAsk reports whether a user with the roles may publish on the subject, as far as roles decide.
func (r Roles) mayAsk(to []byte) bool {
	return len(to) == 0 || to[0] != '$' || r&isOperator != 0 || !reserved.matches(to) ||
		everyone.matches(to) || r&isSubscriber != 0 && subscribers.matches(to) || r&isPublisher != 0 && publishers.matches(to)
}

// mayAskAll reports whether a user with the roles may publish on all subjects of the pattern, as
// far as roles decide.
func (r Roles) mayAskAll(pattern string) bool {
	return r&isOperator != 0 || !reserved.overlaps(pattern)
}

// maySubscribe reports whether a user with the roles may subscribe to the pattern, as far as roles
// decide.
func (r Roles) maySubscribe(pattern []byte) bool {
	return r&isOperator != 0 || !reserved.covers(pattern)
}

// filters reports whether messages of an allowed subscription need mayReceive.
func (r Roles) filters(pattern string) bool {
	return r&isOperator == 0 && reserved.overlaps(pattern)
}

// mayReceive reports whether a user with the roles may get a message on the subject.
func (r Roles) mayReceive(on []byte) bool {
	return r&isOperator != 0 || len(on) == 0 || on[0] != '$' || !reserved.matches(on)
}
