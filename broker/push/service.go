package push

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Config configures a Service.
type Config struct {
	Cluster string          // namespace/name of the Broker, for the source of events
	Allowed []netip.Prefix  // addresses that may be connected to although others of their kind may not
	Control func() []string // hosts of the API server, the coordinators and this cluster's brokers
	Secrets string          // folder with the values that specs refer to; empty: none
	Logger  *slog.Logger
}

// Service sends the records of the push Subscriptions that this broker serves.
type Service struct {
	config     Config
	secrets    *secrets
	transports *transports
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	began      time.Time
	running    sync.WaitGroup // requests

	mu        sync.Mutex // locked after an endpoint's
	bytes     int        // in all hands
	requests  int        // under way
	drained   bool       // no request begins any more
	closed    bool
	endpoints map[*endpoint]struct{}
	waiting   []*endpoint   // for room, in order
	idle      chan struct{} // closed when no request is under way after Drain; nil: nobody waits

	answers   [kinds]atomic.Uint64
	durations [len(durationBounds) + 1]atomic.Uint64
	seconds   atomic.Uint64 // nanoseconds of all requests
}

// New returns a Service without endpoints.
func New(config Config) *Service {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Control == nil {
		config.Control = func() []string { return nil }
	}
	s := &Service{config: config, began: time.Now(), endpoints: map[*endpoint]struct{}{}}
	s.secrets = &secrets{dir: config.Secrets}
	s.transports = newTransports(s.secrets, &addresses{allowed: config.Allowed, control: config.Control, resolve: lookUp, now: time.Now})
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Endpoint returns the endpoint of a Subscription. It implements subscription.Config.Endpoint.
func (s *Service) Endpoint(of *subscription.Subscription, t *topic.Shard) subscription.Endpoint {
	return s.endpoint(of, origin{cluster: s.config.Cluster, topic: t.Name(), key: t.Key()}, of.Name())
}

func (s *Service) endpoint(source Source, of origin, name string) *endpoint {
	e := &endpoint{service: s, source: source, origin: of, name: name, hand: newHand(rules{}, jitter)}
	e.ctx, e.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints[e] = struct{}{}
	return e
}

// jitter returns a pause between three quarters and five quarters of d.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/4 + rand.N(d/2+1)
}

// now returns nanoseconds of one clock.
func (s *Service) now() int64 { return int64(time.Since(s.began)) + 1 }

// at returns the time of nanoseconds of that clock.
func (s *Service) at(now int64) time.Time { return s.began.Add(time.Duration(now)) }

// room returns the bytes that one endpoint may have. empty: it has none; failing: its circuit is
// open.
func (s *Service) room(empty, failing bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained {
		return 0
	}
	all := allBytes
	if failing {
		all /= 2
	}
	room := (all - s.bytes) / bytesShare
	if empty && s.bytes < allBytes+spareBytes {
		room = max(room, 1)
	}
	return room
}

// hold counts bytes in hands.
func (s *Service) hold(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += bytes
}

// enter takes a place for a request of an endpoint that has so many. room is how many it may have
// with it.
func (s *Service) enter(sending int) (room int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room = (allRequests - spareRequests - s.requests + requestShare - 1) / requestShare
	if sending == 0 && s.requests < allRequests {
		room = max(room, 1)
	}
	if s.drained || sending >= room {
		return room, false
	}
	s.requests++
	return room, true
}

// leave gives a place back.
func (s *Service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	if s.requests == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// wait has an endpoint looked at when others leave room.
func (s *Service) wait(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.queued && !s.closed {
		e.queued = true
		s.waiting = append(s.waiting, e)
	}
}

// wakeWaiting looks at endpoints that wait for room. No lock is held.
func (s *Service) wakeWaiting() {
	s.mu.Lock()
	n := min(len(s.waiting), wokenAtOnce)
	some := append([]*endpoint(nil), s.waiting[:n]...)
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	for _, e := range some {
		e.queued = false
	}
	s.mu.Unlock()
	for _, e := range some {
		e.kick()
	}
}

// wakeSoon is wakeWaiting in a goroutine, for callers that hold locks.
func (s *Service) wakeSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 && !s.closed {
		s.running.Go(s.wakeWaiting)
	}
}

// remove forgets an endpoint.
func (s *Service) remove(e *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endpoints, e)
}

// turned reports that an endpoint is not reached any more, or again.
func (s *Service) turned(e *endpoint, reason string) {
	if reason == "" {
		s.config.Logger.Info("an endpoint is reached again", "topic", e.origin.topic, "subscription", e.name)
		return
	}
	s.config.Logger.Warn("an endpoint is not reached", "topic", e.origin.topic, "subscription", e.name, "reason", reason, "why", e.trouble)
}

// Drain begins no request any more, and waits for those under way and for their acks to be written.
// What has no answer when ctx ends is sent again by the next leader.
func (s *Service) Drain(ctx context.Context) {
	s.mu.Lock()
	s.drained = true
	busy := s.requests > 0
	if busy && s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	some := len(s.endpoints) > 0
	s.mu.Unlock()
	if busy {
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
	if some {
		timer := time.NewTimer(recorded)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// Close ends all requests and waits for them. The Subscriptions are closed.
func (s *Service) Close() {
	s.mu.Lock()
	s.drained, s.closed = true, true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	s.transports.close()
}
