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

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// Store is what the server writes to coordination, and asks it; *coordination.Client is one.
type Store interface {
	CreateTopic(ctx context.Context, name string, spec coordination.TopicSpec, owner coordination.Owner) (*coordination.Topic, error)
	UpdateTopic(ctx context.Context, name string, update coordination.TopicUpdate) (*coordination.Topic, error)
	DeleteTopic(ctx context.Context, name, id string, by coordination.Owner) error
	GetTopic(ctx context.Context, name string) (*coordination.Topic, error)
	CreateSubscription(ctx context.Context, topic, name string, spec coordination.SubscriptionSpec, owner coordination.Owner) (*coordination.Subscription, error)
	UpdateSubscription(ctx context.Context, topic, name string, update coordination.SubscriptionUpdate) (*coordination.Subscription, error)
	DeleteSubscription(ctx context.Context, topic, name string, by coordination.Owner) error
}

// ServerConfig is what a Server works with.
type ServerConfig struct {
	Self          string // id of this broker
	Name          string // for people: the leader in what clients are told
	Cluster       string // for people
	Payload       int    // the largest message that reaches every client; 0: no bound
	Hub           topic.Hub
	Topics        *topic.Service
	Subscriptions func() *subscription.Service
	Store         Store
	Logger        *slog.Logger // nil: none
}

// Server answers JetStream's API and takes its acks, on every broker: what concerns one stream it
// serves if this broker leads it, and hands it on to the leader otherwise.
//
// A reader's goroutine parses the subject, looks up who leads, and forwards, pulls or acknowledges.
// All else is done on one of two bounded pools: one for what waits for etcd or other brokers, which may
// be slow or away, and one for what only reads here, which goes on then. What was handed on is never handed on again,
// so two brokers that disagree about a leader refuse rather than play ball.
type Server struct {
	config ServerConfig
	topics *topic.Service
	log    *slog.Logger
	waits  waits

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	offer   topic.Offer
	slow    *work.Jobs
	reads   *work.Jobs
	running sync.WaitGroup

	asks       session.Requests[peerAnswer]
	groups     pullGroups
	outgoing   sync.Pool                 // of *batch
	limited    [consumerLocks]sync.Mutex // of streams that limit their consumers, see createConsumer
	calls      atomic.Uint64
	errors     atomic.Uint64
	overloaded atomic.Uint64
	pulls      atomic.Uint64
	acks       atomic.Uint64
	forwards   atomic.Uint64
	delivered  atomic.Uint64
}

// Stats count what was asked of this broker, directly or through another one.
type Stats struct {
	Calls      uint64 // of the API, pulls not among them
	Errors     uint64 // of those that were refused
	Overloaded uint64 // of those that were refused since too much was under way
	Pulls      uint64
	Acks       uint64
	Forwarded  uint64 // calls, pulls and acks that were handed on to the leader
	Delivered  uint64 // messages to receivers
}

// NewServer makes a server that does nothing until Start.
func NewServer(config ServerConfig) *Server {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: config, topics: config.Topics, log: config.Logger, waits: usualWaits,
		slow:  work.NewJobs(slowAtOnce, slowWaiting, waitingBytes),
		reads: work.NewJobs(readsAtOnce, readsWaiting, waitingBytes),
	}
	s.outgoing.New = func() any { return new(batch) }
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.groups.server = s
	return s
}

// Start takes calls from now on.
func (s *Server) Start() {
	s.offer = s.config.Hub.Offer(s)
	s.offer.Set([]string{jsapi.APISubjects, jsapi.AckSubjects, askSubjects})
	s.running.Go(s.groups.watch)
}

// Close takes no calls any more, and waits for those under way, which are cut short.
func (s *Server) Close() {
	if s.offer != nil {
		s.offer.Close()
	}
	s.stop()
	s.running.Wait()
	s.groups.close()
	s.slow.Finish()
	s.reads.Finish()
}

// Stats are the server's counters.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.calls.Load(), Errors: s.errors.Load(), Overloaded: s.overloaded.Load(), Pulls: s.pulls.Load(),
		Acks: s.acks.Load(), Forwarded: s.forwards.Load(), Delivered: s.delivered.Load(),
	}
}

// Take is called by a connection's or link's reader: nothing in it waits.
func (s *Server) Take(messages []protocol.Message, forwarded bool) (behind bool) {
	for i := range messages {
		m := &messages[i]
		switch {
		case bytes.HasPrefix(m.Subject, []byte(jsapi.AckPrefix)):
			s.takeAck(m, forwarded)
		case bytes.HasPrefix(m.Subject, []byte(jsapi.APIPrefix)):
			s.takeCall(m, forwarded)
		case forwarded: // brokers' own; a client that publishes there is not heard
			s.takePeerMessage(m)
		}
	}
	return false
}

// Wait returns at once: nobody is ever asked to.
func (s *Server) Wait() {}

// call is a call of the API, in memory of its own.
type call struct {
	jsapi.Request
	reply     []byte
	header    protocol.Header
	payload   []byte
	message   protocol.Message // all of it, as it came
	forwarded bool
	deadline  time.Time
	// tell is given the answer, if another part of this package, or of another broker's, wants it; nil: reply has it.
	tell func(answer []byte)
}

// newCall copies the message.
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
	return c
}

// size is about what the call holds.
func (c *call) size() int {
	return 256 + len(c.message.Subject) + len(c.reply) + len(c.message.Data)
}

func (s *Server) takeCall(m *protocol.Message, forwarded bool) {
	r, _ := jsapi.ParseSubject(m.Subject)
	if r.Call == jsapi.ConsumerNext {
		s.takePull(m, &r, forwarded)
		return
	}
	s.calls.Add(1)
	if r.Call.OfOneStream() && !forwarded {
		if t := s.topics.Shard(string(r.Stream)); t != nil && s.sendToLeader(t.Leader(), m) {
			return
		}
	}
	if len(m.Data) > requestBytes {
		s.refuse(&call{Request: r, reply: m.Reply}, jsapi.ErrBadRequest)
		return
	}
	c := newCall(m, forwarded, s.waits.answer)
	if !s.levelServed(c.header) {
		s.refuse(c, jsapi.ErrRequiredAPILevel)
		return
	}
	to := s.reads
	if c.Call.MayWait() {
		to = s.slow
	}
	s.submit(to, c, func() { s.serve(c) })
}

// submit runs do on a pool, or refuses the call if the pool has no room.
func (s *Server) submit(to *work.Jobs, c *call, do func()) {
	if !to.Submit(do, c.size()) {
		s.overloaded.Add(1)
		s.refuse(c, jsapi.ErrInsufficientResources)
	}
}

// submitSlow continues a call on the pool whose jobs may wait for etcd or other brokers.
func (s *Server) submitSlow(c *call, do func(ctx context.Context)) {
	s.submit(s.slow, c, func() {
		ctx, cancel := context.WithDeadline(s.ctx, c.deadline)
		defer cancel()
		do(ctx)
	})
}

// sendToLeader forwards a message to the leader and reports whether it could: not if this broker leads, or
// without a link to the leader.
func (s *Server) sendToLeader(leader string, m *protocol.Message) bool {
	if leader == "" || leader == s.config.Self || !s.config.Hub.Forward(leader, m) {
		return false
	}
	s.forwards.Add(1)
	return true
}

// levelServed says whether the API level that a request needs, if it says so, is there.
func (s *Server) levelServed(header protocol.Header) bool {
	if len(header) == 0 {
		return true
	}
	needs, ok := header.Get(jsapi.RequiredLevelHeader)
	if !ok {
		return true
	}
	level, ok := jsapi.ParseUint(needs)
	return ok && level <= jsapi.APILevel
}

// serve runs on a pool.
func (s *Server) serve(c *call) {
	ctx, cancel := context.WithDeadline(s.ctx, c.deadline)
	defer cancel()
	if ctx.Err() != nil { // it waited too long, or the server is closing
		s.overloaded.Add(1)
		s.refuse(c, jsapi.ErrInsufficientResources)
		return
	}
	if !c.Call.OfOneStream() {
		s.serveAnywhere(ctx, c)
		return
	}
	if t := s.topics.Shard(string(c.Stream)); t != nil && t.Leader() == s.config.Self {
		if shard := t.Led(); shard != nil {
			s.serveStream(ctx, c, t, shard)
			return
		}
	}
	// It has to wait, be it to be told why it can't be served: not where others would wait for it.
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
		s.refuse(c, jsapi.ErrBadRequest)
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
		s.deleteMessage(c, t)
	case jsapi.DirectGet, jsapi.DirectGetLast:
		if c.wantsLatest() {
			s.confirmed(c, shard, func() { s.directGet(c, t, shard) })
			return
		}
		s.directGet(c, t, shard)
	case jsapi.ConsumerCreate, jsapi.ConsumerDurable:
		s.createConsumer(ctx, c, t)
	case jsapi.ConsumerInfoCall:
		s.consumerInfo(ctx, c, t)
	case jsapi.ConsumerDelete:
		s.deleteConsumer(ctx, c, t)
	case jsapi.ConsumerNames:
		s.consumerNames(c, t)
	case jsapi.ConsumerList:
		s.consumerList(c, t)
	default:
		s.refuse(c, jsapi.ErrBadRequest)
	}
}

// findStream finds the stream, with its shard if this broker leads it. Without a shard and without an
// error the call was handed on, or is for a Topic of several shards and has been served. It waits a moment for what is about to be: a stream that was
// just made through another broker, a log that is being opened, a leader that was just named.
func (s *Server) findStream(ctx context.Context, c *call) (t *topic.Shard, shard *topic.ShardLeader, refusal *jsapi.Error) {
	name, asked, gone := string(c.Stream), false, false
	var whole *topic.Topic
	waiting, cancel := context.WithTimeout(ctx, s.waits.open)
	defer cancel()
	found := s.until(waiting, func() bool {
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
			shard = t.Led()
			return shard != nil || !opening(t.WhyNot())
		case leader == "":
			return !opening(t.WhyNot())
		case c.forwarded: // by a broker that knows better, or knew better before
			return false
		}
		if !s.sendToLeader(leader, &c.message) {
			refusal = offline(t.WhyNot())
		}
		return true
	})
	switch {
	case refusal != nil || shard != nil:
	case whole != nil:
		s.serveSharded(ctx, c, whole)
	case gone || t == nil:
		refusal = jsapi.ErrStreamNotFound
	case !found || t.Leader() == "" || t.Leader() == s.config.Self:
		refusal = offline(t.WhyNot())
	}
	return t, shard, refusal
}

// confirmUnknown asks etcd whether a stream exists that this broker's State lacks.
func (s *Server) confirmUnknown(ctx context.Context, name string) (gone bool, refusal *jsapi.Error) {
	ctx, cancel := context.WithTimeout(ctx, s.waits.unknown)
	defer cancel()
	t, err := s.config.Store.GetTopic(ctx, name)
	shard := 0
	if of, number, ok := shardOf(name); ok && err != nil { // no Topic has such a name
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

// until waits until ok, and says whether it was before ctx ended.
func (s *Server) until(ctx context.Context, ok func() bool) bool {
	var again <-chan time.Time
	for {
		changed := s.topics.Changed()
		if ok() {
			return true
		}
		if again == nil {
			ticker := time.NewTicker(s.waits.look)
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

// state is what the cluster is like, as far as this broker knows.
func (s *Server) state() *coordination.State {
	if state := s.topics.State(); state != nil {
		return state
	}
	return new(coordination.State)
}

// answer sends an answer in JSON, if anybody waits for one.
func (s *Server) answer(c *call, response any) {
	if len(c.reply) == 0 && c.tell == nil {
		return
	}
	data, err := json.Marshal(response)
	if err != nil { // plain fields: it can't fail
		s.log.Error("Could not encode a JetStream answer", "error", err)
		return
	}
	if s.tooLarge(len(data)) {
		s.refuse(c, jsapi.ErrStreamGeneral.With(fmt.Sprintf("the answer has %d bytes, and a message may have %d (have a consumer deliver it)", len(data), s.config.Payload)))
		return
	}
	if c.tell != nil {
		c.tell(data)
		return
	}
	s.send(protocol.Message{Subject: c.reply, Data: data})
}

// tooLarge says whether a message would not reach a client of another broker.
func (s *Server) tooLarge(size int) bool { return s.config.Payload > 0 && size > s.config.Payload }

// refuse answers that the call can't be done. One that is answered by messages gets a status: that
// there is nobody to answer it, as nats-server has it where a stream is not there.
func (s *Server) refuse(c *call, err *jsapi.Error) {
	s.errors.Add(1)
	if c.tell != nil {
		c.tell(c.Call.Refuse(err))
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
	s.send(protocol.Message{Subject: c.reply, Data: c.Call.Refuse(err)})
}

func (s *Server) send(m protocol.Message) { s.config.Hub.Send([]protocol.Message{m}) }

// sendStatus sends a message that is nothing but its status.
func (s *Server) sendStatus(to []byte, status jsapi.Status) {
	data := jsapi.AppendStatus(nil, status)
	s.send(protocol.Message{Subject: to, Header: len(data), Data: data})
}
