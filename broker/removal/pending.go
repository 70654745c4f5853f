package removal

import "slices"

// Pending are removals that a log carries and that are not in the set yet, since they are not on
// all in-sync replicas. Its owner's lock guards it. The zero Pending has none.
//
// A writer of a snapshot reads Spans and then the set. An owner adds to the set before it calls
// Done. So the snapshot has every removal that the log carried when it read Spans.
type Pending struct {
	removals []*Removal
}

// Removal is one pending removal.
type Removal struct{ Spans []Span }

// Add adds a removal.
func (p *Pending) Add(r *Removal) { p.removals = append(p.removals, r) }

// Done removes a removal. They are done in the order in which they were added, about.
func (p *Pending) Done(r *Removal) {
	if i := slices.Index(p.removals, r); i >= 0 {
		p.removals = slices.Delete(p.removals, i, i+1)
	}
}

// Spans returns the spans of all pending removals.
func (p *Pending) Spans() (all []Span) {
	for _, r := range p.removals {
		all = append(all, r.Spans...)
	}
	return all
}
