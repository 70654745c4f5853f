package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

var lockSeed = maphash.MakeSeed()

// consumerRequest decodes and checks a ConsumerCreate for a stream with the given configuration.
func consumerRequest(c *call, stream *jsapi.StreamConfig) (*jsapi.ConsumerRequest, *jsapi.Error) {
	if emptyRequest(c.payload) {
		return nil, jsapi.ErrBadRequest
	}
	request, err := jsapi.Decode[jsapi.ConsumerRequest](c.payload)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSubject(&c.Request); err != nil {
		return nil, err
	}
	config := &request.Config
	if config.Name == "" && config.Durable == "" { // no name: the broker chooses one
		config.Name = strings.ToLower(rand.Text()[:12])
	}
	if request.Pedantic {
		if err := config.CheckPedantic(&stream.ConsumerLimits); err != nil {
			return nil, err
		}
	}
	request.NoThreshold, request.User = config.InactiveThreshold == 0, c.user()
	return &request, config.Normalize(stream)
}

func (s *Server) createConsumer(c *call, t *topic.Shard, shard *topic.ShardLeader) {
	desired := t.Desired()
	stream := s.streamOf(desired)
	request, refusal := consumerRequest(c, &stream)
	if refusal == jsapi.ErrConsumerReplicasExceedsStream && s.config.Standalone {
		refusal = jsapi.ErrStreamReplicasNotSupported // as nats-server does, whatever the stream has
	}
	if refusal == nil {
		refusal = cmp.Or(s.mayMake(request.User, jsapi.ErrConsumerCreate), s.mayPrioritize(&request.Config), s.mayJudge(request, t.Topic(), 1), s.mayDeliver(request.User, request.Config.DeliverSubject))
	}
	if refusal == nil && isShardOfMany(t) {
		switch {
		case request.Config.Durable != "":
			refusal = refuseForOneShard(jsapi.ErrConsumerCreate, t, "given a durable consumer")
		case stream.IsWorkQueue(): // those of the Topic are compared with each other only
			refusal = refuseForOneShard(jsapi.ErrConsumerCreate, t, "given a consumer, since it is a work queue,")
		}
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	settle := func(ctx context.Context) {
		if request.Config.DeliverSubject != "" {
			defer s.config.Subscriptions().Hold(t.Key(), request.Config.Name)()
		}
		made, refusal := s.createOrUpdateConsumer(ctx, t, &stream, request)
		if refusal != nil {
			s.refuseConsumer(c, t, refusal)
			return
		}
		s.countPending(ctx, made)
		s.answer(c, jsapi.ConsumerResponse{Response: c.Call.Answer(), ConsumerInfo: s.consumerAt(t, made, made.InitialInfo())})
	}
	run := func() {
		switch {
		case stream.MaxConsumers > 0 || stream.IsWorkQueue():
			s.submitSlow(c, func(ctx context.Context) {
				lock := s.limitedLock(t.Key())
				lock.Lock() // counting, comparing and creating must be atomic
				defer lock.Unlock()
				settle(ctx)
			})
		case request.Config.Durable != "":
			s.submitSlow(c, settle)
		default:
			s.continueOn(s.writes, c, settle)
		}
	}
	if startsUnconfirmed(&request.Config) {
		s.confirmed(c, shard, run)
	} else {
		run()
	}
}

// startsUnconfirmed reports whether a newer leader may have records that contradict where a
// consumer starts, and nothing waits for the in-sync replicas when it is created: of other
// consumers the start is stored first.
func startsUnconfirmed(config *jsapi.ConsumerConfig) bool {
	from := config.SubscriptionSpec().Start.From
	return config.Durable == "" && config.MemoryStorage && from != coordination.FromEarliest && from != coordination.FromOffset
}

// limitedLock returns the lock that serializes the creation of consumers where their number is
// limited.
func (s *Server) limitedLock(key string) *sync.Mutex {
	return &s.limited[maphash.String(lockSeed, key)%consumerLocks]
}

// createOrUpdateConsumer creates the requested consumer, or updates the existing one.
func (s *Server) createOrUpdateConsumer(ctx context.Context, t *topic.Shard, stream *jsapi.StreamConfig, request *jsapi.ConsumerRequest) (*subscription.Subscription, *jsapi.Error) {
	name := request.Config.Name
	existing, refusal := s.findConsumer(ctx, t, name)
	switch {
	case refusal == nil:
		return s.changeConsumer(ctx, t, stream, existing, request)
	case refusal != jsapi.ErrConsumerNotFound:
		return nil, refusal
	case request.Action == jsapi.UpdateConsumer:
		return nil, jsapi.ErrConsumerDoesNotExist
	case stream.MaxConsumers > 0 && len(s.consumerNamesOf(t)) >= stream.MaxConsumers:
		return nil, jsapi.ErrMaximumConsumersLimit
	}
	if refusal := s.checkQueued(t, stream, &request.Config); refusal != nil {
		return nil, refusal
	}
	made, refusal := s.makeConsumer(ctx, t, request)
	if refusal == nil {
		s.config.Advisories.Consumer(t.Name(), name, advisory.Created)
	}
	if refusal == nil || !errors.Is(refusal, jsapi.ErrConsumerAlreadyExists) {
		return made, refusal
	}
	// Another client created it at the same time. It is not served yet, or this broker's State lacks
	// it still.
	s.until(ctx, func() bool {
		return s.config.Subscriptions().Find(t.Key(), name) != nil || s.state().Subscription(t.ID(), name) != nil
	})
	if existing, refusal = s.findConsumer(ctx, t, name); refusal != nil {
		return nil, refusal
	}
	return s.changeConsumer(ctx, t, stream, existing, request)
}

// checkQueued refuses a consumer that a work queue can't have, or not beside the others.
func (s *Server) checkQueued(t *topic.Shard, stream *jsapi.StreamConfig, config *jsapi.ConsumerConfig) *jsapi.Error {
	if !stream.IsWorkQueue() {
		return nil
	}
	var others []jsapi.ConsumerConfig
	for _, name := range s.consumerNamesOf(t) {
		if name == config.Name {
			continue
		}
		if sub := s.config.Subscriptions().Find(t.Key(), name); sub != nil {
			others = append(others, jsapi.ConsumerOf(name, sub.Spec()))
		} else if declared := s.state().Subscription(t.ID(), name); declared != nil {
			others = append(others, jsapi.ConsumerOf(name, declared.Spec))
		}
	}
	return config.CheckQueued(others)
}

// consumerNamesOf returns the names of a stream's consumers, sorted, including consumers that are
// declared and not served yet.
func (s *Server) consumerNamesOf(t *topic.Shard) []string {
	declared := s.state().Subscriptions(t.ID())
	names := make([]string, 0, len(declared))
	for _, sub := range declared {
		names = append(names, sub.Name)
	}
	for _, sub := range s.config.Subscriptions().List(t.Key()) {
		if sub.Ephemeral() {
			names = append(names, sub.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// findConsumer returns the consumer of that name. It waits for one that is about to be served.
func (s *Server) findConsumer(ctx context.Context, t *topic.Shard, name string) (found *subscription.Subscription, refusal *jsapi.Error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.open)
	defer cancel()
	subs := s.config.Subscriptions()
	var why error
	declared := false
	s.until(ctx, func() bool {
		if found = subs.Find(t.Key(), name); found != nil {
			return true
		}
		declared = s.state().Subscription(t.ID(), name) != nil
		why = subs.WhyNot(t.Key(), name)
		return !consumerStarting(why, declared)
	})
	var not *subscription.NotServedError
	switch {
	case found != nil:
		return found, nil
	case !declared && errors.As(why, &not) && not.Reason == subscription.NoSuch:
		return nil, jsapi.ErrConsumerNotFound
	}
	return nil, consumerOffline(why)
}

func consumerOffline(why error) *jsapi.Error {
	if why == nil {
		return jsapi.ErrConsumerOfflineReason.With("it is being opened; try again")
	}
	return jsapi.ErrConsumerOfflineReason.With(why)
}

// refuseConsumer refuses a call about a consumer. If this broker stopped leading the stream while
// it served the call, the call goes to the next leader instead, also if it was forwarded: each such
// step needs an election, so it can't go round in circles. A call with respond is refused: its
// message has no reply subject, so nobody would receive the next leader's answer.
func (s *Server) refuseConsumer(c *call, t *topic.Shard, refusal *jsapi.Error) {
	if refusal.ErrCode != jsapi.ErrConsumerOfflineReason.ErrCode || c.respond != nil || t.Led() != nil {
		s.refuse(c, refusal)
		return
	}
	s.submitSlow(c, func(ctx context.Context) { // as findStream, it may wait
		waiting, cancel := context.WithTimeout(ctx, s.timeouts.open)
		defer cancel()
		s.until(waiting, func() bool {
			leader := t.Leader()
			return leader != "" && leader != s.config.Self || t.Led() != nil
		})
		if !s.sendToLeader(t.Leader(), s.named(c, &c.message)) {
			s.refuse(c, refusal)
		}
	})
}

func (s *Server) makeConsumer(ctx context.Context, t *topic.Shard, request *jsapi.ConsumerRequest) (*subscription.Subscription, *jsapi.Error) {
	config := &request.Config
	spec := request.SubscriptionSpec()
	if config.Durable == "" {
		spec.Consumer.Maker = request.User
		made, err := s.config.Subscriptions().Create(ctx, t.Key(), config.Name, spec, config.InactiveThreshold)
		var notServed *subscription.NotServedError
		var exists *subscription.ExistsError
		var limit *coordination.LimitError
		switch {
		case errors.As(err, &limit):
			return nil, consumerRefusal(err)
		case errors.As(err, &exists):
			return nil, withReason(jsapi.ErrConsumerAlreadyExists, err)
		case errors.As(err, &notServed):
			return nil, consumerOffline(err)
		case err != nil:
			return nil, jsapi.ErrConsumerCreate.With(err)
		}
		return made, nil
	}
	made, err := s.config.Store.CreateSubscription(ctx, t.Name(), config.Name, spec, clientOf(request.User))
	if err != nil {
		return nil, consumerRefusal(err)
	}
	return s.served(ctx, t, made)
}

// changeConsumer updates an existing consumer to the requested configuration, if that is permitted.
func (s *Server) changeConsumer(ctx context.Context, t *topic.Shard, stream *jsapi.StreamConfig, existing *subscription.Subscription, request *jsapi.ConsumerRequest) (*subscription.Subscription, *jsapi.Error) {
	to := &request.Config
	from := consumerConfig(existing, stream.Replicas)
	to.PauseUntil = from.PauseUntil // only a ConsumerPause changes it
	if same, refusal := request.CheckUpdate(&from); same || refusal != nil {
		return existing, refusal
	}
	if from.DeliverSubject != to.DeliverSubject && s.config.Hub.Interested([]byte(from.DeliverSubject)) {
		return nil, jsapi.ErrConsumerNameExist // its messages would go elsewhere
	}
	if refusal := s.checkQueued(t, stream, to); refusal != nil {
		return nil, refusal
	}
	spec := keepUnmapped(request.SubscriptionSpec(), existing.Spec())
	if existing.Ephemeral() && to.Durable != "" {
		return s.makeDurable(ctx, t, existing, spec)
	}
	return s.respecify(ctx, t, existing, spec)
}

// makeDurable declares a consumer that only the state log of its stream has.
func (s *Server) makeDurable(ctx context.Context, t *topic.Shard, existing *subscription.Subscription, spec coordination.SubscriptionSpec) (*subscription.Subscription, *jsapi.Error) {
	if refusal := s.needs(coordination.FeatureDeclaredConsumers, "making a consumer durable needs"); refusal != nil {
		return nil, refusal
	}
	if !existing.Keep() { // else it could be deleted as unused meanwhile, and begin anew
		return nil, jsapi.ErrConsumerOfflineReason.With("it was just deleted, since nobody used it; try again")
	}
	by := clientOf(spec.Consumer.Maker)
	spec.Consumer.Maker = ""
	made, err := s.config.Store.DeclareConsumer(ctx, t.Name(), existing.Name(), spec, by, existing.Created())
	if err != nil {
		return nil, consumerRefusal(err)
	}
	return s.served(ctx, t, made)
}

// respecify changes the spec of a consumer, and waits until this broker serves it so.
func (s *Server) respecify(ctx context.Context, t *topic.Shard, existing *subscription.Subscription, spec coordination.SubscriptionSpec) (*subscription.Subscription, *jsapi.Error) {
	name := existing.Name()
	if existing.Ephemeral() {
		updated, err := s.config.Subscriptions().Update(ctx, t.Key(), name, spec)
		if err != nil {
			return nil, consumerOffline(err)
		}
		return updated, nil
	}
	updated, err := s.config.Store.UpdateSubscription(ctx, t.Name(), name, coordination.SubscriptionUpdate{By: client, Spec: spec})
	if err != nil {
		return nil, consumerRefusal(err)
	}
	return s.served(ctx, t, updated)
}

// keepUnmapped copies the settings that JetStream cannot express or cannot change from was into
// spec.
func keepUnmapped(spec coordination.SubscriptionSpec, was *coordination.SubscriptionSpec) coordination.SubscriptionSpec {
	spec.Push, spec.DeadLetter, spec.DeletionPolicy = was.Push, was.DeadLetter, was.DeletionPolicy
	spec.Rate, spec.Reset, spec.Consumer.Maker = was.Rate, was.Reset, was.Consumer.Maker
	spec.Start = was.Start
	return spec
}

// served waits until this broker serves a durable consumer as declared.
func (s *Server) served(ctx context.Context, t *topic.Shard, declared *coordination.Subscription) (is *subscription.Subscription, _ *jsapi.Error) {
	subs := s.config.Subscriptions()
	want := jsapi.ConsumerOf(declared.Name, declared.Spec)
	served := s.until(ctx, func() bool {
		if is = subs.Find(t.Key(), declared.Name); is == nil {
			return !consumerStarting(subs.WhyNot(t.Key(), declared.Name), true)
		}
		has := jsapi.ConsumerOf(declared.Name, is.Spec())
		return !is.Ephemeral() && is.Created().Equal(declared.Created) && has.Equal(&want)
	})
	if !served || is == nil {
		return nil, consumerOffline(subs.WhyNot(t.Key(), declared.Name))
	}
	return is, nil
}

func (s *Server) consumerInfo(ctx context.Context, c *call, t *topic.Shard) {
	if !emptyRequest(c.payload) {
		s.refuse(c, jsapi.ErrNotEmptyRequest)
		return
	}
	answer := func(ctx context.Context) {
		sub, refusal := s.findConsumer(ctx, t, string(c.Consumer))
		if refusal != nil {
			s.refuseConsumer(c, t, refusal)
			return
		}
		s.answer(c, jsapi.ConsumerResponse{Response: c.Call.Answer(), ConsumerInfo: s.describeConsumer(ctx, t, sub)})
	}
	if name := string(c.Consumer); s.config.Subscriptions().Find(t.Key(), name) == nil && s.consumerMaySoon(t, name) {
		s.submitSlow(c, answer) // it waits
		return
	}
	answer(ctx)
}

func (s *Server) deleteConsumer(ctx context.Context, c *call, t *topic.Shard) {
	if !emptyRequest(c.payload) {
		s.refuse(c, jsapi.ErrNotEmptyRequest)
		return
	}
	name, subs := string(c.Consumer), s.config.Subscriptions()
	was := subs.Find(t.Key(), name)
	if was == nil && s.consumerMaySoon(t, name) {
		s.submitSlow(c, func(ctx context.Context) {
			waiting, cancel := context.WithTimeout(ctx, s.timeouts.open)
			defer cancel()
			s.until(waiting, func() bool { return subs.Find(t.Key(), name) != nil || !s.consumerMaySoon(t, name) })
			s.deleteFound(ctx, c, t, subs.Find(t.Key(), name))
		})
		return
	}
	s.deleteFound(ctx, c, t, was)
}

// deleteFound deletes a consumer that is served here, or a declared one that is not, if was is nil.
func (s *Server) deleteFound(ctx context.Context, c *call, t *topic.Shard, was *subscription.Subscription) {
	name, subs := string(c.Consumer), s.config.Subscriptions()
	// The answer must come after the consumer can't be found here any more.
	gone := func() bool { is := subs.Find(t.Key(), name); return is == nil || is != was }
	if was != nil && was.Ephemeral() {
		subs.Remove(t.Key(), name)
		s.config.Advisories.Consumer(t.Name(), name, advisory.Deleted)
		s.until(ctx, gone)
		s.answer(c, jsapi.DoneResponse{Response: c.Call.Answer(), Success: true})
		return
	}
	if isShardOfMany(t) {
		s.refuse(c, refuseForOneShard(jsapi.ErrConsumerCreate, t, "parted from a durable consumer"))
		return
	}
	s.submitSlow(c, func(ctx context.Context) {
		if err := s.config.Store.DeleteSubscription(ctx, t.Name(), name, 0, client); err != nil {
			s.refuse(c, consumerRefusal(err))
			return
		}
		s.config.Advisories.Consumer(t.Name(), name, advisory.Deleted)
		s.until(ctx, gone)
		s.answer(c, jsapi.DoneResponse{Response: c.Call.Answer(), Success: true})
	})
}

// Inactive deletes a consumer that set an inactivity threshold and was not used for that long in
// this shard. incarnation is that of the Subscription: one that was made anew is left alone. It
// implements subscription.Config.Inactive and never blocks.
func (s *Server) Inactive(t *topic.Shard, name string, incarnation int64) {
	if t.Number() > 0 { // the first shard asks the others
		return
	}
	s.slow.Submit(brokers, asked{do: func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.timeouts.answer)
		defer cancel()
		declared := s.state().Subscription(t.ID(), name)
		if declared == nil || declared.Incarnation() != incarnation {
			return // it is gone
		}
		is := &declared.Spec.Consumer
		if isShardOfMany(t) && (is.DeliverSubject != "" || s.usedInAShard(ctx, t.Topic(), name, is.InactiveThreshold)) {
			return // its relay knows, or it will be checked again
		}
		s.removeInactive(ctx, t.Topic(), declared)
	}}, 0)
}

func (s *Server) consumerNames(c *call, t *topic.Shard) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	page, paged := jsapi.Page(s.consumerNamesOf(t), request.Offset, jsapi.NamesPage)
	s.answer(c, jsapi.ConsumerNamesResponse{Response: c.Call.Answer(), Paged: paged, Consumers: page})
}

func (s *Server) consumerList(c *call, t *topic.Shard) {
	request, refusal := jsapi.Decode[jsapi.PageRequest](c.payload)
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	response := jsapi.ConsumerListResponse{Response: c.Call.Answer(), Consumers: []*jsapi.ConsumerInfo{}}
	var served []*subscription.Subscription
	for _, name := range s.consumerNamesOf(t) {
		if sub := s.config.Subscriptions().Find(t.Key(), name); sub != nil {
			served = append(served, sub)
		} else {
			response.Missing = append(response.Missing, name) // not counted in total, see streamList
		}
	}
	page, paged := jsapi.Page(served, request.Offset, jsapi.ListPage)
	response.Paged = paged
	size := 0
	ctx, cancel := context.WithTimeout(s.ctx, listCountTime)
	defer cancel()
	for _, sub := range page {
		info := s.describeConsumer(ctx, t, sub)
		if size += info.Size(); size > listBytes && len(response.Consumers) > 0 {
			break
		}
		response.Consumers = append(response.Consumers, info)
	}
	s.answer(c, response)
}

// consumerConfig returns the configuration that clients see for a consumer served here. Its cursor
// has as many replicas as its stream.
func consumerConfig(sub *subscription.Subscription, replicas int) jsapi.ConsumerConfig {
	config := jsapi.ConsumerOf(sub.Name(), sub.Spec())
	if config.Replicas > 0 {
		config.Replicas = replicas
	}
	return config
}

// describeConsumer returns the info of a consumer that is served here. Its pending messages are
// counted until ctx ends.
func (s *Server) describeConsumer(ctx context.Context, t *topic.Shard, sub *subscription.Subscription) *jsapi.ConsumerInfo {
	s.countPending(ctx, sub)
	return s.consumerAt(t, sub, sub.Info())
}

// countPending counts the pending messages of a consumer, until ctx ends, if they are many.
func (s *Server) countPending(ctx context.Context, sub *subscription.Subscription) {
	if !sub.Uncounted() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	s.count(ctx, func() { sub.Count(ctx) })
}

// consumerAt is describeConsumer at a known state.
func (s *Server) consumerAt(t *topic.Shard, sub *subscription.Subscription, is subscription.Info) *jsapi.ConsumerInfo {
	return &jsapi.ConsumerInfo{
		Stream: t.Name(), Name: sub.Name(), Created: sub.Created().UTC(),
		Config:         consumerConfig(sub, replicasOf(s.state(), t.Desired())).Versioned(),
		Delivered:      jsapi.SequenceInfo{Consumer: is.DeliveredSequence, Stream: is.DeliveredOffset, Last: moment(is.LastDelivered)},
		AckFloor:       jsapi.SequenceInfo{Consumer: is.FloorSequence, Stream: is.FloorOffset, Last: moment(is.LastAcked)},
		NumAckPending:  is.Pending,
		NumRedelivered: is.Redelivered, NumWaiting: is.Waiting, NumPending: is.Lag,
		PushBound: is.Bound || t.Number() == 0 && isShardOfMany(t) && !sub.Ephemeral() && s.relays.bound(t.ID(), sub.Name()),
		Paused:    is.PausedFor > 0, PauseRemaining: is.PausedFor, PriorityGroups: priorityGroups(sub.Spec(), &is),
		Cluster: s.cluster(t.ID(), t.Number()), TimeStamp: time.Now().UTC(),
	}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
