package publish

import "github.com/carillon-mq/carillon/broker/coordination"

// Rollup is which older messages a message removes.
type Rollup uint8

// The rollups.
const (
	NoRollup Rollup = iota
	RollupSubject
	RollupAll
)

// Limits are what a Topic lets a message remove when it is kept. The zero value is nothing.
type Limits struct {
	// PerSubject is how many messages a subject has at most; 0: any number. Beyond, the oldest ones
	// are removed, or with DiscardNew the new one is refused.
	PerSubject uint64
	DiscardNew bool
	RollUps    bool
}

// LimitsOf returns the Limits of a stream.
func LimitsOf(s *coordination.StreamSettings) Limits {
	return Limits{
		PerSubject: uint64(max(s.MaxPerSubject, 0)), DiscardNew: s.DiscardNew && s.DiscardNewPerSubject,
		RollUps: s.AllowRollup,
	}
}

// MayRollUp returns the refusal of a message for its rollup, or nil.
func (l Limits) MayRollUp(topic string, r Rollup) error {
	if r == NoRollup || l.RollUps {
		return nil
	}
	return &RollupError{Topic: topic, Why: "not permitted"}
}

// RollupError reports a message that may not remove what it asks for.
type RollupError struct{ Topic, Why string }

func (e *RollupError) Error() string { return "rollup " + e.Why }

// Beyond returns how many records are removed of a subject that has count of them and gets some
// more: of the older ones, and of these. If the new ones are refused it says why.
func (l Limits) Beyond(topic string, count, records uint64) (older, own uint64, refusal error) {
	if l.PerSubject == 0 {
		return 0, 0, nil
	}
	over := count + records - min(count+records, l.PerSubject)
	if over > 0 && l.DiscardNew {
		return 0, 0, &FullError{Topic: topic, Of: "messages per subject", Max: l.PerSubject}
	}
	older = min(over, count)
	return older, over - older, nil
}
