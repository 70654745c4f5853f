package live

import "time"

// Patience sets how long requests to resume wait for what their clients know. Call it before them.
func (s *Server) Patience(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = d
}

// Parked returns how many requests wait for that.
func (s *Server) Parked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parked)
}

// Hold has changes and requests wait until release is called.
func (s *Server) Hold() (release func()) {
	s.mu.Lock()
	return s.mu.Unlock
}

// MaxHeld is how many changes may wait for messages on links.
const MaxHeld = maxHeld

// MaxAhead is how many requests may wait for what their clients know, and OpeningsWaiting how many
// for their turn.
const (
	MaxAhead        = maxAhead
	OpeningsWaiting = openingsWaiting
)

// MaxAnswers is how many requests of one read are taken.
const MaxAnswers = maxAnswers

// Waiting returns how many requests wait for their turn.
func (s *Server) Waiting() int { return s.openings.Waiting() }
