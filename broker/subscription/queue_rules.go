package subscription

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subject"
)

// QueueConflict is why a Subscription can't read a Topic that is a work queue.
type QueueConflict uint8

// The conflicts with the rules of a work queue: each record has one Subscription, which
// acknowledges it by itself.
const (
	NoConflict       QueueConflict = iota
	NotExplicit                    // it does not acknowledge each record
	NotFromEarliest                // it would pass records
	SecondUnfiltered               // it has no filter, and there is another Subscription
	FiltersOverlap                 // another Subscription may match the same records
	ResetPasses                    // its reset would pass records
)

func (c QueueConflict) String() string {
	return [...]string{
		"", "it must acknowledge each message (ack.policy: Explicit)",
		"it must start with the earliest message (start.from: Earliest)",
		"it has no filter, and there is another subscription (give each a filter)",
		"another subscription's filter overlaps with its own (make them distinct)",
		"its reset would pass messages that nobody acknowledged (reset it to Earliest, and purge the messages that are not to be delivered)",
	}[c]
}

// JudgeQueued returns the conflict of a Subscription with the rules of a work queue, and with the
// other Subscriptions, or NoConflict.
func JudgeQueued(spec *coordination.SubscriptionSpec, others ...*coordination.SubscriptionSpec) QueueConflict {
	switch {
	case spec.Ack.Policy != "" && spec.Ack.Policy != coordination.AckExplicit:
		return NotExplicit
	case spec.Start.From != coordination.FromEarliest:
		return NotFromEarliest
	case len(others) > 0 && unfiltered(spec):
		return SecondUnfiltered
	}
	for _, other := range others {
		if unfiltered(other) {
			return FiltersOverlap
		}
		for _, mine := range spec.Subjects {
			for _, its := range other.Subjects {
				if subject.Overlap(mine, its) {
					return FiltersOverlap
				}
			}
		}
	}
	return NoConflict
}

// JudgeReset returns the conflict of a reset with the rules of a work queue, or NoConflict.
func JudgeReset(to *coordination.Start) QueueConflict {
	if to.From != coordination.FromEarliest {
		return ResetPasses
	}
	return NoConflict
}

// unfiltered reports whether a Subscription without a filter by subject is asked for.
func unfiltered(spec *coordination.SubscriptionSpec) bool { return len(spec.Subjects) == 0 }

// isQueue reports whether the shard's Topic is a work queue.
func (k *cursorStore) isQueue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.releases.policy == coordination.WorkQueue
}

// resetConflict returns why a work queue can't apply the reset of a Subscription, or "". A broker
// of an earlier version may have written it.
func (k *cursorStore) resetConflict(d *coordination.Subscription, e *entry) string {
	applied := func(made int64) bool { return made == d.Incarnation() || d.Forgot(made) }
	if r, ok := k.recovered[d.Name]; d.Resets == 0 || e != nil && e.sub != nil && applied(e.made) || ok && applied(r.id.made) {
		return ""
	}
	if conflict := JudgeReset(&d.ResetTo); conflict != NoConflict {
		return conflict.ofQueue()
	}
	return ""
}

// excluded returns, by name, why Subscriptions of a work queue are not served: of two that exclude
// each other, the older one is. all are the declared ones, the oldest first. The State alone
// decides, so the leaders of all shards serve the same ones, also after an election.
func excluded(all []*coordination.Subscription) map[string]string {
	why := map[string]string{}
	var served []*coordination.SubscriptionSpec
	for _, d := range all {
		if unsupported(d.Spec) != "" {
			continue
		}
		if conflict := JudgeQueued(d.Spec, served...); conflict != NoConflict {
			why[d.Name] = conflict.ofQueue()
			continue
		}
		served = append(served, d.Spec)
	}
	return why
}

func (c QueueConflict) ofQueue() string { return fmt.Sprintf("its topic is a work queue: %s", c) }

// queueConflict returns why a Subscription can't be served in a work queue beside those of the
// served ones that count, or "".
func (k *cursorStore) queueConflict(name string, spec *coordination.SubscriptionSpec, counts func(*Subscription) bool) string {
	var others []*coordination.SubscriptionSpec
	for _, s := range k.each() {
		if s.id.name != name && counts(s) {
			others = append(others, s.Spec())
		}
	}
	if conflict := JudgeQueued(spec, others...); conflict != NoConflict {
		return conflict.ofQueue()
	}
	return ""
}

// anyServed counts all Subscriptions that are served.
func anyServed(*Subscription) bool { return true }
