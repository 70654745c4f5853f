package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/replica"
)

// knows reports whether a log was on the disk, and notes that it is.
func (s *Service) knows(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	known := s.was[name]
	s.was[name] = true
	return known
}

// stands reports whether a log is on the disk.
func (s *Service) stands(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.was[name]
}

// unknow notes that logs of a shard are not on the disk.
func (s *Service) unknow(p *Shard, parts ...replica.Part) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for _, part := range parts {
		delete(s.was, p.logIDs()[part].Name())
	}
}

// recordTime returns the time to compare times of records with; zero: they can't be compared.
func (s *Service) recordTime() time.Time {
	if !s.config.Clock.Verdict().Elapsed {
		return time.Time{}
	}
	return s.config.Clock.Time()
}
