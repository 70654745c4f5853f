package quota

// Share is a broker's part of the limits of a user, from 0 to 1.
type Share struct{ Messages, Bytes float64 }

func (s Share) least(o Share) Share {
	return Share{min(s.Messages, o.Messages), min(s.Bytes, o.Bytes)}
}

// Standing is the share of one user that this broker applies. It falls at once and rises later
// (Q4). The zero value has no share yet.
type Standing struct{ last, now Share }

// Now returns the share that holds.
func (s *Standing) Now() Share { return s.now }

// Begin sets the first share.
func (s *Standing) Begin(target Share) { s.last, s.now = target, target }

// Lower applies what a report has lowered.
func (s *Standing) Lower(target Share) {
	s.last, s.now = s.last.least(target), s.now.least(target)
}

// Next begins an interval: what the target was at the last one has been reported since. It reports
// whether another share holds.
func (s *Standing) Next(target Share) (changed bool) {
	before := s.now
	s.last, s.now = target, s.last.least(target)
	return s.now != before
}
