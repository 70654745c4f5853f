package jsapi

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// priorityPolicies are the policies as in JSON. That of no priorities is left out of answers.
var priorityPolicies = map[string]coordination.PriorityPolicy{
	"":                  "",
	priorityOverflow:    coordination.PriorityOverflow,
	priorityPinned:      coordination.PriorityPinned,
	priorityPrioritized: coordination.PriorityPrioritized,
}

// Refusals of priority settings.
var (
	ErrConsumerPriorityPolicyWithoutGroup   = &Error{400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"}
	ErrConsumerInvalidPriorityGroup         = &Error{400, 10160, "Provided priority group does not exist for this consumer"}
	ErrConsumerEmptyGroupName               = &Error{400, 10161, "Group name cannot be an empty string"}
	ErrConsumerInvalidGroupName             = &Error{400, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"}
	ErrConsumerPushWithPriorityGroup        = &Error{400, 10178, "priority groups can not be used with push consumers"}
	ErrConsumerPriorityGroupWithoutPolicy   = &Error{400, 10196, "consumer can not have priority groups when policy is none"}
	ErrConsumerPriorityTimeoutWithoutPolicy = &Error{400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"}
)

const (
	// maxGroupName is the longest name of a priority group.
	maxGroupName = 16
	// maxGroups bounds the priority groups of a consumer, which is stored in etcd.
	maxGroups = 64
	// defaultPriorityTimeout is how long a pinned client may be silent.
	defaultPriorityTimeout = 2 * time.Minute
)

// normalizePriorities checks the priority settings, as nats-server does.
func (c *ConsumerConfig) normalizePriorities() *Error {
	c.PriorityTimeout = max(c.PriorityTimeout, 0)
	if c.PriorityPolicy == priorityNone {
		c.PriorityPolicy = ""
		switch {
		case len(c.PriorityGroups) > 0:
			return ErrConsumerPriorityGroupWithoutPolicy
		case c.PriorityTimeout > 0:
			return ErrConsumerPriorityTimeoutWithoutPolicy
		}
		c.PriorityGroups = nil
		return nil
	}
	switch {
	case c.DeliverSubject != "":
		return ErrConsumerPushWithPriorityGroup
	case len(c.PriorityGroups) == 0:
		return ErrConsumerPriorityPolicyWithoutGroup
	case len(c.PriorityGroups) > maxGroups:
		return ErrConsumerCreate.With(fmt.Sprintf("%d priority groups; at most %d are served", len(c.PriorityGroups), maxGroups))
	}
	for _, group := range c.PriorityGroups {
		if err := checkGroup(group); err != nil {
			return err
		}
	}
	if c.PriorityPolicy == priorityPinned && c.PriorityTimeout == 0 {
		c.PriorityTimeout = defaultPriorityTimeout
	}
	return nil
}

// checkGroup checks the name of a priority group.
func checkGroup(name string) *Error {
	switch {
	case name == "":
		return ErrConsumerEmptyGroupName
	case len(name) > maxGroupName || slices.ContainsFunc([]byte(name), func(b byte) bool {
		return !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '/' || b == '_' || b == '=' || b == '-')
	}):
		return ErrConsumerInvalidGroupName
	}
	return nil
}

// CheckPriority checks a pull against the priority settings of its consumer. refusal is as in
// ParsePull.
func (p *Pull) CheckPriority(policy coordination.PriorityPolicy, groups []string) (refusal []byte) {
	switch {
	case (p.MinPending != 0 || p.MinAckPending != 0) && policy != coordination.PriorityOverflow:
		return badPull("Not a Overflow Priority consumer")
	case p.ID != "" && policy != coordination.PriorityPinned:
		return badPull("Not a Pinned Client Priority consumer")
	case policy == "" || !p.formal:
		return nil
	case p.Group == "":
		return badPull("Priority Group missing")
	case !slices.Contains(groups, p.Group):
		return badPull("Invalid Priority Group")
	}
	return nil
}

// AppendPinned appends the header block of a message for a pinned client.
func AppendPinned(dst, header []byte, pin string) []byte {
	dst = appendOwn(dst, header)
	dst = append(dst, "Nats-Pin-Id: "...)
	dst = append(dst, pin...)
	return append(dst, "\r\n\r\n"...)
}

// UnpinRequest unpins the client of a priority group.
type UnpinRequest struct {
	Group string `json:"group"`
}

// Check reports a request without a valid group.
func (r *UnpinRequest) Check() *Error {
	if r.Group == "" {
		return ErrInvalidJSON.With("consumer group not specified")
	}
	return checkGroup(r.Group)
}

// PriorityGroup is the state of a priority group.
type PriorityGroup struct {
	Group  string     `json:"group"`
	Pin    string     `json:"pinned_client_id,omitempty"`
	Pinned *time.Time `json:"pinned_ts,omitempty"`
}
