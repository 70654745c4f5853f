package query

import "fmt"

// Share is a bound of what all owners have together, and of what one has.
//
// While half of the bound is free, an owner may have Own. Beyond that the part of an owner falls
// with what is free. So whoever comes late finds room, whatever some have taken, and nobody's
// queries end for it. An owner without queries needs no more than room.
//
// Rejected: to divide by the number of owners. Most have a few queries. Rejected: to end queries of
// those with most. Their clients would open them again.
type Share struct {
	Name     string // of the bound, for clients
	Own, All uint64
}

// ShareError is returned by Add if a query is beyond its owner's part of what the broker has left.
type ShareError struct {
	Share
	Used uint64 // by all
	Part uint64 // of an owner then
	Has  uint64 // the owner would
}

// Error says which bound it is.
func (e *ShareError) Error() string {
	return fmt.Sprintf("this broker's queries take %d of %d %s, so those of one user may take %d now, and would take %d (close some, or connect to another broker)",
		e.Used, e.All, e.Name, e.Part, e.Has)
}

// Part returns what one owner may have while all have so much.
func (s Share) Part(used uint64) uint64 {
	free, half := s.All-min(used, s.All), s.All/2
	if free >= half {
		return s.Own
	}
	return s.Own * free / half
}

// Check returns a *ShareError if an owner would have more than its part.
func (s Share) Check(used, has uint64) error {
	if part := s.Part(used); has > part {
		return &ShareError{s, used, part, has}
	}
	return nil
}
