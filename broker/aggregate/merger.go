package aggregate

import "math"

// Everything is the watermark at which all windows are closed.
const Everything = math.MaxInt64

// Merger merges the partials of several sources, and closes windows: nothing is added to a closed
// one. One goroutine uses it at a time.
type Merger struct {
	partial *Partial
	closed  int64 // windows that end here or before are
	late    uint64
}

// NewMerger returns a Merger without records.
func (q *Query) NewMerger() *Merger {
	return &Merger{partial: q.NewPartial(), closed: math.MinInt64}
}

// Merge adds the records of a partial, which stays as it is. What is in windows that are closed is
// counted.
func (m *Merger) Merge(p *Partial) error {
	late, err := m.partial.merge(p, m.closed)
	m.late += late
	return err
}

// Totals returns what is known of all records.
func (m *Merger) Totals() Totals { return m.partial.totals }

// Late returns how many records came too late for a window. A record counts once for each.
func (m *Merger) Late() uint64 { return m.late }

// Open returns how many windows of all keys are open.
func (m *Merger) Open() int { return m.partial.groups }

// Close closes the windows that end at the watermark or before it, and returns their results, by
// their start and then by their key. A window of all records ends with [Everything].
func (m *Merger) Close(watermark int64) []Row {
	if m.closed = max(m.closed, watermark); m.partial.first > m.closed {
		return nil
	}
	var rows []Row
	m.partial.first = math.MaxInt64
	for key, s := range m.partial.series {
		ended := m.partial.cut(key, s, m.closed)
		rows = m.partial.query.rows(rows, key, ended)
		if len(s.windows) > 0 {
			m.partial.first = min(m.partial.first, s.windows[0].end)
		}
	}
	return sorted(rows)
}
