package topic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// logs are those of one shard on this broker, open.
type logs struct {
	parts [replica.Parts]*log.Log
}

// work brings what this broker does for a shard in line with its view. It is called by one worker at a time.
func (s *Service) work(p *Shard, idle bool) {
	v := p.view.Load()
	shard := p.leading.Load()
	failed := shard != nil && shard.failed.Load() != nil || p.fault.Load() != nil
	p.tried = p.trouble.Load()
	if p.tried != nil && time.Now().Before(p.tried.again) && (v.lead || v.member) {
		if !failed || !s.othersCanLead(v) {
			return // the keeper comes back to it
		}
	}
	if failed {
		if s.config.Disk.Failed() != nil && (v.lead || v.member) {
			return // until the broker is restarted; what it holds can be read
		}
		s.logFailed(p, v)
	}
	doing := "open"
	var err error
	switch {
	case v.vanished:
		doing, err = "set aside", s.setVanishedAside(p)
	case v.gone:
		doing, err = "delete", s.deleteLogs(p)
	case v.restored:
		err = s.standStill(p, v)
	case v.lead || v.member:
		err = s.serve(p, v, idle)
	default:
		err = s.drop(p)
	}
	if err != nil {
		s.stumble(p, doing, err)
	} else {
		p.untrouble()
	}
}

// untrouble ends the trouble that was there when the pass began. A log may fail during the pass: that
// is for the next one.
func (p *Shard) untrouble() { p.trouble.CompareAndSwap(p.tried, nil) }

// logFailed ends what this broker did with a log that takes no more appends.
func (s *Service) logFailed(p *Shard, v *view) {
	e := copystate.Failed{Durability: v.durability, Epoch: v.epoch, Reason: "it takes no more appends"}
	if shard := p.leading.Load(); shard != nil {
		e.Led = shard.epoch.Load()
		e.Durability = shard.durability
	} else if p.following != nil {
		e.Durability = p.followed
	}
	if fault := p.fault.Load(); fault != nil {
		e.Reason = (*fault).Error()
	}
	s.apply(p, e)
	if err := p.keepState(); err != nil {
		s.log.Warn("what is known of a copy could not be kept beside it", "topic", p.Name(), "copy", p.own.state.String(), "error", err)
	}
	if err := s.release(p, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its log failed"}); err != nil {
		s.log.Warn("a log that failed was not closed as it should be", "topic", p.Name(), "error", err)
	}
}

// withdrawClosed handles a copy whose logs can't be opened, so that its broker is not elected
// meanwhile, and elections do not wait for it.
//
//  1. A copy in doubt is reported and withdrawn.
//  2. Another one is reported from the second failure on: the first may be a disk that recovers.
//  3. A leader resigns if another member can lead, or at the second failure: a member that comes
//     back vouches only while nobody leads. A single replica stays the leader.
func (s *Service) withdrawClosed(p *Shard, v *view) {
	p.own.closed++
	e, grave := s.seen(p, v), p.own.state.Grave()
	current := e.Entry == copystate.Current
	if grave || p.own.closed > 1 {
		s.tell(p, v, func() { s.reports.Set(p.suspectClosed()) })
	}
	switch {
	case grave && (current || e.Entry == copystate.Undecided):
		if slices.Contains(s.apply(p, e), copystate.Withdraw) {
			s.say(p, v, replica.Withdraw, false)
		}
	case !grave && current && e.Leader == copystate.Self && (e.Others || p.own.closed > 1 && !e.Alone):
		s.say(p, v, replica.Resign, false)
	}
}

// serve opens and judges the copy of a shard, whoever leads it, and does what follows from that and from the
// shard's key.
func (s *Service) serve(p *Shard, v *view, idle bool) error {
	if s.firstLife.Load() == 0 {
		return nil // what others count on isn't known before this process was seen registered
	}
	if !v.lead || p.own.word.Left(v.shard) {
		s.demote(p, v)
	}
	if err := s.mended(p); err != nil {
		return err
	}
	if err := s.openLogs(p, v); err != nil {
		s.withdrawClosed(p, v)
		return err
	}
	p.own.closed = 0
	s.takeEvents(p)
	for range maxSteps {
		doubt := ""
		if p.own.state.Grave() {
			doubt = p.own.state.Reason()
		}
		again, err := s.step(p, v, idle, doubt)
		if err != nil || !again {
			s.report(p, v)
			return err
		}
	}
	return fmt.Errorf("its copy on broker %s is %s, and what follows from that has no end", s.config.Name, p.own.state.String())
}

// maxSteps is how often in a row what happens to a copy may bring about more: damage that is met, what is set
// aside, what is opened again.
const maxSteps = 8

// step does what follows from the shard's key once. again says that something happened to the copy by that.
func (s *Service) step(p *Shard, v *view, idle bool, doubt string) (again bool, err error) {
	actions := s.apply(p, s.seen(p, v))
	if err := p.keepState(); err != nil {
		if p.own.state.Grave() && p.leading.Load() == nil {
			s.unfollow(p)
		}
		if slices.Contains(actions, copystate.Withdraw) { // a doubt that isn't kept is one all the same
			s.stepDown(p)
			s.say(p, v, replica.Withdraw, false)
		}
		return false, fmt.Errorf("what is known of its copy could not be kept beside it: %w", err)
	}
	if v.lead && !slices.Contains(actions, copystate.Lead) || !v.lead && v.leader == "" {
		s.unfollow(p)
	}
	for _, a := range actions {
		switch a {
		case copystate.StepDown:
			s.stepDown(p)
		case copystate.Vouch:
			s.say(p, v, replica.Vouch, p.leading.Load() != nil)
		case copystate.Withdraw:
			s.say(p, v, replica.Withdraw, false)
		case copystate.Resign:
			s.say(p, v, replica.Resign, false)
		case copystate.Lead:
			return s.lead(p, v, idle, doubt)
		case copystate.Follow:
			return false, s.follow(p, v)
		case copystate.Repair:
			return s.mend(p, v)
		case copystate.SetAside:
			return true, s.setAside(p, v)
		}
	}
	if p.following != nil {
		p.following.Adopt(v.shard) // nobody leads it yet; whoever will is asked
	}
	return false, nil
}

// stepDown ends leading or following a shard whose copy is in doubt. Nothing is confirmed any more.
func (s *Service) stepDown(p *Shard) {
	s.unfollow(p)
	if shard := p.leading.Load(); shard != nil {
		_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its copy on broker " + s.config.Name + " is damaged"}) // it closes no log
	}
}

// lead takes publishes. harmed says that the copy turned out to be damaged by that.
func (s *Service) lead(p *Shard, v *view, idle bool, doubt string) (harmed bool, err error) {
	durability := v.durability // by which this process has confirmed in this epoch, if it led it
	if shard := p.leading.Load(); shard != nil && shard.durability != v.durability && len(v.shard.Replicas) > 1 {
		durability = max(durability, shard.durability)
		// Followers confirm by the durability that they were told when they asked.
		_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: "its durability was changed"}) // it closes no log
	}
	if shard := p.leading.Load(); shard != nil {
		if idle {
			shard.keepSpec(v)
			return false, nil
		}
		shard.follow(v)
		s.announce(shard, true)
		s.postpone(p)
		return false, nil
	}
	s.unfollow(p)
	if doubt != "" {
		s.log.Error("a copy in doubt leads, since no other replica can", "topic", p.Name(), "epoch", v.epoch, "doubt", doubt)
	}
	shard, err := s.newLeader(p, v, doubt)
	if damage, ok := errors.AsType[*log.CorruptError](err); ok && s.othersCanLead(v) {
		s.noteDamage(p)
		s.apply(p, copystate.Harmed{Reason: damageFound + damage.Error(), Epoch: v.epoch, Led: v.epoch})
		if err := p.keepState(); err != nil {
			return false, err
		}
		s.say(p, v, replica.Withdraw, false) // until another leads
		return false, nil
	}
	if failure, ok := errors.AsType[*log.FailedError](err); ok {
		// Followers may have what is lost here, so this process leads under a later epoch only.
		s.apply(p, copystate.Failed{Led: v.epoch, Durability: durability, Reason: failure.Error(), Epoch: v.epoch})
		err = errors.Join(err, p.keepState())
	}
	if err != nil {
		return false, errors.Join(err, s.closeLogs(p))
	}
	p.untrouble()
	s.openMu.Lock()
	s.open[shard] = struct{}{}
	s.openMu.Unlock()
	shard.advance()
	s.announce(shard, true) // before it takes messages: who has an ack finds the leader
	p.leading.Store(shard)
	p.call()
	if shard.readable.Load() {
		s.announce(shard, true)
	} else {
		shard.advance() // what moved before it was known where to say so
	}
	s.postpone(p)
	return false, nil
}

// follow has the leader's batches brought to the logs.
func (s *Service) follow(p *Shard, v *view) error {
	if p.followed != v.durability || p.mend != nil {
		s.unfollow(p)
	}
	if p.following != nil {
		p.following.Adopt(v.shard)
		return nil
	}
	if !p.ids.Read() {
		if err := s.readIDs(p, v, idsBytes); err != nil {
			return err
		}
	}
	if err := p.mayHoldIDs(v); err != nil {
		return err
	}
	p.followed = v.durability
	p.following = s.config.Exchange.Follow(replica.FollowConfig{
		ID: p.id(), Shard: v.shard, Durability: v.durability, Logs: p.logs.parts, Watch: (*watcher)(p), High: p.high,
		Failed: p.failed(s), InDoubt: p.own.grave.Load, Contradicted: p.contradicted(s),
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

// contradicted takes note of a leader that lacks what was safe on all members.
func (p *Shard) contradicted(s *Service) func(string) {
	return func(why string) {
		p.own.events.Add(copystate.Contradicted{Reason: why, Epoch: p.view.Load().epoch})
		s.wake(p)
	}
}

// watcher keeps what is judged at the end of a follower's data log, as it goes.
type watcher Shard

func (w *watcher) Appended(b log.Batch) {
	w.origins.Note(b, forward.Mono())
	_, _ = w.ids.Note(w.topic.service.config.Codec, w.topic.service.config.Clock, b, b.Base(), int64(w.view.Load().window)) // the batch was checked
}

func (w *watcher) Truncated(end uint64) {
	w.origins.Truncate(end)
	w.ids.Truncate(end)
}

func (w *watcher) Reset() {
	w.origins.Reset(forward.Mono())
	w.ids.Forget(dedup.Always)
}

// mayHoldIDs notes that messages with ids may come from the leader.
func (p *Shard) mayHoldIDs(v *view) error {
	data := p.logs.parts[replica.Data]
	var said kept
	if err := json.Unmarshal(data.Meta().Spec, &said); err == nil && !said.NoIDs {
		return nil
	}
	return data.SetSpec(v.keptSpec(false, false), v.epoch) // of its copy the log says more by now
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
	if v.leader != "" && v.leader != s.config.Self {
		why = fmt.Sprintf("broker %s leads it now", s.nameOf(v.leader))
	}
	_ = s.closeLeader(p, shard, &publish.LeadershipLostError{Topic: p.topic.name, Why: why}) // it closes no log
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

// openLogs opens the logs of a shard of which this broker has a replica, and judges them. Those that aren't there are made.
func (s *Service) openLogs(p *Shard, v *view) error {
	if p.logs != nil {
		return nil
	}
	ids := p.logIDs()
	start := max(v.desired.Spec.Stream.FirstSequence, 1)
	known, counted := s.knows(ids[replica.Data].Name()), s.counted(v)
	missing := copystate.Missing(!known && counted, v.epoch)
	data, err := s.config.Disk.Open(ids[replica.Data], start, v.epoch, v.keptSpec(!v.follow && !known, missing.Grave() || p.own.state.Grave()))
	if err != nil {
		if !known {
			s.unknow(p, replica.Data)
		}
		return err
	}
	state, err := s.openCursors(p, v, data, known && counted)
	if err != nil {
		_ = data.Close() // nothing was appended
		return err
	}
	origins, err := forward.ReadOrigins(data, s.recordTime(), forward.Mono())
	if err != nil {
		return errors.Join(err, state.Close(), data.Close())
	}
	p.fault.Store(nil)
	p.high, p.origins = [...]uint64{replica.Data: data.Watermark(), replica.State: state.Watermark()}, origins
	p.logs = &logs{parts: [...]*log.Log{replica.Data: data, replica.State: state}}
	s.judgeOpened(p, v, counted, missing)
	p.opened.Store(p.logs)
	return nil
}

// openCursors opens the state log of a shard, or makes it. counted says that the data log is there
// and that others count on the copy. If the state log is missing then, the data log says that the
// copy is in doubt before a new one is made, by which the next process could not tell.
func (s *Service) openCursors(p *Shard, v *view, data *log.Log, counted bool) (*log.Log, error) {
	id := p.logIDs()[replica.State]
	if !s.stands(id.Name()) && counted {
		if err := data.SetCopy(copystate.MissingCursors(keptState(data), v.epoch).Encode()); err != nil {
			return nil, err
		}
	}
	state, err := s.config.Disk.Open(id, 1, v.epoch, nil)
	if err == nil {
		s.knows(id.Name())
	}
	return state, err
}

func (s *Service) closeLogs(p *Shard) error {
	if p.logs == nil {
		return nil
	}
	p.opened.Store(nil)
	p.own.epoch = uint64(p.reach().Epoch)
	var errs []error
	for part, l := range p.logs.parts {
		_, _, p.own.reached[part] = l.Offsets()
		if err := l.Close(); err != nil && p.fault.Load() == nil {
			s.log.Error("a Topic's log was not closed as it should be", "topic", p.Name(), "log", l.Name(), "error", err)
			errs = append(errs, err)
		}
	}
	p.logs = nil
	p.ids.Forget(dedup.Never)
	p.fault.Store(nil)
	return errors.Join(errs...)
}

// setAside moves a damaged copy out of the way, so that it is fetched anew from the leader, and begins an empty
// one. The set doesn't name this life, so nobody counts on it.
func (s *Service) setAside(p *Shard, v *view) error {
	s.unfollow(p)
	if err := s.closeLogs(p); err != nil {
		return err
	}
	s.apply(p, copystate.Aside{})
	p.own.reached = [replica.Parts]uint64{}
	s.counts.refetched.Add(1)
	if err := s.moveAside(p, "a damaged copy was set aside and is fetched anew from its leader; delete it if nobody misses it"); err != nil {
		return err
	}
	return s.openLogs(p, v)
}

// moveAside moves the closed logs of a shard out of the way.
func (s *Service) moveAside(p *Shard, said string) error {
	for _, id := range p.logIDs() {
		to, err := s.config.Disk.SetAside(id.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		s.counts.setAside.Add(1)
		s.log.Warn(said, "topic", p.Name(), "log", id.Name(), "to", to)
	}
	return nil
}

// forgetCopy is for a copy that isn't there any more.
func (s *Service) forgetCopy(p *Shard) {
	p.own.state, p.own.reached, p.own.closed = copystate.State{}, [replica.Parts]uint64{}, 0
	p.own.follows.Store(0)
	p.own.doubted.Store(false)
	p.own.grave.Store(false)
	p.own.events.Take()
	s.reports.Clear(p.topic.id, p.number)
	s.unknow(p, replica.Data, replica.State)
}

// drop lets go of a shard that this broker has no replica of any more. If that was planned, other brokers
// took it over and its copy goes. Otherwise it isn't ours to delete.
func (s *Service) drop(p *Shard) error {
	if ids := p.logIDs(); p.logs == nil && !s.stands(ids[replica.Data].Name()) && !s.stands(ids[replica.State].Name()) {
		s.forgetCopy(p)
		return nil
	}
	if err := s.release(p, &publish.LeadershipLostError{Topic: p.topic.name, Why: "other brokers have its replicas now"}); err != nil {
		return err
	}
	if p.removing.Load() {
		s.log.Info("a replica was moved to other brokers; its copy here is deleted", "topic", p.Name())
		return s.deleteCopy(p)
	}
	defer s.forgetCopy(p)
	return s.moveAside(p, "other brokers keep the replicas of a shard that this one had; its copy here was set aside; delete it if nobody misses it")
}

func (s *Service) deleteLogs(p *Shard) error {
	if err := s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.BeingDeleted, Why: "it is being deleted"}); err != nil {
		return err
	}
	return s.deleteCopy(p)
}

func (s *Service) deleteCopy(p *Shard) error {
	var errs []error
	for _, id := range p.logIDs() {
		errs = append(errs, s.config.Disk.Delete(id.Name()))
	}
	s.forgetCopy(p)
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
				err := p.keptDoubt()
				err = errors.Join(err, s.release(p, &publish.NotServedError{Topic: p.topic.name, Reason: publish.ServiceIsClosing, Why: "its broker stopped before it was safe on all replicas"}))
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
