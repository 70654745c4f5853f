package topic

import (
	"errors"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// word is what this broker last said of its copy in the shard's key. One is under way at a time.
//
// Its answer may be lost, and then it may be done yet. That is over once the key has another revision,
// since what was said compares the one that it was made from.
type word struct {
	mu       sync.Mutex
	said     replica.Word         // 0: nothing was said
	self     coordination.Replica // by whom
	revision int64                // of the key that it was made from
	flying   bool                 // there is no answer yet
	settled  bool                 // the answer is definite: another revision follows, or another life
	done     bool                 // it was done, so that another revision follows

	vouched   int64                // the revision from which a Vouch was made last
	vouchedAs coordination.Replica // and by whom
}

// mayVouch says whether the entry may be vouched for by now although the shard doesn't show it.
func (w *word) mayVouch(shard *coordination.Shard, self coordination.Replica) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vouched == shard.Revision && w.vouchedAs == self
}

// begin says whether a word is to be said now: none is under way, and this revision has had no definite answer.
func (w *word) begin(said replica.Word, shard *coordination.Shard, self coordination.Replica) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.flying || w.settled && w.revision == shard.Revision && w.self == self {
		return false
	}
	if said == replica.Vouch { // with another word made from the same revision, whichever comes first has the other refused
		w.vouched, w.vouchedAs = shard.Revision, self
	}
	w.said, w.self, w.revision, w.flying, w.settled = said, self, shard.Revision, true, false
	w.done = false
	return true
}

func (w *word) answered(done, settled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying, w.done, w.settled = false, done, settled
}

// left reports whether this broker has withdrawn or resigned since that revision of the key, so that
// it does not lead any more, whatever that revision says.
func (w *word) left(shard *coordination.Shard) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done && w.said != replica.Vouch && shard != nil && w.revision == shard.Revision
}

// say says something of the copy in the shard's key, unless it is being said.
func (s *Service) say(p *Shard, v *view, what replica.Word, leads bool) {
	me, registered := s.State().Broker(s.config.Self)
	if !registered || !p.own.word.begin(what, v.shard, me.Replica()) {
		return
	}
	s.config.Exchange.Say(what, me.Replica(), v.shard, p.reach(), leads, func(after *coordination.Shard, err error) {
		_, stale := errors.AsType[*coordination.StaleError](err)
		p.own.word.answered(err == nil, err == nil || stale)
		switch {
		case err == nil && what == replica.Withdraw:
			s.log.Warn("withdrew a copy from the in-sync set", "topic", p.Name(), "epoch", after.Epoch)
		case err == nil && what == replica.Resign:
			s.log.Warn("resigned, to lead under another epoch only", "topic", p.Name(), "epoch", after.Epoch)
		case err != nil && !stale && s.ctx.Err() == nil:
			s.log.Debug("could not say in the shard's key what a copy is; trying again", "topic", p.Name(), "saying", what.String(), "error", err)
			s.openMu.Lock()
			s.unsaid[p] = struct{}{}
			s.openMu.Unlock()
			return
		}
		s.wake(p) // something else may be to be said by now
	})
}

// sayAgain has those looked at whose last word has no answer.
func (s *Service) sayAgain() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for p := range s.unsaid {
		s.wake(p)
	}
	clear(s.unsaid)
}
