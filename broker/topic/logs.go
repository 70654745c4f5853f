package topic

import (
	"time"

	"github.com/carillon-mq/carillon/broker/replica"
)

// knows says whether a log stood on the disk before, and knows it from now on.
func (s *Service) knows(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	known := s.was[name]
	s.was[name] = true
	return known
}

// stands reports whether a log stood on the disk before, or was made since.
func (s *Service) stands(name string) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.was[name]
}

// unknow forgets that logs of a shard stood on the disk.
func (s *Service) unknow(p *Shard, parts ...replica.Part) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	for _, part := range parts {
		delete(s.was, p.logIDs()[part].Name())
	}
}

// recordTime is the time with which those of records can be compared; zero: they can't be.
func (s *Service) recordTime() time.Time {
	if !s.config.Clock.Verdict().Elapsed {
		return time.Time{}
	}
	return s.config.Clock.Time()
}
