package query

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/filter"
)

// Judged is what a query that nobody has open matched at some time. It is found without the Set, so
// changes need not wait for it: that may take seconds.
type Judged struct {
	query    *Query
	subjects []verdict // by their numbers
}

// verdict is what is known of a subject.
type verdict struct {
	name       string
	attributes attribute.Set
	change     uint64 // that the subject had last
	matches    bool
}

// Ahead returns the subjects for Judge. It is nil if the members are known, since the same query is
// open already. The error says which bound the query is beyond.
func (s *Set) Ahead(q *Query) (*Judged, error) {
	if s.groups[q.key] != nil {
		return nil, nil
	}
	if n := uint64(len(s.known)); n > 0 && q.cost > s.limits.OpenCosts/n {
		return nil, fmt.Errorf("to judge it for each of %d subjects may cost %d units, and the bound is %d (use fewer patterns and passes over lists)", n, n*q.cost, s.limits.OpenCosts)
	}
	j := &Judged{query: q, subjects: make([]verdict, len(s.subjects))}
	for n := range s.subjects {
		at := &s.subjects[n]
		j.subjects[n] = verdict{name: at.name, attributes: at.attributes, change: at.change}
	}
	return j, nil
}

// Judge judges the query for each subject, unless stop is closed before.
func (j *Judged) Judge(stop <-chan struct{}) {
	if j == nil {
		return
	}
	var v view
	record := filter.Record{Attributes: &v}
	for n := range j.subjects {
		select {
		case <-stop:
			j.subjects = j.subjects[:n]
			return
		default:
		}
		if at := &j.subjects[n]; at.attributes != nil {
			v = view{set: at.attributes}
			record.Subject = append(record.Subject[:0], at.name...)
			at.matches = j.query.matches(&record)
		}
	}
}

// Use has the next Add or Resume of the query judge only what has changed since Ahead. It reports
// false if that would judge all subjects, since j is nil, and the same query has been closed.
func (s *Set) Use(q *Query, j *Judged) bool {
	s.judged = j
	return j != nil || s.groups[q.key] != nil
}

// Used ends what Use began.
func (s *Set) Used() { s.judged = nil }

// matches judges a subject for a query that is opened.
func (s *Set) matches(q *Query, n int) bool {
	at := &s.subjects[n]
	if j := s.judged; j != nil && j.query == q && n < len(j.subjects) && j.subjects[n].change == at.change {
		return j.subjects[n].matches
	}
	s.look(at.name, at.attributes)
	return q.matches(&s.record)
}
