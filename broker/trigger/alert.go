package trigger

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// Alert is a change of a trigger's state for a key.
type Alert struct {
	Trigger string
	Key     string // of the aggregate.Row
	Serial  uint64 // 1: the first one of the trigger and key
	Raised  bool   // false: cleared
	Row     aggregate.Row
	Names   []string          // of the row's values
	Offsets map[uint32]uint64 // of present values: the next offset of each shard; nil: a closed window
}

// wire is an Alert as a message. What its reader needs for going on is beside what people read.
type wire struct {
	Trigger string                     `json:"trigger"`
	Serial  uint64                     `json:"serial"`
	State   string                     `json:"state"`
	Keys    []aggregate.Value          `json:"key"`
	From    time.Time                  `json:"from"`
	To      time.Time                  `json:"to"`
	Values  map[string]aggregate.Value `json:"values"`
	ID      []byte                     `json:"id"` // the key
	Offsets map[uint32]uint64          `json:"offsets,omitempty"`
}

const raised, cleared = "raised", "cleared"

// Encode returns the alert as JSON.
func (a *Alert) Encode() ([]byte, error) {
	w := wire{
		Trigger: a.Trigger, Serial: a.Serial, State: cleared, Keys: append([]aggregate.Value{}, a.Row.Keys...), ID: []byte(a.Key), Offsets: a.Offsets,
		From: time.Unix(0, a.Row.Start).UTC(), To: time.Unix(0, a.Row.End).UTC(), Values: map[string]aggregate.Value{},
	}
	if a.Raised {
		w.State = raised
	}
	for i, name := range a.Names {
		w.Values[name] = a.Row.Values[i]
	}
	b, err := json.Marshal(&w)
	if err == nil && len(b) > maxAlert {
		err = fmt.Errorf("trigger %s: an alert of %d bytes, and the bound is %d: use fewer values, or shorter texts", a.Trigger, len(b), maxAlert)
	}
	return b, err
}

// State is what is known of a trigger and key after its last alert.
type State struct {
	Trigger string
	Key     string
	Serial  uint64
	Raised  bool
	End     int64             // of the window
	Offsets map[uint32]uint64 // of present values
}

// DecodeState returns the state after an alert that Encode returned the bytes of.
func DecodeState(b []byte) (State, error) {
	if len(b) > maxAlert {
		return State{}, fmt.Errorf("trigger: an alert of %d bytes, and the bound is %d", len(b), maxAlert)
	}
	var w struct {
		Trigger string            `json:"trigger"`
		Serial  uint64            `json:"serial"`
		State   string            `json:"state"`
		To      time.Time         `json:"to"`
		ID      []byte            `json:"id"`
		Offsets map[uint32]uint64 `json:"offsets"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return State{}, fmt.Errorf("trigger: the alert is damaged: %w", err)
	}
	if w.Serial == 0 || w.State != raised && w.State != cleared || w.To.Year() < 1700 || w.To.Year() > 2200 || len(w.Offsets) > maxShards {
		return State{}, errors.New("trigger: the message is no alert")
	}
	return State{Trigger: w.Trigger, Key: string(w.ID), Serial: w.Serial, Raised: w.State == raised, End: w.To.UnixNano(), Offsets: w.Offsets}, nil
}
