package topic

import (
	"github.com/carillon-mq/carillon/broker/acking"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
)

// answering is a ShardLeader as the acker sees it: an acking.Leader.
type answering ShardLeader

func (s *answering) Name() string             { return s.shard.name }
func (s *answering) ID() sender.ID            { return s.shard.at() }
func (s *answering) Publishing() sender.Shard { return (*publishing)(s.shard) }

// Failed returns why the log failed or leadership ended, or nil.
func (s *answering) Failed() *error {
	if failed := s.failed.Load(); failed != nil {
		return failed
	}
	return s.over.Load()
}

// High returns below which offset all in-sync replicas have the records.
func (s *answering) High() uint64 { return s.leading.Load().High(replica.Data) }

// Confirmed returns the last confirmed barrier round.
func (s *answering) Confirmed() uint64 { return s.leading.Load().Confirmed() }

// Settled counts a refusal that no longer waits for a barrier round.
func (s *answering) Settled() { s.confirms.Count(-1) }

// Persisted notes that the records below end are as durable here as the Topic asks.
func (s *answering) Persisted(end uint64) { (*ShardLeader)(s).persisted(replica.Data, end) }

// Fail has the log closed and opened again.
func (s *answering) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	(*ShardLeader)(s).fail(err)
}

// Complete completes appends to the state log.
func (s *answering) Complete() {
	if err := s.appends.Failed(); err != nil {
		s.Fail(err)
	}
	s.appends.Complete()
}

// Commit raises the high watermark of readers, and commits removals below it.
func (s *answering) Commit() {
	s.removing.Commit((*ShardLeader)(s).advance(), s.shard.view.Load().durability)
}

// Moved notifies the watchers of the high watermark.
func (s *answering) Moved() {
	s.republish.Moved()
	s.watchers.Call()
}

// Left takes records that were beyond the watermark off the bound.
func (s *answering) Left(size, records int) { s.ahead.Remove(size, records) }

// Lost returns the error for a publisher whose message may not be durable.
func (s *answering) Lost(err error) error {
	switch err.(type) {
	case *publish.LeadershipLostError, *publish.NotServedError, *publish.UnconfirmedError:
		return err
	}
	of := s.shard.view.Load().shard
	return &publish.StoreError{Topic: s.shard.name, Err: err, Unknown: of != nil && len(of.Replicas) > 1}
}

// Unconfirmed returns the error for an answer that was not confirmed in time.
func (s *answering) Unconfirmed() error { return (*ShardLeader)(s).unconfirmed() }

// failPending fails all pending answers, since leadership on this broker has ended.
func (s *ShardLeader) failPending(over error) {
	s.over.Store(&over)
	(*answering)(s).Complete()
	s.acks.Touch()
}

var _ acking.Leader = (*answering)(nil)
