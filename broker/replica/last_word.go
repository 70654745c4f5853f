package replica

import (
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// LastWord is the last Word of this broker about its copy of a shard. One is under way at a time.
// All methods may be called concurrently.
//
// The answer to a word may be lost, and then the word may still be done. That is over once the key
// has another revision, since a word compares the revision that it was made from.
type LastWord struct {
	mu       sync.Mutex
	said     Word                 // 0: nothing was said
	self     coordination.Replica // by whom
	revision int64                // of the key that it was made from
	flying   bool                 // there is no answer yet
	settled  bool                 // the answer is definite: another revision follows, or another life
	done     bool                 // it was done, so that another revision follows

	vouched   int64                // the revision from which a Vouch was made last
	vouchedAs coordination.Replica // and by whom
}

// MayVouch reports whether the entry may be vouched for by now although the shard does not show it.
func (w *LastWord) MayVouch(shard *coordination.Shard, self coordination.Replica) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vouched == shard.Revision && w.vouchedAs == self
}

// Begin reports whether a word is to be said now: none is under way, and this revision has had no
// definite answer.
func (w *LastWord) Begin(said Word, shard *coordination.Shard, self coordination.Replica) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flying || w.settled && w.revision == shard.Revision && w.self == self {
		return false
	}
	if said == Vouch { // with another word made from the same revision, whichever comes first has the other refused
		w.vouched, w.vouchedAs = shard.Revision, self
	}
	w.said, w.self, w.revision, w.flying, w.settled = said, self, shard.Revision, true, false
	w.done = false
	return true
}

// Answered ends a word: it was done, or the answer is definite, or neither is known.
func (w *LastWord) Answered(done, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying, w.done, w.settled = false, done, settled
}

// Left reports whether this broker has withdrawn or resigned since that revision of the key, so
// that it does not lead any more, whatever that revision says. An etcd that was restored from a
// backup has revisions granted again, in another generation.
func (w *LastWord) Left(shard *coordination.Shard) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done && w.said != Vouch && shard != nil && w.revision == shard.Revision && w.self.Generation() == shard.Generation
}
