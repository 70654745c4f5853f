package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/batching"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jetstream"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/placement"
	"github.com/carillon-mq/carillon/broker/producer"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/push"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/stall"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/system"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// topics is this broker's part of the cluster's Topics: the disk, the shards that it leads, their
// Subscriptions, and the APIs.
type topics struct {
	disk          *log.Disk
	topics        *topic.Service
	readers       *activity.Clients
	subscriptions *subscription.Service
	push          *push.Service
	controller    *placement.Controller
	api           *jetstream.Server
	advisories    *advisory.Publisher
	exchange      *replica.Exchange
	sourcing      *sourcing.Sourcing[*topic.ShardLeader]
	views         *viewing.Service[*topic.ShardLeader]
	admin         *admin.Server
	live          *live.Server // queries
	changes       attributeChanges
	behalf        *identity.Behalf // nil: there are no users
	system        *system.Server   // nil: clients must authenticate
	stop          sync.Once
}

// openDisk prepares the volume for logs. Its errors show at once.
func (b *Broker) openDisk() (err error) {
	watched := env.Watch(env.OS)
	b.topics.disk, err = log.OpenDisk(watched, b.config.Data, log.Options{
		Committed: func(idle bool) {
			if t := b.topics.topics; t != nil {
				t.Committed(idle)
			}
		},
	})
	if err != nil {
		return err
	}
	b.stall = stall.New(stall.Config{
		Dir: b.config.Data, FS: watched, Rounds: b.topics.disk, Limit: b.config.StallLimit, CanHandOver: b.member.HasOthers, Logger: b.log,
	})
	b.readMark()
	return nil
}

// startTopics starts without Topics. follow adds them.
func (b *Broker) startTopics(store *coordination.Client) (err error) {
	t := &b.topics
	t.behalf = b.users.behalf()
	if t.live, err = live.New(b.hub, b.attributes.Store(), b.log); err != nil {
		return err
	}
	b.hub.Offer(t.live).Set([]string{live.Prefix + ">"})
	t.changes = attributeChanges{b.attributes, t.live}
	hub := clients{b.hub}
	letters := producer.New(func(name string) producer.Topic {
		if found := t.topics.Topic(name); found != nil {
			return found
		}
		return nil
	})
	t.exchange = replica.NewExchange(replica.Config{Self: b.identity.ID, Clock: b.clock, Dial: b.dialReplication, Store: store, Logger: b.log})
	t.topics, err = topic.Open(topic.Config{
		Self: b.identity.ID, Name: b.config.Name, Disk: t.disk, Clock: b.clock, Hub: letters.Hub(hub), Codec: jetstream.PublishCodec{}, Payload: b.config.Profile.Payload, Logger: b.log,
		Attributes: b.attributes.Store(), Exchange: t.exchange, Republish: b.hub, MayPublish: t.behalf.MayPublish,
		Report: func(ctx context.Context, generation int64, suspects []coordination.Suspect) error {
			return store.Report(ctx, b.member.Replica(), generation, suspects)
		},
		Deleted: store.TopicDeleted,
		Abandoned: func(topic, id string, why batching.Reason) {
			t.advisories.Abandoned(topic, id, string(why))
		},
		Leading: func(s *topic.ShardLeader, open bool) {
			t.api.Leading(s, open)
			t.views.Leading(s, open) // before Subscriptions trim the state log
			t.subscriptions.ShardChanged(s, open)
		},
	})
	if err != nil {
		return err
	}
	t.advisories = advisory.NewPublisher(b.hub, b.config.Name)
	b.startPush()
	t.subscriptions = subscription.New(subscription.Config{
		Self: b.identity.ID, Topics: t.topics, Clock: b.clock, DeadLetters: letters, Endpoint: t.endpoint, Logger: b.log,
		Sink:     func(of *topic.Shard, name string) subscription.DeliverySink { return t.api.Sink(of, name) },
		MayRead:  store.MayRead,
		Inactive: func(of *topic.Shard, name string, incarnation int64) { t.api.Inactive(of, name, incarnation) },
		Retired: func(of *topic.Shard, name string) {
			t.advisories.Consumer(of.Name(), name, advisory.Deleted)
		},
	})
	t.sourcing = sourcing.New(sourcing.Config[*topic.ShardLeader]{
		Self: b.identity.ID, Led: t.topics.Leaders, Changed: t.topics.Changed, Find: t.findOrigin, Copies: t.copiesOf, Origin: t.originOf, Epochs: t.sourceEpochs, Streams: t.streamsOf, Mirrors: t.mirrors, Hub: hub, Payload: b.config.Profile.Payload, Logger: b.log,
	})
	t.views = b.newViews(hub, letters)
	t.readers = activity.New(b.hub, t.topics.State)
	user := func(client uint64) string {
		if is := b.hub.Identity(client); is != nil {
			return is.Name
		}
		return ""
	}
	t.api = jetstream.NewServer(jetstream.ServerConfig{
		Self: b.identity.ID, Name: b.config.Name, Cluster: b.config.Cluster, Standalone: b.route == nil, Payload: b.config.Profile.Payload,
		Hub: hub, Topics: t.topics, Store: store, Advisories: t.advisories, Clients: t.readers, Logger: b.log,
		Subscriptions: func() *subscription.Service { return t.subscriptions },
		Sources:       t.sourcing.Infos,
		User:          user,
		Behalf:        t.behalf, Account: b.hub.Account,
	})
	t.api.Start()
	t.sourcing.Start()
	t.views.Start()
	t.admin = admin.New(b.identity.ID, t.topics, hub, b.log).Writing(store).Clock(b.clock).Volume(t.disk).Subscriptions(t.subscriptions, t.readers).PushByClients(b.config.PushByClients).Users(user, t.behalf).Accounts(b.hub.Account).Paced(t.api.Pace).Attributes(t.changes, b.started.UnixMilli(), b.hub.Identity, b.changeRate).Rights(b.hub.Identity).Values(t.viewValues).ViewTrouble(t.viewTrouble)
	hub.Offer(t.admin).Set(admin.Subjects)
	b.hub.Declaring(t.admin.Declarer)
	t.controller = placement.NewController(store, t.topics, b.log)
	return nil
}

// findOrigin returns the identity and the leader of a stream that others name as their source.
func (t *topics) findOrigin(stream string) (identity, leader string, err error) {
	if shard := t.topics.Shard(stream); shard != nil && !shard.Desired().Deleting {
		return shard.Key(), shard.Leader(), nil
	}
	return "", "", &sourcing.NotFoundError{Stream: stream}
}

// streamsOf returns the streams of the shards of a Topic with several, or the name itself.
func (t *topics) streamsOf(name string) (streams []string) {
	whole := t.topics.Topic(name)
	if whole == nil || len(whole.Shards()) <= 1 {
		return []string{name}
	}
	for _, shard := range whole.Shards() {
		streams = append(streams, shard.Name())
	}
	return streams
}

// mirrors returns why the shard of a mirror can't mirror its part of the origin, or nil.
func (t *topics) mirrors(shard *topic.ShardLeader) error {
	spec := shard.Place().Topic
	if why := spec.MirrorMismatch(spec.Origin(t.topics.State())); why != "" {
		return errors.New(why)
	}
	return nil
}

// copiesOf returns the sources of a Topic.
func (t *topics) copiesOf(name string) []coordination.StreamSource {
	if whole := t.topics.Topic(name); whole != nil && !whole.Desired().Deleting {
		is := &whole.Desired().Spec.Stream
		return slices.DeleteFunc(slices.Clone(is.Copies()), func(from coordination.StreamSource) bool {
			return !t.behalf.MayConsume(is.User, from.Name)
		})
	}
	return nil
}

// sourceEpochs reports whether all brokers read the epochs of sources.
func (t *topics) sourceEpochs() bool {
	state := t.topics.State()
	return state != nil && state.AllHave(coordination.FeatureSourceEpochs)
}

// originOf returns the stream of an identity if it is led here.
func (t *topics) originOf(identity string) sourcing.Origin {
	if shard := t.topics.ShardByKey(identity); shard != nil {
		if led := shard.Led(); led != nil {
			return led
		}
	}
	return nil
}

// follow applies each State of the cluster.
func (b *Broker) follow(state *coordination.State, changes coordination.Changes) {
	if changes.Brokers || b.topics.topics.State() == nil {
		b.member.SetMembers(state.Brokers)
		b.divideWith(state.Brokers)
	}
	if b.users.etcd != nil {
		b.users.etcd.observe(state)
	}
	b.topics.exchange.Observe(state)
	b.topics.subscriptions.Observe(state)
	b.topics.topics.Follow(state, changes)
	b.topics.api.Follow(changes)
	b.topics.subscriptions.Follow(state, changes)
}

// divideWith sets the brokers that divide the limits of users with this one. Those last known stay
// while this broker is not registered itself: after a restore of etcd, or a long outage of it, all
// register anew.
func (b *Broker) divideWith(brokers []coordination.Broker) {
	if b.mesh == nil {
		return
	}
	others := make([]string, 0, len(brokers))
	for _, broker := range brokers {
		if broker.ID != b.identity.ID {
			others = append(others, broker.ID)
		}
	}
	if len(others) < len(brokers) {
		b.hub.SetBrokers(others)
	}
}

// control runs for controller in each incarnation of this broker until ctx ends.
func (b *Broker) control(ctx context.Context, lives <-chan int64) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case life := <-lives:
			if err := b.topics.controller.Run(ctx, coordination.Replica{Broker: b.identity.ID, Incarnation: life}); err != nil {
				return fmt.Errorf("stand for election as the controller: %w", err)
			}
		}
	}
}

// stopTopics commits what was accepted and closes everything. Nothing is published any more.
func (b *Broker) stopTopics() { b.topics.stop.Do(b.closeTopics) }

func (b *Broker) closeTopics() {
	t := &b.topics
	began := time.Now()
	if t.live != nil {
		t.live.Close() // changes of attributes that are under way find no queries
	}
	var failed error
	if t.topics != nil {
		t.sourcing.Close()
		t.views.Close()
		t.api.Close()
		t.admin.Close()
		if t.system != nil {
			t.system.Close()
		}
		t.advisories.Close() // before the Topics, which may keep them
		failed = t.subscriptions.Close()
		t.push.Close()
		failed = errors.Join(failed, t.topics.Close())
		t.exchange.Close()
	}
	if err := errors.Join(failed, b.closeDisk(failed == nil)); err != nil {
		b.log.Error("Could not close the logs in order", "error", err)
	}
	b.log.Debug("Closed the logs", "took", time.Since(began))
}

// clients adapts the hub to package topic.
type clients struct{ *session.Hub }

func (c clients) Offer(t publish.Taker) publish.Offer { return c.Hub.Offer(t) }

func (c clients) Watch(subject, queue string, changed func()) subscription.Interest {
	return c.Hub.Watch(subject, queue, changed)
}

// ways adapts the Topics service and the JetStream API to package route.
type ways struct {
	*topic.Service
	api *jetstream.Server
}

// Attach is called when the hub has the link already.
func (w ways) Attach(broker string, way route.Carrier) route.TopicsSide {
	defer w.api.Linked(broker)
	return w.Service.Attach(broker, way)
}

// orderly is the content of the disk's mark of an orderly end: the earliest incarnation of which
// the volume still holds every write.
type orderly struct {
	Since int64 `json:"since"`
}

// readMark reads the mark of an orderly end, if the disk has one.
func (b *Broker) readMark() {
	var mark orderly
	if data := b.topics.disk.Mark(); data != nil && json.Unmarshal(data, &mark) == nil {
		b.member.SetSince(mark.Since)
	}
}

// closeDisk closes the disk and, after an orderly end, marks it.
func (b *Broker) closeDisk(inOrder bool) error {
	since := b.member.Since()
	if !inOrder || since == 0 {
		return b.topics.disk.Close()
	}
	data, err := json.Marshal(orderly{Since: since})
	if err != nil {
		return errors.Join(err, b.topics.disk.Close())
	}
	return b.topics.disk.CloseMarked(data)
}
