package subscription

import "fmt"

// NotServedReason is from a closed list.
type NotServedReason string

// The reasons for which a Subscription is not served here.
const (
	NoShard     NotServedReason = "NoShard"     // its Topic's shard is not led here
	NoSuch      NotServedReason = "NoSuch"      // there is none of that name, as far as this broker knows
	Opening     NotServedReason = "Opening"     // where it stands is being read, or where it starts being written
	Unsupported NotServedReason = "Unsupported" // it asks for what brokers can't serve yet
	Troubled    NotServedReason = "Troubled"    // where it stands can't be known
	Closing     NotServedReason = "Closing"     // this broker is stopping
)

// NotServedError says why a Subscription is not served by this broker.
type NotServedError struct {
	Topic  string // its id
	Name   string
	Reason NotServedReason
	Why    string // for people, with the way out
	Err    error  // what led to it, or nil
}

func (e *NotServedError) Error() string { return fmt.Sprintf("subscription %s: %s", e.Name, e.Why) }

func (e *NotServedError) Unwrap() error { return e.Err }

// ExistsError says that there is a Subscription of that name.
type ExistsError struct {
	Topic string // its id
	Name  string
}

func (e *ExistsError) Error() string {
	return fmt.Sprintf("subscription %s: there is one of that name (choose another)", e.Name)
}
