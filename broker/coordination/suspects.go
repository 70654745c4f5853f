package coordination

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Suspects are the copies that a broker reports, for the controller to compare when nobody vouches.
// They are written together, in parts if they are many. Nothing waits for that, because no decision
// to lead depends on them. All methods may be called concurrently.
type Suspects struct {
	mu   sync.Mutex
	said map[suspectID]Suspect
	// generation of etcd whose restored copies are all among them.
	generation  int64
	incarnation int64 // of the registration that Registered was called with last
	changed     chan struct{}
}

type suspectID struct {
	topic string
	shard int
}

// NewSuspects returns an empty report.
func NewSuspects() *Suspects {
	return &Suspects{said: map[suspectID]Suspect{}, changed: make(chan struct{}, 1)}
}

// Changed yields a token when the report is to be written anew.
func (s *Suspects) Changed() <-chan struct{} { return s.changed }

func (s *Suspects) change() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Set sets what is reported of one copy.
func (s *Suspects) Set(one Suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := suspectID{one.Topic, one.Shard}
	if before, was := s.said[id]; !was || before != one {
		s.said[id] = one
		s.change()
	}
}

// Clear reports nothing of a copy any more.
func (s *Suspects) Clear(topicID string, shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := suspectID{topicID, shard}
	if _, was := s.said[id]; was {
		delete(s.said, id)
		s.change()
	}
}

// Registered has the report written anew if the broker has registered again since the last call:
// etcd has the first part of it only.
func (s *Suspects) Registered(incarnation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if incarnation != s.incarnation && len(s.said) > 0 {
		s.change()
	}
	s.incarnation = incarnation
}

// Generation returns the generation of etcd that was entered last.
func (s *Suspects) Generation() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// Enter begins a generation with these restored copies, of which it is not known yet how far they
// go. It reports whether it is another generation.
func (s *Suspects) Enter(generation int64, opening []Suspect) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation == s.generation {
		return false
	}
	s.generation = generation
	for _, one := range opening {
		s.said[suspectID{one.Topic, one.Shard}] = one
	}
	s.change()
	return true
}

// All returns what is to be reported, sorted, and the generation whose restored copies are all in
// it.
func (s *Suspects) All() (generation int64, all []Suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, slices.SortedFunc(maps.Values(s.said), func(a, b Suspect) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Shard, b.Shard))
	})
}

// Doubted returns the number of copies that the broker can't vouch for.
func (s *Suspects) Doubted() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.said {
		if one.Doubted() {
			n++
		}
	}
	return n
}
