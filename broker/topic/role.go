package topic

import (
	"encoding/json"
	"errors"
	"fmt"
	"github.com/carillon-mq/carillon/broker/forward"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// logs are those of one shard on this broker, open.
type logs struct {
	parts  [replica.Parts]*log.Log
	damage string // what opening them found, for people; empty: nothing
	anew   bool   // it is no damage of segments that could be fetched one by one
	// partial says that they began anew where others may count on all of them, and haven't caught up since. The data log says so, too,
	// for the next life: without that, a broker that ended half-way would seem to have all that its set is promised.
	partial bool
}

// work brings what this broker does for a shard in line with its view. It is called by one worker at a time.
func (s *Service) work(p *Shard, idle bool) {
	v := p.view.Load()
	if trouble := p.trouble.Load(); trouble != nil && time.Now().Before(trouble.again) && (v.lead || v.follow) {
		return // the keeper comes back to it
	}
	if shard := p.leading.Load(); shard != nil && shard.failed.Load() != nil || p.fault.Load() != nil {
		if s.config.Disk.Failed() != nil && (v.lead || v.follow) {
			return // until the broker is restarted; what it holds can be read
		}
		if shard := p.leading.Load(); shard != nil {
			p.spent = int64(shard.epoch.Load())
		}
		if err := s.release(p, &LeadershipLostError{Topic: p.topic.name, Why: "its log failed"}); err != nil {
			s.log.Warn("a log that failed was not closed as it should be", "topic", p.Name(), "error", err)
		}
	}
	if harm := p.harm.Swap(nil); harm != nil {
		s.takeHarm(p, v, *harm)
	}
	doing := "open"
	err := s.judgeLife(p, v)
	switch {
	case err != nil:
	case v.gone:
		doing, err = "delete", s.deleteLogs(p)
	case v.lead:
		err = s.lead(p, v, idle)
	case v.follow:
		err = s.follow(p, v)
	case v.member: // nobody leads it
		s.demote(p, v)
		s.unfollow(p)
	default:
		err = s.drop(p)
	}
	if err != nil {
		s.stumble(p, doing, err)
	} else {
		p.trouble.Store(nil)
	}
}

// lead opens the logs if need be, and takes publishes.
func (s *Service) lead(p *Shard, v *view, idle bool) error {
	if shard := p.leading.Load(); shard != nil && shard.durability != v.durability && len(v.shard.Replicas) > 1 {
		// Followers confirm by the durability that they were told when they asked.
		_ = s.closeLeader(p, shard, &LeadershipLostError{Topic: p.topic.name, Why: "its durability was changed"}) // it closes no log
	}
	if shard := p.leading.Load(); shard != nil {
		if idle {
			shard.keepSpec(v)
			return nil
		}
		shard.follow(v)
		s.announce(shard, true)
		s.vouch(p, v)
		s.postpone(p)
		return nil
	}
	s.unfollow(p)
	if err := s.openLogs(p, v); err != nil {
		return err
	}
	if p.spent >= int64(v.epoch) && len(v.shard.Replicas) > 1 {
		return s.spend(p, v)
	}
	if back, err := s.steppedBack(p, v); back || err != nil {
		return err // until another leads, or this broker is named again all the same
	}
	shard, err := s.newLeader(p, v)
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && s.othersCanLead(v) {
		p.logs.damage = damageFound + damage.Error()
		return s.suspect(p, v) // until another leads
	}
	if err != nil {
		return errors.Join(err, s.closeLogs(p))
	}
	p.trouble.Store(nil)
	s.openMu.Lock()
	s.open[shard] = struct{}{}
	s.openMu.Unlock()
	shard.advance()
	p.leading.Store(shard)
	p.call()
	if shard.readable.Load() {
		s.announce(shard, true)
	} else {
		shard.advance() // what moved before it was known where to say so
	}
	s.postpone(p)
	return nil
}

// follow opens the logs if need be, and has the leader's batches brought to them.
func (s *Service) follow(p *Shard, v *view) error {
	s.demote(p, v)
	if p.followed != v.durability {
		s.unfollow(p)
	}
	if err := s.mended(p); err != nil {
		return err
	}
	if p.following != nil {
		p.following.Adopt(v.shard)
		if p.mend == nil {
			s.vouch(p, v)
		}
		return nil
	}
	if err := s.openLogs(p, v); err != nil {
		return err
	}
	if p.logs.damage != "" {
		if err := s.suspect(p, v); err != nil {
			return err
		}
		begun, sound, err := s.mend(p, v)
		if begun || err != nil {
			return err
		}
		if sound {
			p.logs.damage = ""
		}
	}
	if p.logs.damage != "" {
		if err := s.setAside(p, v); err != nil {
			return err
		}
		if err := s.openLogs(p, v); err != nil {
			return err
		}
	}
	if p.logs.partial {
		if err := s.suspect(p, v); err != nil { // until it has caught up
			return err
		}
	}
	if !p.ids.read() {
		if err := s.readIDs(p, v, idsBytes); err != nil {
			return err
		}
	}
	if err := p.logs.mayHoldIDs(v); err != nil {
		return err
	}
	p.followed = v.durability
	p.following = s.config.Exchange.Follow(replica.FollowConfig{
		ID: p.id(), Shard: v.shard, Durability: v.durability, Logs: p.logs.parts, Watch: (*watcher)(p),
		Failed: p.failed(s),
	})
	p.copying.Store(p.following)
	return nil
}

// failed takes note of why a log takes nothing more from its leader.
func (p *Shard) failed(s *Service) func(error) {
	return func(err error) {
		p.fault.Store(&err)
		s.wake(p)
	}
}

// watcher keeps what is judged at the end of a follower's data log, as it goes.
type watcher Shard

func (w *watcher) Appended(b log.Batch) {
	w.origins.Note(b, forward.Mono())
	_, _ = w.ids.note(w.topic.service.config.Codec, w.topic.service.config.Clock, b, b.Base(), int64(w.view.Load().window)) // the batch was checked
}

func (w *watcher) Truncated(end uint64) {
	w.origins.Truncate(end)
	w.ids.truncate(end)
}

func (w *watcher) Reset() {
	w.origins.Reset(forward.Mono())
	w.ids.forget(always)
}

// mayHoldIDs notes that messages with ids may come from the leader.
func (l *logs) mayHoldIDs(v *view) error {
	data := l.parts[replica.Data]
	var said kept
	if err := json.Unmarshal(data.Meta().Spec, &said); err == nil && !said.NoIDs {
		return nil
	}
	return data.SetSpec(v.keptSpec(false, l.partial), v.epoch)
}

func (s *Service) unfollow(p *Shard) {
	if p.following == nil {
		return
	}
	if p.logs != nil && p.mend == nil { // what was safe everywhere is so when this broker leads
		for part := range replica.Parts {
			p.high[part] = p.following.High(part)
		}
	}
	p.copying.Store(nil)
	p.following.End()
	p.following, p.mend = nil, nil
}

// demote ends leading the shard, and keeps its logs open. Who waits for an answer is told that it isn't known.
func (s *Service) demote(p *Shard, v *view) {
	shard := p.leading.Load()
	if shard == nil {
		return
	}
	why := "nobody was chosen to lead it yet"
	if v.leader != "" {
		why = fmt.Sprintf("broker %s leads it now", s.nameOf(v.leader))
	}
	_ = s.closeLeader(p, shard, &LeadershipLostError{Topic: p.topic.name, Why: why}) // it closes no log
}

// release ends whatever this broker does for the shard and closes its logs.
func (s *Service) release(p *Shard, why error) error {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		if of := p.view.Load().shard; of == nil || len(of.InSync) == 1 {
			// What was accepted is answered when the log is closed.
			return s.closeLeader(p, shard, nil)
		}
		_ = s.closeLeader(p, shard, why) // it closes no log
	}
	return s.closeLogs(p)
}

// openLogs opens the logs of a shard that is led or followed here. Those that aren't there are made.
func (s *Service) openLogs(p *Shard, v *view) error {
	if p.logs != nil {
		return nil
	}
	ids := p.logIDs()
	start := max(v.desired.Spec.Stream.FirstSequence, 1)
	known := s.knows(ids[replica.Data].Name())
	partial := p.anew || !known && (v.lead && v.epoch > 1 || s.wasCounted(v))
	data, err := s.config.Disk.Open(ids[replica.Data], start, v.epoch, v.keptSpec(!v.follow && !known, partial))
	if err != nil {
		if !known {
			s.unknow(p)
		}
		return err
	}
	p.anew = false
	state, err := s.config.Disk.Open(ids[replica.State], 1, v.epoch, nil)
	if err != nil {
		_ = data.Close() // nothing was appended
		return err
	}
	origins, err := forward.ReadOrigins(data, s.recordTime(), forward.Mono())
	if err != nil {
		return errors.Join(err, state.Close(), data.Close())
	}
	p.fault.Store(nil)
	p.high, p.origins = [replica.Parts]uint64{}, origins
	p.logs = &logs{parts: [...]*log.Log{replica.Data: data, replica.State: state}, partial: saysPartial(data)}
	var damage []string
	if v.lead && v.epoch > 1 && !known {
		damage = append(damage, fmt.Sprintf("the log was not there in epoch %d and begins anew; if it had messages, they are lost", v.epoch))
		p.logs.anew = true
	}
	damage = append(damage, s.judgeRecovery(p, data)...)
	damage = append(damage, s.judgeRecovery(p, state)...)
	if n := p.logs.lacking(); n > 0 && len(damage) == 0 { // that was met when the origins were read
		damage = append(damage, fmt.Sprintf("segments are damaged: %d", n))
	}
	p.logs.damage = strings.Join(damage, "; ")
	if p.logs.damage != "" {
		s.log.Error("a Topic's log is damaged", "topic", p.Name(), "damage", p.logs.damage)
	}
	p.opened.Store(p.logs)
	return nil
}

func (s *Service) closeLogs(p *Shard) error {
	if p.logs == nil {
		return nil
	}
	p.opened.Store(nil)
	var errs []error
	for _, l := range p.logs.parts {
		if err := l.Close(); err != nil && p.fault.Load() == nil {
			s.log.Error("a Topic's log was not closed as it should be", "topic", p.Name(), "log", l.Name(), "error", err)
			errs = append(errs, err)
		}
	}
	p.logs = nil
	p.ids.forget(never)
	p.fault.Store(nil)
	return errors.Join(errs...)
}

// wasCounted says whether the in-sync set names this broker in a life before: then others may count on a copy that isn't there.
func (s *Service) wasCounted(v *view) bool {
	return slices.ContainsFunc(v.shard.InSync, func(m coordination.Replica) bool {
		return m.Broker == s.config.Self && m.Incarnation < s.firstLife.Load()
	})
}

// saysPartial says whether a copy began anew and did not catch up in the life before.
func saysPartial(data *log.Log) bool {
	var said kept
	return !data.Recovery().Rebuilt && json.Unmarshal(data.Meta().Spec, &said) == nil && said.Partial
}

// complete has the data log say that the copy has caught up.
func (l *logs) complete() error {
	if !l.partial {
		return nil
	}
	meta := l.parts[replica.Data].Meta()
	var said kept
	if err := json.Unmarshal(meta.Spec, &said); err != nil {
		return err
	}
	said.Partial = false
	spec, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if err := l.parts[replica.Data].SetSpec(spec, meta.Epoch); err != nil {
		return err
	}
	l.partial = false
	return nil
}

// setAside moves a damaged copy out of the way, so that it is fetched anew from the leader. It was
// reported before, so nobody counts on it.
func (s *Service) setAside(p *Shard, v *view) error {
	p.logs.anew = true
	if err := s.suspect(p, v); err != nil {
		return err
	}
	if err := s.closeLogs(p); err != nil {
		return err
	}
	p.anew = true
	s.scrubs.copies.Add(1)
	for _, id := range p.logIDs() {
		to, err := s.config.Disk.SetAside(id.Name())
		if err != nil {
			return err
		}
		s.counts.setAside.Add(1)
		s.log.Warn("a damaged copy was set aside and is fetched anew from its leader; delete it if nobody misses it", "topic", p.Name(), "log", id.Name(), "to", to)
	}
	return nil
}

// drop lets go of a shard that this broker has no replica of any more. If that was planned, other brokers
// took it over and its copy goes. Otherwise it isn't ours to delete.
func (s *Service) drop(p *Shard) error {
	if p.logs == nil && p.leading.Load() == nil {
		return nil
	}
	if err := s.release(p, &LeadershipLostError{Topic: p.topic.name, Why: "other brokers have its replicas now"}); err != nil {
		return err
	}
	if p.removing.Load() {
		s.log.Info("a replica was moved to other brokers; its copy here is deleted", "topic", p.Name())
		return s.deleteCopy(p)
	}
	s.forget(p)
	for _, id := range p.logIDs() {
		to, err := s.config.Disk.SetAside(id.Name())
		if err != nil {
			return err
		}
		s.counts.setAside.Add(1)
		s.log.Warn("other brokers keep the replicas of a shard that this one had; its copy here was set aside; delete it if nobody misses it", "topic", p.Name(), "log", id.Name(), "to", to)
	}
	s.unknow(p)
	return nil
}

func (s *Service) deleteLogs(p *Shard) error {
	if err := s.release(p, &NotServedError{Topic: p.topic.name, Reason: BeingDeleted, Why: "it is being deleted"}); err != nil {
		return err
	}
	return s.deleteCopy(p)
}

func (s *Service) deleteCopy(p *Shard) error {
	var errs []error
	for _, id := range p.logIDs() {
		errs = append(errs, s.config.Disk.Delete(id.Name()))
	}
	s.forget(p)
	s.unknow(p)
	return errors.Join(errs...)
}

// closeAll closes what is open at the end.
func (s *Service) closeAll() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	next := make(chan *Shard)
	for range openers {
		wg.Go(func() {
			for p := range next {
				err := s.release(p, &NotServedError{Topic: p.topic.name, Reason: ServiceIsClosing, Why: "its broker stopped before it was safe on all replicas"})
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	all := map[*Shard]struct{}{}
	for _, shard := range s.leaders() { // also of Topics that were deleted
		all[shard.shard] = struct{}{}
	}
	s.mu.RLock()
	for _, t := range s.byID {
		for _, p := range t.shards {
			all[p] = struct{}{}
		}
	}
	s.mu.RUnlock()
	for p := range all {
		next <- p
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// leaders are those that are led here and open.
func (s *Service) leaders() []*ShardLeader {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	out := make([]*ShardLeader, 0, len(s.open))
	for shard := range s.open {
		out = append(out, shard)
	}
	return out
}
