package subscription

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Config is what a Service works with.
type Config struct {
	Self   string // id of this broker
	Topics *topic.Service
	Outlet func(t *topic.Topic, name string) Outlet
	Logger *slog.Logger
	// Inactive is told of a durable Subscription that nobody used for as long as its spec allows; who
	// made it may delete it. It must not block. It may be nil.
	Inactive func(t *topic.Topic, name string)
}

// Service serves the Subscriptions of the shards that this broker leads.
type Service struct {
	config Config
}

// New begins with no shards; ShardChanged brings them.
func New(config Config) *Service { return &Service{config: config} }

// Follow takes over what the cluster's State is now. It is quick.
func (s *Service) Follow(state *coordination.State, changes coordination.Changes) {}

// ShardChanged begins to serve the Subscriptions of a shard, or ends it: then nothing of the shard
// is used any more when it returns.
func (s *Service) ShardChanged(shard *topic.Shard, open bool) {}

// Find is the Subscription of that name if it is served here, or nil; WhyNot says why.
func (s *Service) Find(topicID, name string) *Subscription { return nil }

// WhyNot says why a Subscription is not served here: a *NotServedError. It is nil if it is served here.
func (s *Service) WhyNot(topicID, name string) error { return nil }

// Wait is Find that waits until the Subscription is served here, or can't be, or ctx ends. A Subscription
// is served once where it starts is safe on the disk.
func (s *Service) Wait(ctx context.Context, topicID, name string) (*Subscription, error) {
	return nil, nil
}

// List are those of a Topic that are served here, sorted by name.
func (s *Service) List(topicID string) []*Subscription { return nil }

// Create makes a Subscription in this broker's memory only: it is gone with the process, when the
// shard is led elsewhere, and when nobody has used it for as long as inactive says.
func (s *Service) Create(topicID, name string, spec coordination.SubscriptionSpec, inactive time.Duration) (*Subscription, error) {
	return nil, nil
}

// Remove ends a Subscription that Create made.
func (s *Service) Remove(topicID, name string) {}

// Stats are the service's counters and gauges.
func (s *Service) Stats() Stats { return Stats{} }

// Close ends all requests, writes what is to be known of the cursors, and ends the workers.
func (s *Service) Close() error { return nil }

// Stats are counters and gauges.
type Stats struct {
	Subscriptions int
	Ephemerals    int // of these
	Waiting       int // requests
	Delivered     uint64
	Redelivered   uint64 // of these
	Acked         uint64
	Exhausted     uint64 // records that were given up after their last attempt
	Lost          uint64 // records skipped because they can't be read
	StateBytes    uint64 // written to state logs
}
