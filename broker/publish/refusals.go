package publish

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/carillon-mq/carillon/broker/log"
)

type refusedFor int

const (
	forNotServed refusedFor = iota
	forSize
	forCondition
	forWindow
	forRequest
	forOverload
	forSpace
	forFailure
	refusals
)

var refusedWords = [refusals]string{"not_served", "too_large", "condition", "window_full", "request", "overloaded", "no_space", "failed"}

// Refusals counts refused messages by reason. Its zero value is ready; goroutines may share it.
type Refusals struct {
	counts [refusals]atomic.Uint64
}

// Note counts a message that was refused with err.
func (r *Refusals) Note(err error) { r.counts[reasonOf(err)].Add(1) }

// Counts returns the counters by the names that metrics give the reasons.
func (r *Refusals) Counts() map[string]uint64 {
	out := make(map[string]uint64, refusals)
	for i := range r.counts {
		out[refusedWords[i]] = r.counts[i].Load()
	}
	return out
}

func reasonOf(err error) refusedFor {
	switch e := err.(type) { // it is an unwrapped error of this package
	case *NotServedError:
		return forNotServed
	case *TooLargeError:
		return forSize
	case *WrongTopicError, *WrongLastError, *WrongLastIDError, *NotAfterError:
		return forCondition
	case *WindowFullError:
		return forWindow
	case *OutboxFullError, *StalledError:
		return forOverload
	case *BatchError:
		switch e.Fault {
		case BatchesOpen:
			return forOverload
		case BatchRewritten:
			return forCondition
		}
		return forRequest
	case *LeadershipLostError, *ForgottenError, *UnconfirmedError:
		return forNotServed
	case *StoreError:
		switch {
		case errors.Is(e.Err, log.ErrOverloaded):
			return forOverload
		case errors.Is(e.Err, syscall.ENOSPC):
			return forSpace
		}
		return forFailure
	}
	return forRequest
}
