package aggregate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/filter"
)

// LimitError says which bound a Partial is beyond.
type LimitError struct {
	What  string
	Limit int
	Hint  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("aggregate: more than %d %s: %s", e.Limit, e.What, e.Hint)
}

const coarser = "choose keys with fewer values, longer windows, or fewer records"

// Partial is the result of some records. One goroutine uses it at a time.
type Partial struct {
	query  *Query
	totals Totals
	series map[string]*series // by key
	groups int                // windows of all keys
	bytes  int                // of keys and cells
	first  int64              // no window ends before
	err    error              // a bound was exceeded

	evaluated *filter.Values // of records
	key       []byte         // scratch
	values    []filter.Value
}

// Totals are about all records of a Partial.
type Totals struct {
	Records  uint64 // that were added
	NoTime   uint64 // have no time, and are in no window
	NoKey    uint64 // have no key, or a longer one than 1 KiB, and are in no window
	NoValue  uint64 // missing values: of a record, for a function
	Greatest int64  // the greatest time of a record that is in a window
	Any      bool   // there is such a record
}

// series are the windows of one key, by their start.
type series struct{ windows []*window }

// window is a window of one key. All times of its records are below end, and not below start.
// Without windows, start is the least and end the greatest time.
type window struct {
	start, end int64
	count      uint64 // records
	cells      []cell
}

// NewPartial returns the result of no records.
func (q *Query) NewPartial() *Partial {
	return &Partial{
		query: q, series: map[string]*series{}, first: math.MaxInt64,
		evaluated: filter.NewValues(q.expressions),
	}
}

// Totals returns what is known of all records.
func (p *Partial) Totals() Totals { return p.totals }

// Add adds a record. The error is a *LimitError.
func (p *Partial) Add(r *filter.Record) error {
	if p.err != nil {
		return p.err
	}
	at, ok := p.evaluate(r, math.MaxInt64)
	if !ok {
		return nil
	}
	p.totals.Records++
	p.put(at, math.MinInt64)
	return p.bounded()
}

// floor returns the greatest multiple of size that is not above at.
func floor(at, size int64) int64 {
	start := at - at%size
	if start > at {
		start -= size
	}
	return start
}

// key appends the key of a record's values.
func (q *Query) key(key []byte, values []filter.Value) (_ []byte, ok bool) {
	for _, k := range q.keys {
		if key, ok = appendValue(key, &values[k.index]); !ok {
			return key, false
		}
	}
	return key, len(key) <= maxKeyBytes
}

func (p *Partial) seriesOf(key []byte) *series {
	s := p.series[string(key)]
	if s == nil {
		s = &series{}
		p.series[string(key)] = s
		p.bytes += len(key)
	}
	return s
}

// window returns the window with a start, and makes it if there is none. Without windows there is
// only one.
func (p *Partial) window(s *series, start, end int64) *window {
	if n := len(s.windows); n > 0 && (s.windows[n-1].start == start || !p.query.Windowed()) {
		return s.windows[n-1]
	}
	i, there := s.at(start)
	if !there {
		s.windows = slices.Insert(s.windows, i, p.query.newWindow(start, end))
		p.groups++
		p.first = min(p.first, end)
	}
	return s.windows[i]
}

func (s *series) at(start int64) (i int, there bool) {
	return slices.BinarySearchFunc(s.windows, start, func(w *window, start int64) int { return cmp.Compare(w.start, start) })
}

func (q *Query) newWindow(start, end int64) *window {
	w := &window{start: start, end: end}
	for _, c := range q.cells {
		w.cells = append(w.cells, c.kind.new())
	}
	return w
}

// session returns the session that all from start to end belongs to, which it is from then on.
// Sessions that it touches become one with it.
func (p *Partial) session(s *series, start, end int64) *window {
	i, _ := s.at(start)
	if i == len(s.windows) || s.windows[i].start >= end {
		if i == 0 || s.windows[i-1].end <= start {
			s.windows = slices.Insert(s.windows, i, p.query.newWindow(start, end))
			p.groups++
			p.first = min(p.first, end)
			return s.windows[i]
		}
	}
	if i > 0 && s.windows[i-1].end > start {
		i--
	}
	w := s.windows[i]
	w.start, w.end = min(w.start, start), max(w.end, end)
	for i+1 < len(s.windows) && s.windows[i+1].start < w.end {
		next := s.windows[i+1]
		p.bytes -= next.bytes()
		p.join(w, next)
		s.windows = slices.Delete(s.windows, i+1, i+2)
		p.groups--
	}
	return w
}

// join adds what a window has to another one.
func (p *Partial) join(w, from *window) {
	before := w.bytes()
	w.start, w.end, w.count = min(w.start, from.start), max(w.end, from.end), w.count+from.count
	for i, c := range w.cells {
		c.merge(from.cells[i])
	}
	p.bytes += w.bytes() - before
}

func (w *window) bytes() (n int) {
	for _, c := range w.cells {
		n += c.bytes()
	}
	return n
}

// fill adds the record's values to a window, and returns how many are missing.
func (p *Partial) fill(w *window) (missing uint64) {
	w.count++
	for i, c := range p.query.cells {
		if c.of < 0 {
			w.cells[i].add(nil)
			continue
		}
		switch v := &p.values[c.of]; v.Kind {
		case filter.Null:
		case filter.None:
			missing++
		default:
			before := w.cells[i].bytes()
			if !w.cells[i].add(v) {
				missing++
			}
			p.bytes += w.cells[i].bytes() - before
		}
	}
	return missing
}

// bounded returns an error if a bound is exceeded.
func (p *Partial) bounded() error {
	switch {
	case p.groups > maxGroups:
		p.err = &LimitError{"windows and keys", maxGroups, coarser}
	case p.size() > maxBytes:
		p.err = &LimitError{"bytes in windows and keys", maxBytes, coarser}
	}
	return p.err
}

// size returns the bytes of keys, windows and cells: no less than those of the encoding. It is a
// function of the records, too.
func (p *Partial) size() int {
	return p.bytes + p.groups*(groupBytes+cellBytes*len(p.query.cells))
}

// Merge adds the records of another partial of the same Query, which stays as it is.
func (p *Partial) Merge(o *Partial) error {
	_, err := p.merge(o, math.MinInt64)
	return err
}

// merge does so, and drops what is in windows of o that end at a time or before it: it returns how
// many records of them were lost.
func (p *Partial) merge(o *Partial, closed int64) (late uint64, err error) {
	switch {
	case p.query.fingerprint != o.query.fingerprint:
		return 0, errOtherQuery
	case p.err != nil:
		return 0, p.err
	case o.err != nil:
		p.err = o.err
		return 0, o.err
	}
	t := &p.totals
	if o.totals.Any && (!t.Any || o.totals.Greatest > t.Greatest) {
		t.Any, t.Greatest = true, o.totals.Greatest
	}
	t.Records, t.NoTime, t.NoKey, t.NoValue = t.Records+o.totals.Records, t.NoTime+o.totals.NoTime, t.NoKey+o.totals.NoKey, t.NoValue+o.totals.NoValue
	for key, theirs := range o.series {
		s := p.seriesOf([]byte(key))
		for _, w := range theirs.windows {
			if p.query.options.Session > 0 {
				p.join(p.session(s, w.start, w.end), w)
			} else {
				p.join(p.window(s, w.start, w.end), w)
			}
		}
		for _, w := range p.cut(key, s, closed) {
			late += w.count
		}
		if err := p.bounded(); err != nil {
			return late, err
		}
	}
	return late, nil
}

// cut takes the windows of a key that end at a time or before it.
func (p *Partial) cut(key string, s *series, closed int64) (ended []*window) {
	if !p.query.Windowed() && closed < math.MaxInt64 {
		return nil
	}
	n := 0 // windows of the same length end in the order of their starts, and so do sessions
	for n < len(s.windows) && s.windows[n].end <= closed {
		p.bytes -= s.windows[n].bytes()
		n++
	}
	ended, s.windows = s.windows[:n], s.windows[n:]
	if p.groups -= n; len(s.windows) == 0 {
		delete(p.series, key)
		p.bytes -= len(key)
	}
	return ended
}

// Reset forgets all records.
func (p *Partial) Reset() {
	clear(p.series)
	p.first = math.MaxInt64
	p.totals, p.groups, p.bytes, p.err = Totals{}, 0, 0, nil
}

// Row is the result of one window of one key.
type Row struct {
	Key        string // the same for the same Keys, and else another
	Start, End int64  // ns since 1970; without windows: the least and the greatest time
	Keys       []Value
	Values     []Value
}

// Rows returns the results of all windows, by their start and then by their key.
func (p *Partial) Rows() []Row {
	var rows []Row
	for key, s := range p.series {
		rows = p.query.rows(rows, key, s.windows)
	}
	return sorted(rows)
}

func (q *Query) rows(rows []Row, key string, windows []*window) []Row {
	var keys []Value
	d := Decoder{rest: []byte(key)}
	for range q.keys {
		keys = append(keys, d.value())
	}
	for _, w := range windows {
		rows = append(rows, Row{Key: key, Start: w.start, End: w.end, Keys: keys, Values: q.results(w)})
	}
	return rows
}

func sorted(rows []Row) []Row {
	slices.SortFunc(rows, func(a, b Row) int {
		if c := cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)); c != 0 {
			return c
		}
		return slices.CompareFunc(a.Keys, b.Keys, func(v, w Value) int { return v.compare(&w) })
	})
	return rows
}

// results returns the results of a window.
func (q *Query) results(w *window) []Value {
	values := make([]Value, 0, len(q.columns))
	for _, c := range q.columns {
		values = append(values, c.result(w.cells[c.index]))
	}
	return values
}

// result returns a function's result. Of no values it is None, but for counts.
func (c *column) result(from cell) Value {
	switch from := from.(type) {
	case *counter:
		return Value{Kind: Count, Count: uint64(*from)}
	case *extremes:
		if c.function == "min" {
			return from.least
		}
		return from.greatest
	case *sum64:
		switch {
		case from.count == 0:
			return Value{}
		case c.function == "mean":
			return Value{Kind: Number, Number: from.mean()}
		}
		return Value{Kind: Number, Number: from.value()}
	case *quantileCell:
		if from.count == 0 {
			return Value{}
		}
		return Value{Kind: Number, Number: from.quantiles.value(c.part)}
	case *distinctValues:
		return Value{Kind: Count, Count: from.distinct.value()}
	}
	return Value{}
}
