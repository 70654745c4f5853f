package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/producer"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// newViews returns the views of this broker, which are not started yet.
func (b *Broker) newViews(hub publish.Hub, outputs *producer.Producer) *viewing.Service[*topic.ShardLeader] {
	t := &b.topics
	declared := declaredViews{known: map[string]*knownView{}}
	return viewing.New(viewing.Config[*topic.ShardLeader]{
		Self: b.identity.ID, Hub: hub, Payload: b.config.Profile.Payload, Memory: b.config.Profile.Views, Logger: b.log,
		Led: func() (led []*topic.ShardLeader) {
			for _, s := range t.topics.Leaders() {
				if s.Shard().Led() == s {
					led = append(led, s)
				}
			}
			return led
		},
		Changed: t.topics.Changed,
		Of: func(s *topic.ShardLeader) (viewing.Place, []*viewing.Declared) {
			of := s.Shard()
			place := viewing.Place{Topic: of.ID(), Name: of.Topic().Name(), Number: of.Number(), Shards: of.Topic().ShardCount()}
			if of.Desired().Deleting {
				return place, nil
			}
			return place, declared.of(t.topics.State(), place.Name)
		},
		Shard: func(id string, number int) (*topic.ShardLeader, bool, string) {
			if is := t.topics.ByID(id); is != nil {
				led := is.ShardAt(number)
				return led, led != nil, is.LeaderOf(number)
			}
			return nil, false, ""
		},
		Locate: func(name string, subject []byte) (string, int, error) {
			is := t.topics.Topic(name)
			if is == nil {
				return "", 0, errors.New("there is no such topic; create it")
			}
			return is.ID(), is.ShardFor(subject).Number(), nil
		},
		Append: func(user, name string, m *protocol.Message, done func(uint64, error)) {
			if !t.behalf.MayPublish(user, m.Subject) {
				done(0, fmt.Errorf("the user %s of the view may not publish on %s", user, m.Subject))
				return
			}
			outputs.Append(name, m, done)
		},
		MayRead: func(user, name string, filter []string) bool {
			from := t.topics.State().Topic(name)
			return from != nil && !slices.ContainsFunc(from.ReadBy(filter), func(pattern string) bool { return !t.behalf.MaySubscribeAll(user, pattern) })
		},
		Durability: func(s *topic.ShardLeader) log.Durability {
			return replica.DurabilityOf(s.Shard().Desired().Spec.Durability)
		},
		Trim: func(s *topic.ShardLeader, bytes int64) { t.subscriptions.Rewrite(s, bytes) },
		Now:  func() (time.Time, bool) { return b.clock.Time(), !b.clock.InDoubt() },
	})
}

// viewValues implements admin.Values.
func (t *topics) viewValues(ctx context.Context, topicID, name string, ask *viewing.Ask) (*viewing.Values, error) {
	if of := t.topics.ByID(topicID); of != nil {
		if shard := of.ShardAt(0); shard != nil {
			return t.views.Values(ctx, shard, name, ask)
		}
	}
	return nil, viewing.ErrNotOwned
}

// viewTrouble implements admin.ViewTrouble.
func (t *topics) viewTrouble(ctx context.Context, topicID, name string, made int64) string {
	return t.views.Trouble(ctx, topicID, name, made)
}

// declaredViews are the views of a State as package viewing has them. A view that has not changed
// is the same one again.
type declaredViews struct {
	mu    sync.Mutex
	known map[string]*knownView // by name
}

type knownView struct {
	of       *coordination.View
	declared *viewing.Declared
}

// of returns the views of a Topic. There are none as long as a broker would not keep its shards of
// them.
func (d *declaredViews) of(state *coordination.State, topic string) (all []*viewing.Declared) {
	if state == nil || !state.AllHave(coordination.FeatureViews) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) > 2*coordination.MaxViews { // of views that are gone
		clear(d.known)
	}
	for _, v := range state.ViewsOf(topic) {
		is := d.known[v.Name]
		if is == nil || is.of != v {
			is = &knownView{v, &viewing.Declared{Name: v.Name, Made: v.Made, Spec: v.Spec.Compute, Output: v.Spec.Output, Alerts: v.Spec.Alerts, User: v.Spec.User}}
			d.known[v.Name] = is
		}
		all = append(all, is.declared)
	}
	return all
}
