package topic

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
)

// work makes this broker's role for a shard match its view. One worker at a time calls it.
func (s *Service) work(p *Shard, idle bool) {
	v := p.view.Load()
	shard := p.leading.Load()
	failed := shard != nil && shard.failed.Load() != nil || p.fault.Load() != nil
	p.tried = p.trouble.Load()
	if p.tried != nil && time.Now().Before(p.tried.again) && (v.lead || v.member) {
		if !failed || !s.othersCanLead(v) {
			return // the keeper retries
		}
	}
	if failed {
		if s.config.Disk.Failed() != nil && (v.lead || v.member) {
			return // until the broker is restarted; its records can be read
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
		err = s.drop(p, v)
	}
	if err != nil {
		s.retryLater(p, doing, err)
		return
	}
	p.untrouble()
	if v.gone {
		s.clear(p, v)
	}
}

// logFailed ends leading or following a shard whose log takes no more appends.
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

// serve opens and judges the copy of a shard, whoever leads it, and does what copystate decides
// from that and from the shard's key.
func (s *Service) serve(p *Shard, v *view, idle bool) error {
	if s.firstLife.Load() == 0 {
		return nil // until this process was seen registered, it can't know what others rely on
	}
	if !v.lead || p.own.entry.SteppedDown(v.shard) {
		s.demote(p, v)
	}
	if err := s.finishRepair(p); err != nil {
		return err
	}
	if err := s.openLogs(p, v); err != nil {
		s.cannotOpen(p, v)
		return err
	}
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

// maxSteps bounds how many steps in a row may change a copy: finding damage, setting it aside,
// opening it again.
const maxSteps = 8

// step does once what copystate decides from the shard's key. again reports that this changed the
// copy.
func (s *Service) step(p *Shard, v *view, idle bool, doubt string) (again bool, err error) {
	actions := s.apply(p, s.seen(p, v))
	if err := p.keepState(); err != nil {
		if p.own.state.Grave() && p.leading.Load() == nil {
			s.unfollow(p)
		}
		if slices.Contains(actions, copystate.Withdraw) { // in doubt, even if that can't be written
			s.stepDown(p)
			s.changeEntry(p, v, replica.Withdraw, false)
		}
		return false, fmt.Errorf("what is known of its copy could not be kept beside it: %w", err)
	}
	if v.lead && !slices.Contains(actions, copystate.Lead) || !v.lead && v.leader == "" {
		s.unfollow(p)
	}
	if p.mended && (slices.Contains(actions, copystate.Lead) || slices.Contains(actions, copystate.Follow)) {
		// The repair did not end, and the numbers and ids of messages that were read before it may
		// be those of other records.
		s.unfollow(p)
		return true, errors.Join(s.closeLogs(p), s.openLogs(p, v))
	}
	for _, a := range actions {
		switch a {
		case copystate.StepDown:
			s.stepDown(p)
		case copystate.Vouch:
			s.changeEntry(p, v, replica.Vouch, p.leading.Load() != nil)
		case copystate.Withdraw:
			s.changeEntry(p, v, replica.Withdraw, false)
		case copystate.Resign:
			s.changeEntry(p, v, replica.Resign, false)
		case copystate.Lead:
			return s.lead(p, v, idle, doubt)
		case copystate.Follow:
			return false, s.follow(p, v)
		case copystate.Repair:
			return s.repair(p, v)
		case copystate.Offer:
			s.offer(p, v)
			return false, nil
		case copystate.SetAside:
			return true, s.setAside(p, v)
		}
	}
	if p.following != nil {
		p.following.Adopt(v.shard) // no broker leads it yet
	}
	return false, nil
}
