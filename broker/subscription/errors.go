package subscription

import "fmt"

// NotServedReason is why a Subscription is not served, from a closed list.
type NotServedReason string

// The reasons why a Subscription is not served here.
const (
	NoShard NotServedReason = "NoShard" // its Topic's shard is not led here
	NoSuch  NotServedReason = "NoSuch"  // unknown to this broker
	// Opening: its cursor is being read, or its start position is being written.
	Opening     NotServedReason = "Opening"
	Unsupported NotServedReason = "Unsupported" // its spec needs something that is not supported yet
	Troubled    NotServedReason = "Troubled"    // its cursor is unknown
	Closing     NotServedReason = "Closing"     // this broker is stopping
)

// NotServedError reports why a Subscription is not served by this broker.
type NotServedError struct {
	Topic  string // its id
	Name   string
	Reason NotServedReason
	Why    string // for people, with the way out
	Err    error  // what led to it, or nil
}

func (e *NotServedError) Error() string { return fmt.Sprintf("subscription %s: %s", e.Name, e.Why) }

func (e *NotServedError) Unwrap() error { return e.Err }

// ExistsError reports that there is a Subscription of that name.
type ExistsError struct {
	Topic string // its id
	Name  string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("subscription %s: there is one of that name (choose another)", e.Name)
}
