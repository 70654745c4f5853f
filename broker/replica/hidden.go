package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
)

// If a leader's manifest was lost, damage may hide where an epoch begins: its log takes the first
// record that can be read for the beginning. By Compare, a follower without records of that epoch
// keeps its own ones in place of the damaged records, up to that beginning. They may be others.
//
//  1. A follower that has records of that epoch, or a manifest that lists it, says where it begins.
//     The leader notes that before it compares the two logs.
//  2. Any other follower doesn't join while another replica may have records of that epoch there.
//     That one joins, and leads since the leader is damaged. Its log says where the epoch begins.
//  3. If no other replica has any, the follower keeps its own records: they may be the leader's,
//     and acknowledged. The leader logs that they may be others.

// errLearning is why a follower has no answer yet that says where the leader's epochs begin.
var errLearning = errors.New("it notes where its epochs begin")

// learnEpochs notes epochs of a log that is led, if they begin in its damaged records by a
// follower's log. All batches of an epoch are from one leader, so the two logs are equal there. An
// error means that the follower has to ask again. The log is in use.
func (l *Leading) learnEpochs(p Part, own, follower Lineage) error {
	lg := l.config.Logs[p]
	if lg.KnowsEpochs() {
		return nil
	}
	begins := own.earlier(follower)
	if len(begins) == 0 {
		return nil
	}
	spans, err := lg.Unreadable()
	if err != nil {
		return err
	}
	spans = union(nil, spans)
	begins = slices.DeleteFunc(begins, func(e log.Epoch) bool {
		i := slices.IndexFunc(own.Epochs, func(o log.Epoch) bool { return o.Epoch == e.Epoch })
		return !covers(spans, log.Span{From: e.Start, Next: own.Epochs[i].Start})
	})
	if len(begins) == 0 {
		return nil
	}
	l.x.disk.Submit(func() {
		if err := l.inUse(func() error { return lg.NoteEpochs(begins) }); err != nil && !errors.Is(err, log.ErrClosed) {
			l.x.warnThrottled("epochs "+lg.Name(), "Could not note where epochs of a damaged log begin", "log", lg.Name(), "error", err)
		}
	}, 0)
	return errLearning
}

// hidden returns the damaged offsets of a log in which an epoch may begin that the follower's log
// has no records of, as far as Compare takes both logs for equal there: up to the offset at.
func (l *Leading) hidden(p Part, own, follower Lineage, at uint64) (span log.Span, err error) {
	lg := l.config.Logs[p]
	if lg.KnowsEpochs() || len(lg.Lacks()) == 0 {
		return span, nil
	}
	common := own.common(follower)
	next := slices.IndexFunc(own.Epochs, func(e log.Epoch) bool { return e.Epoch > common })
	if common == 0 || next < 0 {
		return span, nil
	}
	spans, err := lg.Unreadable()
	if err != nil {
		return span, err
	}
	for _, s := range union(nil, spans) {
		if s.From < at && s.Next == own.Epochs[next].Start {
			return log.Span{From: s.From, Next: min(s.Next, at)}, nil
		}
	}
	return span, nil
}

// mayDiffer returns an error if the follower's log may differ from a log that is led where Compare
// takes them for equal, and another replica may have these records. The log is in use.
func (l *Leading) mayDiffer(broker string, p Part, own, follower Lineage, shared Verdict) error {
	if shared.Verb == Reset {
		return nil
	}
	span, err := l.hidden(p, own, follower, shared.At)
	if err != nil || span == (log.Span{}) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.repair().others
	r := l.registered(broker)
	of := all[r]
	of[p] = log.AddSpan(of[p], span)
	all[r] = of
	nobody := l.lost(p, func(id string) []log.Span {
		if others := all[l.registered(id)][p]; len(others) > 0 {
			return others
		}
		return l.lacks(id, p)
	})
	if covers(nobody, span) {
		l.x.warnThrottled(fmt.Sprintf("hidden %s %d %s", l.config.Topic, l.config.ID.Shard, broker),
			"A follower keeps its own records in place of damaged ones here. No other replica has these, and the manifest was lost, so they may be others",
			"topic_id", l.config.Topic, "shard", l.config.ID.Shard, "part", p.String(), "epoch", l.epoch,
			"follower", broker, "from", span.From, "up_to", span.Next)
		return nil
	}
	return fmt.Errorf("an epoch may begin in its damaged records from %d up to %d, and another replica may have them", span.From, span.Next)
}
