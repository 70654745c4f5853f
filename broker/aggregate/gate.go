package aggregate

import "github.com/carillon-mq/carillon/broker/filter"

// Gate says what AddOpen adds.
type Gate struct {
	// Watermark closes the windows that end there or before.
	Watermark int64
	// Latest is the latest time that a record may have. A later one counts as one without a time.
	Latest int64
	// Windows and Bytes are bounds. What would exceed them is refused, and not an error.
	Windows, Bytes int
}

// Outcome is what AddOpen did with a record.
type Outcome struct {
	// Late are the windows of the record that are closed. It is in the others.
	Late int
	// Refused: a bound would be exceeded. Nothing has changed, the totals neither.
	Refused bool
}

// AddOpen adds a record to its windows that are open. A record of sessions is late if its time is
// before the watermark, unless an open session of its key holds that time: another source may have
// closed a session that it would touch.
func (p *Partial) AddOpen(r *filter.Record, g *Gate) (o Outcome) {
	at, ok := p.evaluate(r, g.Latest)
	if !ok {
		return Outcome{}
	}
	late, open, fresh := p.place(at, g)
	if open > 0 && (fresh > 0 && p.groups+fresh > g.Windows || p.size() >= g.Bytes) {
		return Outcome{Refused: true}
	}
	p.totals.Records++
	if open == 0 {
		return Outcome{Late: late}
	}
	p.put(at, g.Watermark)
	return Outcome{Late: late}
}

// evaluate makes the values and the key of a record the present ones, and returns its time. ok is
// false if it is in no window; then it is counted.
func (p *Partial) evaluate(r *filter.Record, latest int64) (at int64, ok bool) {
	if at, ok = p.query.time(r); !ok || at > latest {
		p.totals.Records++
		p.totals.NoTime++
		return 0, false
	}
	p.values = p.evaluated.Append(p.values[:0], r)
	if p.key, ok = p.query.key(p.key[:0], p.values); !ok {
		p.totals.Records++
		p.totals.NoKey++
	}
	return at, ok
}

// place returns how many windows of a record of the present key are closed, how many are open, and
// how many of these are not there yet.
func (p *Partial) place(at int64, g *Gate) (late, open, fresh int) {
	s := p.series[string(p.key)]
	count := func(there bool) {
		if open++; !there {
			fresh++
		}
	}
	switch o := &p.query.options; {
	case o.Session > 0:
		holds, touches := s.sessionAt(at, at+int64(o.Session))
		if at < g.Watermark && (holds == nil || holds.end <= g.Watermark) {
			return 1, 0, 0
		}
		count(touches)
	case o.Window > 0:
		slide, size := int64(o.Slide), int64(o.Window)
		for start := floor(at, slide); start > at-size; start -= slide {
			if start+size <= g.Watermark {
				late++
				continue
			}
			count(s.has(start))
		}
	default:
		count(s != nil)
	}
	return late, open, fresh
}

// has reports whether there is a window with a start.
func (s *series) has(start int64) bool {
	if s == nil {
		return false
	}
	if n := len(s.windows); n > 0 && s.windows[n-1].start == start {
		return true
	}
	_, there := s.at(start)
	return there
}

// sessionAt returns the session that holds the time from; nil: there is none. touches is true if
// all from there to a time belongs to a session that is there.
func (s *series) sessionAt(from, to int64) (holds *window, touches bool) {
	if s == nil {
		return nil, false
	}
	i, there := s.at(from)
	switch {
	case there:
		return s.windows[i], true
	case i > 0 && s.windows[i-1].end > from:
		return s.windows[i-1], true
	}
	return nil, i < len(s.windows) && s.windows[i].start < to
}

// put adds the present values of a record to its windows that are open.
func (p *Partial) put(at, watermark int64) {
	if !p.totals.Any || at > p.totals.Greatest {
		p.totals.Any, p.totals.Greatest = true, at
	}
	missing := uint64(0)
	s := p.seriesOf(p.key)
	switch o := &p.query.options; {
	case o.Session > 0:
		missing = p.fill(p.session(s, at, at+int64(o.Session)))
	case o.Window > 0:
		slide, size := int64(o.Slide), int64(o.Window)
		for start := floor(at, slide); start > at-size && start+size > watermark; start -= slide {
			missing = p.fill(p.window(s, start, start+size))
		}
	default:
		w := p.window(s, at, at)
		w.start, w.end = min(w.start, at), max(w.end, at)
		missing = p.fill(w)
	}
	p.totals.NoValue += missing
}
