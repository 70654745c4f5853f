package subscription

import (
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// DeliverySink sends deliveries to the clients that requested them. It gathers the arguments of its
// other methods and sends them at Flush. All methods but Flush are called under the Subscription's
// lock. Calls never overlap, except with Interested and Watch.
type DeliverySink interface {
	// Deliver adds one record. d and r, and what they refer to, are valid during the call only.
	Deliver(to []byte, d *Delivery, r *log.Record)
	// End ends a request. messages and bytes were requested and not delivered.
	End(to []byte, why End, messages, bytes int)
	// Heartbeat reports that there is nothing new, and what was delivered last. stalled is the
	// token of the flow control request without whose answer nothing is sent, or 0.
	Heartbeat(to []byte, lastSequence, lastOffset, stalled uint64)
	// FlowControl requests an answer with the token, by Subscription.FlowControlled, from a
	// receiver that has everything that was sent before.
	FlowControl(to []byte, token uint64)
	// Flush sends what was gathered.
	Flush()
	// Interested reports whether the destination still has a subscriber.
	Interested(to []byte) bool
	// Watch watches the subscribers of a push's destination: those of the queue group, or those
	// outside of groups if group is empty. While the user, if there is one, has no right to have
	// messages delivered there, it has none. changed is called when the first one came or the last
	// one went. It does not block.
	Watch(user string, to []byte, group string, changed func()) Interest
}

// Interest knows whether a destination has subscribers.
type Interest interface {
	// Present is cheap, since it is called before each delivery.
	Present() bool
	Stop()
}

// Sizer is optionally implemented by a DeliverySink. Size returns the bytes that a delivery counts
// towards MaxBytes of a request. Without it, those of subject, header and payload count.
type Sizer interface {
	Size(d *Delivery, r *log.Record) int
}

// ExhaustedSink is optionally implemented by a DeliverySink. Exhausted reports that a record was
// given up after as many deliveries as the Subscription permits. It does not block.
type ExhaustedSink interface {
	Exhausted(offset, deliveries uint64)
}

// Delivery describes one delivery of a record.
type Delivery struct {
	Topic, Name string // of the Topic and the Subscription
	Delivered   uint64 // deliveries of this record, including this one
	Offset      uint64
	Sequence    uint64 // counts all deliveries of the Subscription
	Time        int64  // of the record, in nanoseconds since 1970
	Pending     uint64 // records to deliver after this one
	// Pin is the pinned client that it is for; empty: none.
	Pin string
	// HeadersOnly leaves out the payload (spec.Consumer.HeadersOnly).
	HeadersOnly bool
}

// End is the reason why a request ends without its last message.
type End uint8

// The reasons of ends.
const (
	Expired        End = iota + 1 // its time is over
	NoMessages                    // no record is available, and it does not wait
	BatchDone                     // all messages were delivered, and some of MaxBytes is left
	MaxBytes                      // the next message exceeds the rest of MaxBytes
	TooManyWaiting                // too many requests are waiting
	Deleted                       // the Subscription was deleted
	LeaderGone                    // this broker leads the shard no longer
	Stopping                      // this broker is stopping
	Ready                         // a Peek found a record
	Pushed                        // the Subscription delivers to a subject or a URL, so nobody may pull
	PinMismatch                   // another client is pinned
	WrongPin                      // it waited for a pin that is not valid any more
	Superseded                    // a relay with a later claim pulls
)

func (e End) String() string {
	names := [...]string{"", "Expired", "NoMessages", "BatchDone", "MaxBytes", "TooManyWaiting", "Deleted", "LeaderGone", "Stopping", "Ready", "Pushed", "PinMismatch", "WrongPin", "Superseded"}
	if int(e) < len(names) {
		return names[e]
	}
	return "unknown"
}

// Pull requests messages.
type Pull struct {
	To        []byte // destination; copied
	Batch     int    // number of messages; less than 1 is 1
	MaxBytes  int    // 0: no bound
	Expires   time.Duration
	NoWait    bool          // end when nothing is available; with Expires, wait for the first message
	Heartbeat time.Duration // 0: none
	// MinPending and MinAckPending are the numbers of records that wait, or that are pending, from
	// which on it is served. One of them is enough; 0: any number. For the policy Overflow.
	MinPending, MinAckPending int64
	// Priority is served before all greater ones. For the policy Prioritized.
	Priority int
	// Group is the priority group; empty: none. Without one its client is not pinned.
	Group string
	// Pin is that of a delivery to this client; empty: none. For the policy Pinned.
	Pin string
	// Peek waits for a deliverable record without delivering it. It needs no To.
	Peek bool
	// Relay: the relay of a push consumer asks, which merges the shards of a Topic. Only a relay may
	// pull from a Subscription with a deliver subject then. The record that crosses MaxBytes is
	// delivered, and is the last one, so that a relay need not know how large records are. With NoWait
	// it ends when nothing is available, and after Expires at the latest.
	Relay bool
	// Claim is that of the relay.
	Claim Claim
}

// names returns the bytes of the names in it.
func (p *Pull) names() int { return len(p.To) + len(p.Group) + len(p.Pin) }

// Outcome is the result of a request.
type Outcome struct {
	Why             End // 0: all messages were delivered
	Messages, Bytes int // requested and not delivered
}

// AckKind is the kind of an ack.
type AckKind uint8

// The kinds of acks.
const (
	Done     AckKind = iota + 1 // the record is processed
	Retry                       // deliver it again, after the delay
	Progress                    // processing takes longer: restart the ack wait
	Term                        // never deliver it again
)

// Info is the state of a Subscription.
type Info struct {
	// Of the last delivery; the offset includes skipped records.
	DeliveredSequence, DeliveredOffset uint64
	FloorSequence, FloorOffset         uint64 // nothing up to here is pending
	Pending                            int    // delivered and not acknowledged
	Redelivered                        int    // of Pending, delivered more than once
	Waiting                            int    // requests
	// Bound: it delivers to a subject, and somebody is subscribed to that.
	Bound                    bool
	PausedFor                time.Duration // until it delivers again; 0: it is not paused
	Pin                      string        // of the pinned client; empty: none
	Pinned                   time.Time     // since when
	Lag                      uint64        // records yet to deliver
	LagExact                 bool          // else Lag is an upper bound
	LastDelivered, LastAcked time.Time
	// Exhausted counts messages dropped after the maximum of deliveries, since this broker leads.
	Exhausted uint64
	// Lost counts messages skipped because they cannot be read, since this broker leads.
	Lost    uint64
	Trouble string // empty: none
	// Unjudged counts records that the condition could not judge, since this broker leads. They don't
	// match. UnjudgedWhy is why it could not judge one of the newest; empty: it judged all.
	Unjudged    uint64
	UnjudgedWhy string
	// DeadLettered counts records that were given up and stored in the dead-letter Topic, since this
	// broker leads. GivenUp are those that wait for that, and DeadLetterTrouble says why they do;
	// empty: they were not refused.
	DeadLettered      uint64
	GivenUp           int
	DeadLetterTrouble string
	// Endpoint is the state of the endpoint that it pushes to, if Pushes.
	Pushes   bool
	Endpoint EndpointInfo
}
