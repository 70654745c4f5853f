package subjectindex

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Filter is a set of patterns. A subject that several of them match counts once. It is immutable.
type Filter struct {
	patterns [][]byte
	literals map[string]struct{} // patterns without wildcards
	all      bool                // matches every subject
	spans    []span              // that contain all matching subjects, sorted, without overlaps
}

// span is the subjects from one up to, not including, another, in the order of their bytes.
type span struct{ from, to []byte } // to nil: all from there on

// NewFilter returns the filter of some patterns. Without one it matches every subject.
func NewFilter(patterns ...string) (*Filter, error) {
	f := &Filter{literals: map[string]struct{}{}, all: len(patterns) == 0}
	for _, p := range patterns {
		if !subject.ValidPattern([]byte(p)) {
			return nil, fmt.Errorf("%q is not a valid subject or pattern", p)
		}
		f.all = f.all || p == ">"
		if at := wildcard(p); at < 0 {
			f.literals[p] = struct{}{}
			f.spans = append(f.spans, span{[]byte(p), append([]byte(p), 0)})
		} else {
			f.patterns = append(f.patterns, []byte(p))
			f.spans = append(f.spans, span{[]byte(p[:at]), after([]byte(p[:at]))})
		}
	}
	if f.all {
		f.spans = []span{{}}
	}
	slices.SortFunc(f.spans, func(a, b span) int { return bytes.Compare(a.from, b.from) })
	merged := f.spans[:0]
	for _, s := range f.spans {
		if n := len(merged); n > 0 && (merged[n-1].to == nil || bytes.Compare(s.from, merged[n-1].to) <= 0) {
			if merged[n-1].to != nil && (s.to == nil || bytes.Compare(s.to, merged[n-1].to) > 0) {
				merged[n-1].to = s.to
			}
			continue
		}
		merged = append(merged, s)
	}
	f.spans = merged
	return f, nil
}

// wildcard returns where the first token begins that is a wildcard, or -1.
func wildcard(pattern string) int {
	for at := 0; ; {
		token, rest, more := strings.Cut(pattern[at:], ".")
		if token == "*" || token == ">" && !more {
			return at
		}
		if !more {
			return -1
		}
		at = len(pattern) - len(rest)
	}
}

// after returns the first subject behind all that begin with a prefix, or nil.
func after(prefix []byte) []byte {
	next := slices.Clone(prefix)
	for n := len(next); n > 0; n-- {
		if next[n-1]++; next[n-1] != 0 {
			return next[:n]
		}
	}
	return nil
}

// Match reports whether a subject matches.
func (f *Filter) Match(s []byte) bool {
	if f.all {
		return true
	}
	if _, ok := f.literals[string(s)]; ok {
		return true
	}
	for _, p := range f.patterns {
		if subject.Matches(p, s) {
			return true
		}
	}
	return false
}

// literal returns the subject if the filter is one.
func (f *Filter) literal() ([]byte, bool) {
	if f.all || len(f.patterns) > 0 || len(f.literals) != 1 {
		return nil, false
	}
	return f.spans[0].from, true
}

// selection is the subjects that match a filter and follow another subject.
type selection struct {
	filter *Filter
	after  []byte // empty: none is left out
	spans  []span // that contain all of them
}

// selectAll selects all subjects.
var selectAll = selection{filter: &Filter{all: true}, spans: []span{{}}}

// behind returns the subjects that match f and follow after.
func (f *Filter) behind(after string) selection {
	sel := selection{filter: f, after: []byte(after), spans: f.spans}
	if len(after) == 0 {
		return sel
	}
	from := append([]byte(after), 0)
	sel.spans = nil
	for _, p := range f.spans {
		if p.to != nil && bytes.Compare(p.to, from) <= 0 {
			continue
		}
		if bytes.Compare(p.from, from) < 0 {
			p.from = from
		}
		sel.spans = append(sel.spans, p)
	}
	return sel
}

func (s *selection) has(subject []byte) bool {
	return (len(s.after) == 0 || bytes.Compare(subject, s.after) > 0) && s.filter.Match(subject)
}
