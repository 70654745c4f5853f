package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/advisory"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// Store is the part of coordination that the server uses. *coordination.Client implements it.
type Store interface {
	CreateTopic(ctx context.Context, name string, spec coordination.TopicSpec, owner coordination.Owner) (*coordination.Topic, error)
	UpdateTopic(ctx context.Context, name string, update coordination.TopicUpdate) (*coordination.Topic, error)
	DeleteTopic(ctx context.Context, name, id string, by coordination.Owner) error
	GetTopic(ctx context.Context, name string) (*coordination.Topic, error)
	GetSubscription(ctx context.Context, topic, name string) (*coordination.Subscription, error)
	CreateSubscription(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner) (*coordination.Subscription, error)
	DeclareConsumer(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner, created time.Time) (*coordination.Subscription, error)
	CreateSubscriptionSince(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner, since int64) (*coordination.Subscription, error)
	UpdateSubscription(ctx context.Context, topic, name string, update coordination.SubscriptionUpdate) (*coordination.Subscription, error)
	DeleteSubscription(ctx context.Context, topic, name string, revision int64, by coordination.Owner) error
}

// Hub is the clients and links of this broker as a Server uses them.
type Hub interface {
	publish.Hub
	// SendSoon is Send, by a caller that sends more at once.
	SendSoon(messages []protocol.Message) work.Behind
	// Watch watches the subscriptions to exactly this subject, on this and on linked brokers, as
	// subscription.DeliverySink describes.
	Watch(subject, queue string, changed func()) subscription.Interest
	// Peers returns the ids of the brokers that Forward reaches. The caller may change the slice.
	Peers() []string
}

// ServerConfig configures a Server.
type ServerConfig struct {
	Self          string // id of this broker
	Name          string // broker name, shown to clients as leader
	Cluster       string // cluster name, shown to clients
	Standalone    bool   // links to no other brokers: clients see no cluster
	Payload       int    // largest message in bytes that reaches every client; 0: no bound
	Hub           Hub
	Topics        *topic.Service
	Subscriptions func() *subscription.Service
	Store         Store
	Advisories    *advisory.Publisher // nil: none
	Clients       *activity.Clients   // receives which client reads by which Subscription; nil: nobody
	// Sources returns how far the sources of a shard have come. nil: nothing is copied.
	Sources func(s *topic.ShardLeader) []sourcing.Info
	// User returns the name of a client's user. Behalf decides what is done for users. nil: there
	// are no users.
	User   func(client uint64) string
	Behalf *identity.Behalf
	// Account returns on whose account a client calls: calls have a rate by account, and accounts
	// share the pools. nil: all count together.
	Account func(client uint64) string
	Logger  *slog.Logger // nil: none
}

// Server serves the JetStream API and acks on every broker. A call about one stream is served by
// the stream's leader: other brokers forward it there.
//
// A connection's reader parses the subject, looks up the leader, and forwards, pulls or acks.
// Everything else runs on one of four bounded pools, on which users take turns: slow for work
// that waits for etcd or other brokers, writes for work that waits for the logs of this broker's
// shards, reads for work that only reads locally, and infos for what may count, so that no direct
// get waits for that. The latter three go on while etcd is away. Pulls and acks for a consumer that
// is about to be served wait in a room of their own. A forwarded message is never forwarded again,
// so two brokers that disagree about the leader refuse a call instead of passing it back and forth.
type Server struct {
	config   ServerConfig
	topics   *topic.Service
	log      *slog.Logger
	timeouts timeouts

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	offer   publish.Offer
	slow    *work.FairJobs
	writes  *work.FairJobs
	reads   *work.FairJobs
	infos   *work.FairJobs
	counts  chan struct{} // one for each count under way
	waiting *waitingRoom
	pace    *pace
	pulled  forwardedPulls
	room    *subscription.PullRoom
	running sync.WaitGroup

	peerRequests session.Requests[peerAnswer]
	shares       openRequests
	groups       pullGroups
	relays       relays
	yields       yields
	outgoing     sync.Pool // of *batch
	mirrors      atomic.Pointer[mirrors]
	limited      [consumerLocks]sync.Mutex // of streams that limit their consumers, see createConsumer
	calls        atomic.Uint64
	errors       atomic.Uint64
	overloaded   atomic.Uint64
	pulls        atomic.Uint64
	acks         atomic.Uint64
	forwards     atomic.Uint64
	delivered    atomic.Uint64
}

// Stats are counters of requests to this broker, direct or forwarded.
type Stats struct {
	Calls      uint64 // API calls without pulls
	Errors     uint64 // refused calls
	Overloaded uint64 // calls refused because a pool was full
	Paced      uint64 // calls that waited since their client made too many, see pace
	TooFast    uint64 // calls refused for that
	Pulls      uint64
	PullBytes  int64  // what waiting pulls take
	TooMany    uint64 // pulls refused because their account has its share, or its user's limit
	Acks       uint64
	Forwarded  uint64 // calls, pulls and acks forwarded to the leader
	Delivered  uint64 // messages delivered
	Advisories advisory.Stats
}

// NewServer returns a server. Start starts it.
func NewServer(config ServerConfig) *Server {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: config, topics: config.Topics, log: config.Logger, timeouts: defaultTimeouts,
		slow:  work.NewFairJobs(slowAtOnce, slowWaiting, waitingBytes),
		reads: work.NewFairJobs(readsAtOnce, readsWaiting, waitingBytes),
		infos: work.NewFairJobs(infosAtOnce, infosWaiting, waitingBytes), counts: make(chan struct{}, countsAtOnce),
		writes: work.NewFairJobs(writesAtOnce, writesWaiting, waitingBytes),
	}
	s.waiting, s.pace = newWaitingRoom(s), newPace(s)
	s.pulled.server, s.pulled.late = s, make(chan struct{}, 1)
	s.outgoing.New = func() any { return new(batch) }
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.shares.server, s.groups.server, s.room = s, s, subscription.NewPullRoom(pullsBytes)
	s.relays.init(s)
	return s
}

// Start registers the API's subjects. Calls arrive from now on.
func (s *Server) Start() {
	s.offer = s.config.Hub.Offer(s)
	s.offer.Set([]string{jsapi.APISubjects, jsapi.AckSubjects, jsapi.FlowSubjects, peerSubjects})
	s.running.Go(s.groups.run)
	s.running.Go(s.relays.run)
	s.running.Go(s.waiting.run)
	s.running.Go(s.pace.run)
	s.running.Go(s.pulled.run)
}

// Close stops taking calls, cancels the ones in progress and waits for them.
func (s *Server) Close() {
	s.relays.finish()
	if s.offer != nil {
		s.offer.Close()
	}
	s.stop()
	s.running.Wait()
	s.groups.close()
	s.relays.close()
	s.slow.Finish()
	s.writes.Finish()
	s.reads.Finish()
	s.infos.Finish()
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.calls.Load(), Errors: s.errors.Load(), Overloaded: s.overloaded.Load(), Paced: s.pace.paced.Load(), TooFast: s.pace.refused.Load(), Pulls: s.pulls.Load(), PullBytes: s.room.Held(), TooMany: s.room.Refused(),
		Acks: s.acks.Load(), Forwarded: s.forwards.Load(), Delivered: s.delivered.Load(),
		Advisories: s.config.Advisories.Stats(),
	}
}

// TakeOf implements session.ClientTaker: it notes which client reads by which Subscription.
func (s *Server) TakeOf(client uint64, messages []protocol.Message, _ protocol.Memory, _ *work.Behind) {
	if s.config.Clients != nil {
		for i := range messages {
			s.noteReader(client, &messages[i])
		}
	}
	s.take(client, messages, false)
}

// Take implements publish.Taker. Readers of connections and links call it, so it never blocks.
func (s *Server) Take(messages []protocol.Message, _ protocol.Memory, forwarded bool) (behind bool) {
	return s.take(0, messages, forwarded)
}

// take takes messages of a client of this broker, or forwarded ones.
func (s *Server) take(client uint64, messages []protocol.Message, forwarded bool) (behind bool) {
	for i := range messages {
		m := &messages[i]
		switch {
		case bytes.HasPrefix(m.Subject, []byte(jsapi.AckPrefix)):
			by := puller{client: client, forwarded: forwarded}
			if isAckNext(m) {
				by, m = s.pullerOf(client, m, forwarded)
			}
			s.takeForConsumer(m, by)
		case bytes.HasPrefix(m.Subject, []byte(jsapi.APIPrefix)):
			s.takeCall(client, m, forwarded)
		case bytes.HasPrefix(m.Subject, []byte(jsapi.FlowPrefix)):
			s.takeFlow(m, forwarded)
		case forwarded: // subjects between brokers; ignored if a client publishes there
			s.takePeerMessage(m)
		}
	}
	return false
}

// Wait returns at once, since Take never reports behind.
func (s *Server) Wait() {}

// call is an API call with memory of its own.
type call struct {
	jsapi.Request
	reply     []byte
	header    protocol.Header
	payload   []byte
	message   protocol.Message // the complete message
	forwarded bool
	client    uint64      // of this broker; 0: it was forwarded
	by        work.Client // as pools tell clients apart
	server    *Server
	deadline  time.Time
	// respond receives the answer instead of reply, for another part of this package or another
	// broker. nil: reply gets it.
	respond func(answer []byte)
}

// newCall copies the message. A forwarded one names its client.
func newCall(m *protocol.Message, forwarded bool, within time.Duration) *call {
	memory := make([]byte, 0, len(m.Subject)+len(m.Reply)+len(m.Data))
	keep := func(b []byte) []byte {
		start := len(memory)
		memory = append(memory, b...)
		return memory[start:len(memory):len(memory)]
	}
	c := &call{forwarded: forwarded, deadline: time.Now().Add(within)}
	c.message = protocol.Message{Subject: keep(m.Subject), Reply: keep(m.Reply), Header: m.Header, Data: keep(m.Data)}
	c.reply = c.message.Reply
	c.header, c.payload = protocol.SplitData(c.message.Data, m.Header)
	c.Request, _ = jsapi.ParseSubject(c.message.Subject)
	if forwarded {
		c.by = identity.ForwardedClient(c.header)
	}
	return c
}

// size returns the approximate memory of the call in bytes.
func (c *call) size() int {
	return 256 + len(c.message.Subject) + len(c.reply) + len(c.message.Data)
}

func (s *Server) takeCall(client uint64, m *protocol.Message, forwarded bool) {
	r, _ := jsapi.ParseSubject(m.Subject)
	switch r.Call {
	case jsapi.Unknown: // nats-server does not answer either
		return
	case jsapi.ConsumerNext:
		by, m := s.pullerOf(client, m, forwarded)
		s.takeForConsumer(m, by)
		return
	}
	s.calls.Add(1)
	if !forwarded && asksForMore(r.Call) {
		m = s.sign(client, m)
	}
	if forwarded || s.pace.passes(client, r, m) {
		s.takePaced(client, r, m, forwarded, time.Now())
	}
}

// takePaced takes a call that came at a time, whatever else its client calls.
func (s *Server) takePaced(client uint64, r jsapi.Request, m *protocol.Message, forwarded bool, came time.Time) {
	if r.Call.OfOneStream() && !forwarded {
		if t := s.topics.Shard(string(r.Stream)); t != nil && t.Leader() != s.config.Self && s.sendToLeader(t.Leader(), s.from(client, m)) {
			return
		}
	}
	if len(m.Data) > requestBytes {
		s.refuse(&call{Request: r, reply: m.Reply, message: protocol.Message{Subject: bytes.Clone(m.Subject)}}, jsapi.ErrBadRequest)
		return
	}
	c := newCall(m, forwarded, s.timeouts.answer-time.Since(came))
	if c.client = client; !forwarded {
		c.by = identity.ClientOf(s.accountOf(client), client)
	}
	if !s.levelServed(c.header) {
		s.refuse(c, jsapi.ErrRequiredAPILevel)
		return
	}
	s.submitCall(c)
}

// poolOf returns the pool on which a call is served.
func (s *Server) poolOf(c *call) *work.FairJobs {
	switch {
	case c.Call.MayWait():
		return s.slow
	case c.Call.MayCount():
		return s.infos
	}
	return s.reads
}

// sendToLeader forwards a message to the leader. It reports false if this broker leads or has no
// link to the leader.
func (s *Server) sendToLeader(leader string, m *protocol.Message) bool {
	if leader == "" || leader == s.config.Self || !s.pass(leader, m) {
		return false
	}
	s.forwards.Add(1)
	return true
}

// levelServed reports whether the API level that a request requires, if any, is supported.
func (s *Server) levelServed(header protocol.Header) bool {
	if len(header) == 0 {
		return true
	}
	needs, ok := header.Get(jsapi.RequiredLevelHeader)
	if !ok {
		return true
	}
	return jsapi.LevelServed(needs)
}

// serve serves a call. It runs on a pool.
func (s *Server) serve(c *call) {
	if s.ctx.Err() != nil || !time.Now().Before(c.deadline) { // it waited too long, or the server is closing
		s.overload(c)
		return
	}
	var t *topic.Shard
	var shard *topic.ShardLeader
	if c.Call.OfOneStream() {
		if t = s.topics.Shard(string(c.Stream)); t != nil && t.Leader() == s.config.Self {
			shard = t.Led()
		}
	}
	if shard != nil && (c.Call == jsapi.DirectGet || c.Call == jsapi.DirectGetLast) {
		s.directGetOf(c, t, shard) // a context would take a tenth of its time
		return
	}
	ctx, cancel := context.WithDeadline(s.ctx, c.deadline)
	defer cancel()
	switch {
	case !c.Call.OfOneStream():
		s.serveAnywhere(ctx, c)
		return
	case shard != nil:
		s.serveStream(ctx, c, t, shard)
		return
	}
	// The call has to wait, even for its refusal, so it moves to the slow pool.
	s.submitSlow(c, func(ctx context.Context) {
		t, shard, refusal := s.findStream(ctx, c)
		switch {
		case refusal != nil:
			s.refuse(c, refusal)
		case shard != nil:
			s.serveStream(ctx, c, t, shard)
		}
	})
}

func (s *Server) serveAnywhere(ctx context.Context, c *call) {
	switch c.Call {
	case jsapi.AccountInfo:
		s.accountInfo(ctx, c)
	case jsapi.StreamCreate:
		s.createStream(ctx, c)
	case jsapi.StreamDelete:
		s.deleteStream(ctx, c)
	case jsapi.StreamNames:
		s.streamNames(c)
	case jsapi.StreamList:
		s.streamList(ctx, c)
	default:
		s.refuse(c, c.Call.Declined(s.config.Standalone))
	}
}

func (s *Server) serveStream(ctx context.Context, c *call, t *topic.Shard, shard *topic.ShardLeader) {
	switch c.Call {
	case jsapi.StreamUpdate:
		s.updateStream(ctx, c, t)
	case jsapi.StreamInfoCall:
		s.confirmed(c, shard, func() { s.streamInfo(c, t, shard) })
	case jsapi.StreamPurge:
		s.confirmed(c, shard, func() { s.purgeStream(c, t, shard) })
	case jsapi.MessageGet:
		s.getMessage(c, shard, false)
	case jsapi.MessageDelete:
		s.deleteMessage(c, t, shard, false)
	case jsapi.DirectGet, jsapi.DirectGetLast:
		s.directGetOf(c, t, shard)
	case jsapi.ConsumerCreate, jsapi.ConsumerDurable:
		s.createConsumer(c, t, shard)
	case jsapi.ConsumerInfoCall:
		s.consumerInfo(ctx, c, t)
	case jsapi.ConsumerDelete:
		s.deleteConsumer(ctx, c, t)
	case jsapi.ConsumerPause:
		s.pauseConsumer(ctx, c, t)
	case jsapi.ConsumerReset:
		s.resetConsumer(ctx, c, t, shard)
	case jsapi.ConsumerUnpin:
		s.unpinConsumer(ctx, c, t)
	case jsapi.ConsumerNames:
		s.consumerNames(c, t)
	case jsapi.ConsumerList:
		s.consumerList(c, t)
	default:
		s.refuse(c, jsapi.ErrBadRequest)
	}
}

// findStream returns the stream, with its leader if this broker leads it. If shard and refusal are
// nil, the call was forwarded, or was served as a call about a Topic with several shards. It waits
// a moment for a stream that was just created through another broker, a log that is being opened,
// or a leader that was just elected.
func (s *Server) findStream(ctx context.Context, c *call) (t *topic.Shard, shard *topic.ShardLeader, refusal *jsapi.Error) {
	name, asked, gone, sent := string(c.Stream), false, false, false
	var whole *topic.Topic
	waiting, cancel := context.WithTimeout(ctx, s.timeouts.open)
	defer cancel()
	s.until(waiting, func() bool {
		if t = s.topics.Shard(name); t == nil {
			if whole = s.shardedTopic(name); whole != nil {
				return true
			}
			if !asked {
				asked = true
				gone, refusal = s.confirmUnknown(ctx, name)
			}
			return gone || refusal != nil
		}
		leader := t.Leader()
		switch {
		case t.Desired().Deleting:
			gone = true
			return true
		case leader == s.config.Self:
			if shard = t.Led(); shard != nil {
				return true
			}
		case leader == "":
		case c.forwarded: // the sender's State may be newer or older than this broker's
			return false
		case s.sendToLeader(leader, s.from(c.client, &c.message)):
			sent = true
			return true
		}
		// It may have another leader by now, which is why it isn't served here.
		return !s.mayServeSoon(t)
	})
	switch {
	case refusal != nil || shard != nil:
	case whole != nil:
		s.serveSharded(ctx, c, whole)
	case gone || t == nil:
		refusal = jsapi.ErrStreamNotFound
	case !sent:
		refusal = streamOffline(t.WhyNot())
	}
	return t, shard, refusal
}

// confirmUnknown asks etcd whether a stream exists that this broker's State lacks.
func (s *Server) confirmUnknown(ctx context.Context, name string) (gone bool, refusal *jsapi.Error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.unknown)
	defer cancel()
	t, err := s.config.Store.GetTopic(ctx, name)
	shard := 0
	if of, number, ok := shardOf(name); ok && err != nil { // a Topic's name has no such suffix
		shard = number
		t, err = s.config.Store.GetTopic(ctx, of)
	}
	switch {
	case isNotFound(err) || err == nil && (t.Deleting || shard >= max(t.Spec.Shards, 1)):
		return true, nil
	case err != nil:
		return false, unavailable(err)
	}
	return false, nil
}

// until waits until ok returns true. It reports false if ctx ended first.
func (s *Server) until(ctx context.Context, ok func() bool) bool {
	var again <-chan time.Time
	for {
		changed := s.topics.Changed()
		if ok() {
			return true
		}
		if again == nil {
			ticker := time.NewTicker(s.timeouts.poll)
			defer ticker.Stop()
			again = ticker.C
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return false
		}
	}
}

// state returns the State that this broker has last seen, never nil.
func (s *Server) state() *coordination.State {
	if state := s.topics.State(); state != nil {
		return state
	}
	return new(coordination.State)
}

// answer sends an answer as JSON, if one is expected.
func (s *Server) answer(c *call, response any) {
	if len(c.reply) == 0 && c.respond == nil {
		return
	}
	data, err := json.Marshal(response)
	if err != nil { // cannot fail: the fields are plain
		s.log.Error("Could not encode a JetStream answer", "error", err)
		return
	}
	if s.tooLarge(len(data)) {
		s.refuse(c, jsapi.ErrStreamGeneral.With(fmt.Sprintf("the answer has %d bytes, and a message may have %d (have a consumer deliver it)", len(data), s.config.Payload)))
		return
	}
	if c.respond != nil {
		c.respond(data)
		return
	}
	s.reply(c, data)
}

// reply sends an answer in JSON, and reports the call.
func (s *Server) reply(c *call, data []byte) {
	s.config.Advisories.Audit(c.message.Subject, c.payload, data)
	s.send(protocol.Message{Subject: c.reply, Data: data})
}

// tooLarge reports whether a message would exceed the payload limit of a client.
func (s *Server) tooLarge(size int) bool { return s.config.Payload > 0 && size > s.config.Payload }

// refuse sends the error answer of a call. Direct gets are answered by messages, so they get a
// status: no responders, as nats-server does for a stream that does not exist.
func (s *Server) refuse(c *call, err *jsapi.Error) {
	s.errors.Add(1)
	if c.respond != nil {
		c.respond(c.Call.Refuse(err))
		return
	}
	if len(c.reply) == 0 {
		return
	}
	if c.Call == jsapi.DirectGet || c.Call == jsapi.DirectGetLast {
		switch err {
		case jsapi.ErrRequiredAPILevel:
			s.sendStatus(c.reply, jsapi.LevelRequired)
		case jsapi.ErrBadRequest:
			s.sendStatus(c.reply, jsapi.BadRequest)
		default:
			s.sendStatus(c.reply, noResponders)
		}
		return
	}
	s.reply(c, c.Call.Refuse(err))
}

func (s *Server) send(m protocol.Message) { s.config.Hub.Send([]protocol.Message{m}) }

// pass passes a message on to another broker, and reports whether there is a link.
func (s *Server) pass(broker string, m *protocol.Message) bool {
	linked, _ := s.config.Hub.Forward(broker, m)
	return linked
}

// sendStatus sends a message that consists of a status only.
func (s *Server) sendStatus(to []byte, status jsapi.Status) {
	data := jsapi.AppendStatus(nil, status)
	s.send(protocol.Message{Subject: to, Header: len(data), Data: data})
}
