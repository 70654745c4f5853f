package subscription

import (
	"time"

	"github.com/carillon-mq/carillon/broker/log"
)

// DeliverySink sends deliveries to the clients that requested them. It gathers what the other methods are
// given and sends it at Flush. All methods but Flush are called under the Subscription's lock; calls
// never overlap, except with Interested.
type DeliverySink interface {
	// Deliver takes one record. d and r, and what they point to, are valid during the call only.
	Deliver(to []byte, d *Delivery, r *log.Record)
	// End says that the request gets nothing more, and how much of what it asked for it didn't get.
	End(to []byte, why End, messages, bytes int)
	// Heartbeat says that there is nothing new, and what was delivered last.
	Heartbeat(to []byte, lastSequence, lastOffset uint64)
	// Flush sends what was gathered.
	Flush()
	// Interested says whether anybody still listens there.
	Interested(to []byte) bool
}

// Sizer is optionally implemented by a DeliverySink: it says how many bytes a delivery counts towards a request's
// MaxBytes. Without it those are the bytes of subject, header and payload.
type Sizer interface {
	Size(d *Delivery, r *log.Record) int
}

// Delivery is one record on its way to who asked for it.
type Delivery struct {
	Topic, Name string // of the Topic and the Subscription
	Delivered   uint64 // how often, this time included
	Offset      uint64
	Sequence    uint64 // counts all deliveries of the Subscription
	Time        int64  // when the record was kept, in nanoseconds since 1970
	Pending     uint64 // records yet to deliver, after this one
	// HeadersOnly says that the Subscription's spec asks for no payloads (spec.Consumer.HeadersOnly).
	HeadersOnly bool
}

// End is why a request ends other than by its last message.
type End uint8

// The reasons for which requests end.
const (
	Expired        End = iota + 1 // its time is over
	NoMessages                    // there is nothing, or nothing more, and it doesn't wait
	BatchDone                     // it has all its messages, and some of its bytes are left
	MaxBytes                      // the next message is larger than what is left of its bytes
	TooManyWaiting                // others wait already, as many as may
	Deleted                       // the Subscription is gone
	LeaderGone                    // this broker doesn't lead the shard any more
	Stopping                      // this broker is stopping
	Ready                         // there is something to deliver, and it only wanted to know
)

func (e End) String() string {
	names := [...]string{"", "Expired", "NoMessages", "BatchDone", "MaxBytes", "TooManyWaiting", "Deleted", "LeaderGone", "Stopping", "Ready"}
	if int(e) < len(names) {
		return names[e]
	}
	return "unknown"
}

// Pull asks for messages.
type Pull struct {
	To        []byte // where they go; copied
	Batch     int    // how many; less than 1 is 1
	MaxBytes  int    // 0: no bound
	Expires   time.Duration
	NoWait    bool          // end when there is nothing more; with Expires, not before there was something
	Heartbeat time.Duration // 0: none
	// Peek only wants to know whether there is something that could be delivered now. It needs no To.
	Peek bool
}

// Outcome is how a request ended.
type Outcome struct {
	Why             End // 0: it has got all
	Messages, Bytes int // that it asked for and didn't get
}

// AckKind is what a receiver says about a record.
type AckKind uint8

// The kinds of acks.
const (
	Done     AckKind = iota + 1 // it is dealt with
	Retry                       // deliver it again, after the delay
	Progress                    // it takes longer: begin the wait anew
	Term                        // never deliver it again
)

// Info is where a Subscription stands.
type Info struct {
	DeliveredSequence, DeliveredOffset uint64 // of the last delivery; the offset is also past what the filter left out
	FloorSequence, FloorOffset         uint64 // all up to there is dealt with
	Pending                            int    // delivered, and not dealt with
	Redelivered                        int    // of these, those that were delivered more than once
	Waiting                            int    // requests
	Lag                                uint64 // records yet to deliver
	LagExact                           bool   // or else Lag is what it may be at most
	LastDelivered, LastAcked           time.Time
	Exhausted                          uint64 // given up after their last attempt, since this broker leads
	Lost                               uint64 // skipped because they can't be read, since this broker leads
	Trouble                            string // empty: none
}
