package topic

import (
	"fmt"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/publish"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/sender"
	"github.com/carillon-mq/carillon/broker/work"
)

// Shard is one shard of a Topic as this broker sees it: led here, followed here, or elsewhere. It is what
// JetStream calls a stream: one log with offsets without gaps.
type Shard struct {
	topic  *Topic
	number int
	name   string

	view    atomic.Pointer[view]
	leading atomic.Pointer[ShardLeader] // led here, with its logs open
	// trouble is why the logs can't be opened or are to be opened again; nil: nothing is wrong with them.
	trouble atomic.Pointer[trouble]

	out        atomic.Pointer[sender.Sender] // nil: nothing was forwarded yet
	turned     turned
	work.State // in Service.tasks

	stumbles int // in a row; guarded by the service's openMu
	stumbled time.Time

	// What follows belongs to the worker that works for the slot.
	logs      *logs                 // open, of a shard that is led or followed here; nil: they are closed
	origins   *forward.Origins      // of the data log while it is open; the shard's while it is led
	ids       dedup.Window          // likewise; whoever has its mu may look at it
	following *replica.Following    // nil: it is not followed
	followed  log.Durability        // with which it is
	mend      *mend                 // nil: what it follows for is to copy
	high      [replica.Parts]uint64 // up to where its records are known to be safe on all replicas
	own       copyOf                // what is known of this broker's copy
	tried     *trouble              // trouble as it was when the pass began

	copying atomic.Pointer[replica.Following] // following, for who only asks it something

	opened atomic.Pointer[logs]  // logs, for who doesn't mind that they are closed under its hands
	fault  atomic.Pointer[error] // why a log takes nothing more from its leader
	known  atomic.Uint64         // the latest epoch that a State has shown
	// removing says that the replica here was last seen on its way out, by plan.
	removing atomic.Bool
}

// turned are the brokers that forwarded messages when the shard wasn't open.
type turned struct {
	sync.Mutex
	away []sender.Back
}

// trouble is something that a person should see to.
type trouble struct {
	err   error
	again time.Time
}

func (p *Shard) id() replica.ID { return replica.ID{Topic: p.topic.id, Shard: p.number} }

// Topic is the one that the shard belongs to.
func (p *Shard) Topic() *Topic { return p.topic }

// ID is that of the Topic.
func (p *Shard) ID() string { return p.topic.id }

// Number is that of the shard.
func (p *Shard) Number() int { return p.number }

// Key tells the shard from all others: the Topic's id and, unless it is the first, its number.
func (p *Shard) Key() string { return ShardKey(p.topic.id, p.number) }

// ShardName is the name of a Topic's shard: the Topic's if that is the only one.
func ShardName(t *coordination.Topic, number int) string {
	if t.Spec.Shards <= 1 {
		return t.Name
	}
	return fmt.Sprintf("%s--%d", t.Name, number)
}

// ShardKey is the Key of a Topic's shard.
func ShardKey(topicID string, number int) string {
	if number == 0 {
		return topicID
	}
	return topicID + "/" + strconv.Itoa(number)
}

// Holds reports whether this broker has a replica of the shard.
func (p *Shard) Holds() bool { return p.view.Load().member }

// Desired is what is asked for of the Topic. It belongs to all its readers.
func (p *Shard) Desired() *coordination.Topic { return p.view.Load().desired }

// Leader is the id of the broker that leads the shard, or empty.
func (p *Shard) Leader() string { return p.view.Load().leader }

// Led returns the shard's leader if it is on this broker, can be read and was announced to
// Config.Leading, or nil.
func (p *Shard) Led() *ShardLeader { return p.readable() }

// WhyNot says why the shard is not served here, or at all: a *publish.NotServedError. It is nil if it is served here.
func (p *Shard) WhyNot() error {
	if why := p.whyNot(); why != nil {
		return why
	}
	return nil
}

// Trouble is what is wrong with the shard's logs on this broker, for people; empty: nothing is known to be.
func (p *Shard) Trouble() string { return p.troubled() }

// Name is how people and JetStream's clients know the shard: by the Topic's name if it has but one.
func (p *Shard) Name() string { return p.name }

// readable returns the shard's leader if it is on this broker, was announced, and its watermark has
// reached where its epoch began.
func (p *Shard) readable() *ShardLeader {
	if s := p.leading.Load(); s != nil && s.announced.Load() {
		return s
	}
	return nil
}

func (p *Shard) whyNot() *publish.NotServedError {
	v, s := p.view.Load(), p.topic.service
	no := func(reason publish.NotServedReason, format string, args ...any) *publish.NotServedError {
		return &publish.NotServedError{Topic: p.topic.name, Reason: reason, Leader: v.leader, Why: fmt.Sprintf(format, args...)}
	}
	switch {
	case v.gone:
		return no(publish.BeingDeleted, "it is being deleted")
	case v.unsupported != "":
		return no(publish.Unsupported, "%s", v.unsupported)
	case s.closing.Load():
		return no(publish.ServiceIsClosing, "broker %s is stopping; try again", s.config.Name)
	case v.lead:
		if trouble := p.trouble.Load(); trouble != nil {
			why := no(publish.Troubled, "its log on broker %s: %v", s.config.Name, trouble.err)
			why.Err = trouble.err
			return why
		}
		shard := p.leading.Load()
		if shard == nil {
			return no(publish.Opening, "broker %s is opening its log; try again", s.config.Name)
		}
		if err := shard.failure(); err != nil {
			why := no(publish.Troubled, "its log on broker %s: %v", s.config.Name, err)
			why.Err = err
			return why
		}
		if !shard.enough() {
			return no(publish.NotEnoughInSync, "%d of its replicas are in sync and %d are asked for, so nothing can be acknowledged; %s", len(v.shard.InSync), v.minInSync, s.missing(v.shard))
		}
		if !shard.announced.Load() {
			return no(publish.CatchingUp, "broker %s leads it now and waits for its other replicas; %s", s.config.Name, s.missing(v.shard))
		}
		return nil
	case v.restored:
		return no(publish.Unplaced, "etcd was restored from a backup, and all copies are compared before one leads; try again")
	case v.leader == "":
		return no(publish.Unplaced, "no broker was chosen for it yet; try again")
	case v.leader == s.config.Self:
		return no(publish.NotConfirmed, "broker %s has its messages and waits to be named its leader again; try again", s.config.Name)
	}
	if state := s.State(); state != nil {
		if leader, ok := state.Broker(v.leader); ok {
			return no(publish.LedElsewhere, "broker %s leads it, and broker %s has no link there now; try again", leader.Name, s.config.Name)
		}
	}
	if len(v.shard.Replicas) > 1 {
		return no(publish.LeaderAway, "broker %s, which led it, is away, and another is being chosen; try again", s.nameOf(v.leader))
	}
	return no(publish.LeaderAway, "its messages are on broker %s, which is away; it is served again when that broker is back", s.nameOf(v.leader))
}

// missing says which replicas of a shard are not there or not in sync, for people.
func (s *Service) missing(shard *coordination.Shard) string {
	state := s.State()
	var away, late []string
	for _, id := range shard.Replicas {
		b, ok := state.Broker(id)
		switch {
		case !ok:
			away = append(away, s.nameOf(id))
		case !slices.Contains(shard.InSync, coordination.Replica{Broker: id, Incarnation: b.Incarnation}):
			late = append(late, s.nameOf(id))
		}
	}
	switch {
	case len(away) > 0:
		return "away: " + strings.Join(away, ", ")
	case len(late) > 0:
		return "catching up: " + strings.Join(late, ", ")
	}
	return "try again"
}

// troubled is what is wrong with the shard's logs on this broker, for people, or empty.
func (p *Shard) troubled() string {
	if trouble := p.trouble.Load(); trouble != nil {
		return trouble.err.Error()
	}
	if s := p.leading.Load(); s != nil {
		if err := s.failure(); err != nil {
			return err.Error()
		}
		return s.damage
	}
	return ""
}

// logIDs are the logs of the shard, its data first.
func (p *Shard) logIDs() [replica.Parts]log.Identity {
	return [...]log.Identity{
		replica.Data:  {Topic: p.topic.id, Shard: p.number},
		replica.State: {Topic: p.topic.id, Shard: p.number, Part: statePart},
	}
}

const statePart = "state"
