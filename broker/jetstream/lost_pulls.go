package jetstream

import (
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
)

// forwardedPulls remembers who pulled from leaders on other brokers. If such a broker dies, nobody
// else can tell its clients that their pulls are gone: they would notice by missed heartbeats only,
// after half a minute with most clients. So this broker tells them, and they pull again.
//
// A leader that hands over ends its pulls itself.
type forwardedPulls struct {
	server *Server

	mu      sync.Mutex
	recent  map[life]map[string]bool // inboxes of pulls
	before  map[life]map[string]bool // of the period before
	n       int                      // inboxes in recent
	rotated time.Time                // when recent began

	late chan struct{} // a pull was remembered after its broker had changed; of size 1
}

// life is a broker in one incarnation. A broker without a registration has the incarnation 0. It
// may serve pulls: its link was up before it registered.
type life struct {
	broker      string
	incarnation int64
}

// life returns a broker in its present incarnation.
func (f *forwardedPulls) life(broker string) life {
	b, _ := f.server.state().Broker(broker)
	return life{broker, b.Incarnation}
}

// note remembers a pull that was forwarded to a broker whose life was read before. The pulls of one
// inbox are one.
func (f *forwardedPulls) note(of life, inbox []byte) {
	f.remember(of, inbox)
	if f.life(of.broker) != of { // run may have looked for its pulls before
		select {
		case f.late <- struct{}{}:
		default:
		}
	}
}

func (f *forwardedPulls) remember(of life, inbox []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	inboxes := f.recent[of]
	if inboxes[string(inbox)] {
		return
	}
	if now := time.Now(); f.n >= forwardedInboxes || now.Sub(f.rotated) > forwardedFor {
		f.before, f.recent, f.n, f.rotated = f.recent, nil, 0, now
		inboxes = nil
	}
	if inboxes == nil {
		inboxes = map[string]bool{}
		if f.recent == nil {
			f.recent = map[life]map[string]bool{}
		}
		f.recent[of] = inboxes
	}
	inboxes[string(inbox)] = true
	f.n++
}

// run ends the pulls of brokers that have died, until the server closes.
func (f *forwardedPulls) run() {
	s := f.server
	for {
		changed := s.topics.Changed()
		for inbox := range f.lost() {
			if to := []byte(inbox); s.config.Hub.Interested(to) {
				s.sendStatus(to, jsapi.LeadershipChange)
			}
		}
		select {
		case <-changed:
		case <-f.late:
		case <-s.ctx.Done():
			return
		}
	}
}

// lost removes and returns the inboxes of brokers that have died, or that had no registration when
// the pull was forwarded.
func (f *forwardedPulls) lost() map[string]bool {
	state := f.server.state()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all map[string]bool
	for _, period := range []map[life]map[string]bool{f.recent, f.before} {
		for of, inboxes := range period {
			if b, ok := state.Broker(of.broker); ok && b.Holds(of.incarnation) {
				continue // it has registered anew at most
			}
			if all == nil {
				all = map[string]bool{}
			}
			for inbox := range inboxes {
				all[inbox] = true
			}
			delete(period, of)
		}
	}
	return all
}
