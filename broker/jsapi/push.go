package jsapi

import (
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Bounds of push consumers.
const (
	// minHeartbeat is nats-server's.
	minHeartbeat = 100 * time.Millisecond
	// maxDeliverSubject bounds the deliver subject and the deliver group in bytes, as subjects of
	// manifests are. Inboxes of clients have less than 64.
	maxDeliverSubject = 255
)

// checkPush checks the settings of a push consumer.
func (c *ConsumerConfig) checkPush(stream *StreamConfig) *Error {
	to := []byte(c.DeliverSubject)
	switch {
	case slices.ContainsFunc(strings.Split(c.DeliverSubject, "."), func(token string) bool { return token == "*" || token == ">" }):
		return ErrConsumerDeliverToWildcards
	case !subject.Valid(to) || len(to) > maxDeliverSubject:
		return ErrConsumerInvalidDeliverSubject
	case slices.ContainsFunc(stream.Subjects, func(s string) bool { return subject.Matches([]byte(s), to) }):
		return ErrConsumerDeliverCycle
	case c.MaxWaiting != 0:
		return ErrConsumerPushMaxWaiting
	case c.MaxAckPending > 0 && c.AckPolicy == ackNone:
		return ErrConsumerMaxPendingAckPolicyRequired
	case c.Heartbeat > 0 && c.Heartbeat < minHeartbeat:
		return ErrConsumerSmallHeartbeat
	case c.FlowControl && c.Heartbeat == 0:
		return ErrConsumerWithFlowControlNeedsHeartbeats
	case len(c.DeliverGroup) > maxDeliverSubject:
		return ErrConsumerCreate.With("deliver_group is longer than 255 bytes")
	}
	return nil
}

// normalizePull checks the settings of a pull consumer and fills in its defaults. nats-server
// ignores a deliver_group here.
func (c *ConsumerConfig) normalizePull(stream *StreamConfig) *Error {
	switch {
	case c.AckPolicy == ackNone && stream.IsWorkQueue():
		return ErrConsumerPullRequiresAck
	case c.RateLimit > 0:
		return ErrConsumerPullWithRateLimit
	case c.Heartbeat > 0:
		return ErrConsumerHBRequiresPush
	case c.FlowControl:
		return ErrConsumerFCRequiresPush
	case c.MaxRequestExpires != 0 && c.MaxRequestExpires < minExpires:
		return ErrConsumerMaxRequestExpiresTooSmall
	case c.DeliverGroup != "":
		return ErrConsumerCreate.With("deliver_group requires a deliver_subject")
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = DefaultMaxWaiting
	}
	return nil
}
