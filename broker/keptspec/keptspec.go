package keptspec

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// kept is a Topic beside its data log.
type kept struct {
	Version    int                    `json:"v"`
	Name       string                 `json:"name"`
	ID         string                 `json:"id"`
	Generation int64                  `json:"generation"`
	Owner      coordination.Owner     `json:"owner"`
	Created    time.Time              `json:"created"`
	Spec       coordination.TopicSpec `json:"spec"`
	// NoIDs means that the log has no message ids of a deduplication window, so that it needn't be
	// read for them.
	NoIDs bool `json:"noIDs,omitempty"`
}

// Encode encodes a Topic. noIDs says that its log has no message ids.
func Encode(t *coordination.Topic, noIDs bool) []byte {
	data, err := json.Marshal(kept{1, t.Name, t.ID, t.Generation, t.Owner, t.Created, t.Spec, noIDs})
	if err != nil {
		return nil // the spec came from JSON, so this doesn't happen
	}
	return data
}

// Keep keeps a Topic beside its data log. noIDs says that the log has no message ids. An epoch
// alone writes nothing: records bring theirs, and an epoch without records may be forgotten. Its
// calls come one after the other.
func Keep(data *log.Log, t *coordination.Topic, noIDs bool, epoch uint64) error {
	spec := Encode(t, noIDs)
	if string(data.Meta().Spec) == string(spec) {
		return nil
	}
	return data.SetSpec(spec, epoch)
}

// NoIDs reports whether it is kept beside a log that this has no message ids.
func NoIDs(data *log.Log) bool {
	var said struct { // of kept
		NoIDs bool `json:"noIDs"`
	}
	return json.Unmarshal(data.Meta().Spec, &said) == nil && said.NoIDs
}

// SaysNoIDs reports whether a log is marked to have no message ids, and the mark can be believed.
func SaysNoIDs(data *log.Log) bool { return !data.Recovery().Rebuilt && NoIDs(data) }

// SaysPartial reports whether the spec beside a data log calls the copy partial. Nothing writes
// that any more: version 018b7c1 did, and early builds after it when they made a log. It counts
// until the manifest has a state.
func SaysPartial(data *log.Log) bool {
	spec := data.Meta().Spec
	if !bytes.Contains(spec, []byte(`"partial"`)) {
		return false // as nearly always; it is asked at each step of a shard
	}
	var said struct{ Partial bool }
	return json.Unmarshal(spec, &said) == nil && said.Partial
}
