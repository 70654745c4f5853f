package view

import "time"

// Report is what a broker says of a View, in /topics for each shard that it leads, and in answers
// about a View for all shards together.
type Report struct {
	Name string `json:"name"`
	// Keys is how many keys have open windows, or a value. One in several shards counts in each.
	Keys int64 `json:"keys"`
	// Watermark is the time up to which windows are closed. Zero: none is, or there are no windows.
	Watermark     time.Time `json:"watermark,omitzero"`
	Late          uint64    `json:"late"`          // records for closed windows, counted for each window
	Failed        uint64    `json:"failed"`        // records and results that could not be judged
	Refused       uint64    `json:"refused"`       // records beyond a bound
	RemovedUnread uint64    `json:"removedUnread"` // records that were gone before they were read
	Trouble       string    `json:"trouble,omitempty"`
}

// Plus returns the sum with the report of another shard. The watermark is the least: a shard
// without one keeps all windows open. Of the troubles it has the first.
func (r Report) Plus(o Report) Report {
	r.Keys += o.Keys
	if o.Watermark.Before(r.Watermark) {
		r.Watermark = o.Watermark
	}
	r.Late, r.Failed, r.Refused, r.RemovedUnread = r.Late+o.Late, r.Failed+o.Failed, r.Refused+o.Refused, r.RemovedUnread+o.RemovedUnread
	if r.Trouble == "" {
		r.Trouble = o.Trouble
	}
	return r
}
