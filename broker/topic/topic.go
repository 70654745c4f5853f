package topic

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Topic is one of the cluster's, as this broker sees it.
type Topic struct {
	service  *Service
	id, name string
	offer    Offer // used by Follow and Close only, one after the other

	view  atomic.Pointer[view]
	shard atomic.Pointer[Shard]
	// trouble is why the logs can't be opened or are to be opened again; nil: nothing is wrong with them.
	trouble atomic.Pointer[trouble]

	lobby lobby
	work  work // guarded by the queue's mu

	stumbles int // in a row; guarded by the service's openMu
	stumbled time.Time
}

// trouble is something that a person should see to.
type trouble struct {
	err   error
	again time.Time
}

// Name is the Topic's name.
func (t *Topic) Name() string { return t.name }

// ID is the Topic's id, which is its own for ever.
func (t *Topic) ID() string { return t.id }

// Desired is what is asked for. It belongs to all its readers.
func (t *Topic) Desired() *coordination.Topic { return t.view.Load().desired }

// Leader is the id of the broker that leads the shard, or empty.
func (t *Topic) Leader() string { return t.view.Load().leader }

// Shard is the one that is open and led here, or nil.
func (t *Topic) Shard() *Shard { return t.shard.Load() }

// WhyNot says why the Topic is not served here, or at all: a *NotServedError. It is nil if it is served here.
func (t *Topic) WhyNot() error {
	if why := t.whyNot(); why != nil {
		return why
	}
	return nil
}

func (t *Topic) whyNot() *NotServedError {
	v, s := t.view.Load(), t.service
	no := func(reason NotServedReason, format string, args ...any) *NotServedError {
		return &NotServedError{Topic: t.name, Reason: reason, Leader: v.leader, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.gone:
		return no(BeingDeleted, "it is being deleted")
	case v.unsupported != "":
		return no(Unsupported, "%s", v.unsupported)
	case s.closing.Load():
		return no(ServiceIsClosing, "broker %s is stopping; try again", s.config.Name)
	case v.lead:
		if trouble := t.trouble.Load(); trouble != nil {
			why := no(Troubled, "its log on broker %s: %v", s.config.Name, trouble.err)
			why.Err = trouble.err
			return why
		}
		if shard := t.shard.Load(); shard == nil {
			return no(Opening, "broker %s is opening its log; try again", s.config.Name)
		} else if err := shard.failure(); err != nil {
			why := no(Troubled, "its log on broker %s: %v", s.config.Name, err)
			why.Err = err
			return why
		}
		return nil
	case v.leader == "":
		return no(Unplaced, "no broker was chosen for it yet; try again")
	case v.leader == s.config.Self:
		return no(NotConfirmed, "broker %s has its messages and waits to be named its leader again; try again", s.config.Name)
	}
	if state := s.State(); state != nil {
		if leader, ok := state.Broker(v.leader); ok {
			return no(LedElsewhere, "broker %s leads it, and broker %s has no link there now; try again", leader.Name, s.config.Name)
		}
	}
	return no(LeaderAway, "its messages are on broker %s, which is away; it is served again when that broker is back", s.nameOf(v.leader))
}

// Trouble is what is wrong with the Topic's logs on this broker, for people; empty: nothing is known to be.
func (t *Topic) Trouble() string {
	if trouble := t.trouble.Load(); trouble != nil {
		return trouble.err.Error()
	}
	if s := t.shard.Load(); s != nil {
		if err := s.failure(); err != nil {
			return err.Error()
		}
		return s.damage
	}
	return ""
}

// taker is a Topic as the hub sees it.
type taker Topic

func (t *taker) Take(messages []protocol.Message, forwarded bool) (behind bool) {
	return (*Topic)(t).take(messages, forwarded)
}

func (t *taker) Wait() { t.service.waitRoom((*Topic)(t)) }
