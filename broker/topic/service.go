package topic

import (
	"log/slog"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// Config is what a Service works with.
type Config struct {
	Self    string // id of this broker
	Name    string // for people
	Disk    *log.Disk
	Hub     Hub
	Face    Face
	Payload int // the largest message that the broker takes, with headers
	Logger  *slog.Logger
	// Shard is told of each shard led here, after it was opened and before it closes. It may be nil.
	Shard func(s *Shard, open bool)
}

// Service is this broker's part in all Topics of the cluster.
type Service struct {
	config Config

	mu      sync.Mutex
	state   *coordination.State
	changed chan struct{}
}

// Open begins with no Topics; Follow brings them.
func Open(config Config) (*Service, error) {
	return &Service{config: config, changed: make(chan struct{})}, nil
}

// Follow takes over what the cluster's State is now.
func (s *Service) Follow(state *coordination.State, changes coordination.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
}

// State is the last one that Follow was given, or nil.
func (s *Service) State() *coordination.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Changed is closed at the next Follow.
func (s *Service) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Topic is the one of that name, or nil.
func (s *Service) Topic(name string) *Topic { return nil }

// ByID is the one of that id, or nil.
func (s *Service) ByID(id string) *Topic { return nil }

// Topics are all of the cluster, sorted by name.
func (s *Service) Topics() []*Topic { return nil }

// Committed is to be called after each round of the disk's committer.
func (s *Service) Committed() {}

// Stats are the service's counters and gauges.
func (s *Service) Stats() Stats { return Stats{} }

// Close takes nothing any more, and closes the logs.
func (s *Service) Close() error { return nil }
