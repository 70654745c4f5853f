package records

import "github.com/carillon-mq/carillon/broker/log"

// Pin keeps the records of a shard between two offsets from being removed, whatever retention says,
// until it is released. Records that are removed one by one are passed at once, also below a pin.
type Pin struct {
	of          *Reader
	hold        *log.Hold
	Start, High uint64 // from Start up to, not including, High
}

// Pin pins what can be read now; or, if high isn't 0, a range that was pinned before, maybe on
// another broker. A *OffsetError says that some of that is gone, or not there yet.
func (s *Reader) Pin(start, high uint64) (*Pin, error) {
	first, end := s.source.Offsets()
	if high == 0 {
		hold := s.data.Hold(first)
		return &Pin{s, hold, min(hold.Offset(), end), end}, nil // retention may have been faster
	}
	hold := s.data.Hold(start)
	if hold.Offset() > start || high > end || start > high {
		begin := hold.Offset()
		hold.Release()
		return nil, &OffsetError{Topic: s.name, Offset: start, Start: begin, High: end}
	}
	return &Pin{s, hold, start, high}, nil
}

// Of is the Reader of the shard that is pinned.
func (p *Pin) Of() *Reader { return p.of }

// Release ends the pin: retention may delete the records again.
func (p *Pin) Release() { p.hold.Release() }
