package subscription

import "sync"

// makers counts the readers that each user made and that this broker has. Its mu is locked after
// all other locks of this package.
type makers struct {
	mu sync.Mutex
	of map[string]int
}

// enter counts a reader, unless may returns an error. may is nil if it must be counted.
func (m *makers) enter(s *Subscription, may func(user string, has int) error) error {
	if s.maker == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if may != nil {
		if err := may(s.maker, m.of[s.maker]); err != nil {
			return err
		}
	}
	s.counted = true
	m.of[s.maker]++
	return nil
}

// leave counts a reader no more: it ended, or is one no more. It may be called again.
func (m *makers) leave(s *Subscription) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.counted {
		return
	}
	s.counted = false
	if m.of[s.maker]--; m.of[s.maker] == 0 {
		delete(m.of, s.maker)
	}
}

// Readers returns how many readers that a user made this broker has.
func (s *Service) Readers(user string) int {
	s.makers.mu.Lock()
	defer s.makers.mu.Unlock()
	return s.makers.of[user]
}
