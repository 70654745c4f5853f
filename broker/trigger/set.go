package trigger

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
)

// Set has the triggers of a view, and their states. One goroutine uses it at a time.
type Set struct {
	triggers []*Trigger
	names    []string
	states   map[stateKey]*state
	bytes    int               // of states
	floor    map[uint32]uint64 // offsets that present values were judged at
	failed   uint64
	why      error
	operands []filter.Value
}

type stateKey struct{ trigger, key string }

type state struct {
	serial uint64
	raised bool
	end    int64 // of the window of the last alert
}

// NewSet returns the triggers of results with these names, all of them cleared.
func NewSet(triggers []*Trigger, names []string) *Set {
	return &Set{triggers: triggers, names: names, states: map[stateKey]*state{}, floor: map[uint32]uint64{}}
}

// Restore makes the Set go on after the last alert of a trigger and key. It is called before any
// result is judged, and for alerts that another owner has appended since: what the Set knows of
// later ones stays. States of triggers that are not in the Set are ignored.
func (s *Set) Restore(last State) error {
	for _, t := range s.triggers {
		if t.name != last.Trigger {
			continue
		}
		k := stateKey{last.Trigger, last.Key}
		switch known := s.states[k]; {
		case known == nil && len(s.states) >= maxStates:
			return errStates()
		case known != nil && known.serial > last.Serial:
			continue
		}
		s.set(k, &state{last.Serial, last.Raised, last.End})
		for shard, offset := range last.Offsets {
			s.floor[shard] = max(s.floor[shard], offset)
		}
	}
	return nil
}

func (s *Set) set(k stateKey, is *state) {
	if s.states[k] == nil {
		s.bytes += stateBytes + len(k.key)
	}
	s.states[k] = is
}

// Size returns how many bytes of memory the states take, about.
func (s *Set) Size() int { return s.bytes }

// Forget forgets all states, for want of memory. Those of results that are judged next are restored
// first, as in a new Set. What could not be judged stays counted.
func (s *Set) Forget() {
	s.states, s.floor, s.bytes = map[stateKey]*state{}, map[uint32]uint64{}, 0
}

func errStates() error {
	return fmt.Errorf("trigger: more than %d triggers and keys have had an alert: use keys with fewer values, or fewer triggers", maxStates)
}

// Failed returns how many results could not be judged, and why the first of them.
func (s *Set) Failed() (uint64, error) { return s.failed, s.why }

// Judge judges closed windows, which are in the order of their ends, and returns the alerts in the
// order of the rows, and then of the triggers. After an error nothing has changed.
func (s *Set) Judge(rows []aggregate.Row) ([]Alert, error) { return s.judge(rows, nil) }

// JudgePresent judges present values that were computed of the messages of each shard before an
// offset. It judges nothing if an alert was computed of later ones. A shard that is missing has
// been removed.
func (s *Set) JudgePresent(rows []aggregate.Row, offsets map[uint32]uint64) ([]Alert, error) {
	if len(offsets) > maxShards {
		return nil, fmt.Errorf("trigger: %d shards, and the bound is %d", len(offsets), maxShards)
	}
	for shard, offset := range offsets {
		if offset < s.floor[shard] {
			return nil, nil
		}
	}
	alerts, err := s.judge(rows, offsets)
	if err == nil {
		for shard, offset := range offsets {
			s.floor[shard] = offset
		}
	}
	return alerts, err
}

func (s *Set) judge(rows []aggregate.Row, offsets map[uint32]uint64) (alerts []Alert, err error) {
	changed := map[stateKey]*state{}
	failed, why, fresh := s.failed, s.why, 0
	for _, r := range rows {
		s.operands = operands(s.operands[:0], r.Values)
		for _, t := range s.triggers {
			k := stateKey{t.name, r.Key}
			now := changed[k]
			if now == nil {
				now = s.states[k]
			}
			if now == nil {
				now = &state{}
			} else if offsets == nil && r.End <= now.end {
				continue
			}
			changes, err := t.changes(now.raised, s.operands)
			if err != nil {
				if failed++; why == nil {
					why = fmt.Errorf("trigger %s: %w", t.name, err)
				}
			}
			if !changes {
				continue
			}
			if s.states[k] == nil && changed[k] == nil {
				if fresh++; len(s.states)+fresh > maxStates {
					return nil, errStates()
				}
			}
			next := &state{now.serial + 1, !now.raised, r.End}
			changed[k] = next
			alerts = append(alerts, Alert{Trigger: t.name, Key: r.Key, Serial: next.serial, Raised: next.raised, Row: r, Names: s.names, Offsets: offsets})
		}
	}
	s.failed, s.why = failed, why
	for k, next := range changed {
		s.set(k, next)
	}
	return alerts, nil
}
