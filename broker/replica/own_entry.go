package replica

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// OwnEntry tracks the last change of this broker's own entry in the in-sync set of a shard. One
// change is under way at a time. All methods may be called concurrently.
//
// The answer to a change may be lost, and the change may still succeed later. That ends when the
// shard's key has another revision, because a change compares the revision that it was made from.
type OwnEntry struct {
	mu       sync.Mutex
	change   EntryChange          // 0: there was none
	self     coordination.Replica // the incarnation that made it
	revision int64                // of the key that it was made from
	underWay bool                 // there is no answer yet
	// definite reports that no change from this revision by this incarnation is needed any more:
	// the change succeeded, or the key or the registration has changed.
	definite  bool
	succeeded bool // the change succeeded, so another revision follows

	vouched   int64                // the revision from which a Vouch was made last
	vouchedAs coordination.Replica // the incarnation that made it
}

// MayHaveVouched reports whether a Vouch from the shard's revision was sent. Then the entry may
// have the current incarnation although the shard does not show it.
func (e *OwnEntry) MayHaveVouched(shard *coordination.Shard, self coordination.Replica) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.vouched == shard.Revision && e.vouchedAs == self
}

// Begin begins a change, unless one is under way or this revision has had a definite answer. It
// reports whether it did.
func (e *OwnEntry) Begin(change EntryChange, shard *coordination.Shard,
	self coordination.Replica) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.underWay || e.definite && e.revision == shard.Revision && e.self == self {
		return false
	}
	if change == Vouch { // of a Vouch and another change from one revision, only the first succeeds
		e.vouched, e.vouchedAs = shard.Revision, self
	}
	e.change, e.self, e.revision = change, self, shard.Revision
	e.underWay, e.definite, e.succeeded = true, false, false
	return true
}

// Answered ends a change. It succeeded, or failed definitely, or neither is known.
func (e *OwnEntry) Answered(succeeded, definite bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.underWay, e.succeeded, e.definite = false, succeeded, definite
}

// SteppedDown reports whether this broker has withdrawn or resigned since that revision of the key.
// Then it does not lead any more, whatever that revision says. A restored etcd grants revisions
// again, in another generation.
func (e *OwnEntry) SteppedDown(shard *coordination.Shard) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.succeeded && e.change != Vouch && shard != nil && e.revision == shard.Revision &&
		e.self.Generation() == shard.Generation
}
