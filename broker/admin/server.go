package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/activity"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/live"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/statistics"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// Topics is the part of topic.Service that is used.
type Topics interface {
	State() *coordination.State
	ByID(id string) *topic.Topic
}

// Hub sends answers and forwards requests. *session.Hub implements it.
type Hub interface {
	Send(messages []protocol.Message) work.Behind
	SendLent(l *session.Loan, messages []protocol.Message) work.Behind
	Forward(broker string, m *protocol.Message) (linked bool, behind work.Behind)
	// Interested reports whether a message on the subject would have a receiver.
	Interested(of []byte) bool
}

// maxAnswers bounds the requests of one read that are answered, since the connection's reader waits
// for them. Our programs send one request at a time.
const maxAnswers = 16

// maxUnreadable bounds the unreadable keys that are listed.
const maxUnreadable = 16

// Server answers requests. It is the publish.Taker of Subjects, and safe for concurrent use.
type Server struct {
	self   string // id of this broker
	topics Topics
	hub    Hub
	log    *slog.Logger
	reads  reads
	polls  waitingReads
	// judges are the requests for which each record is looked at, and judging is who of them judges.
	judges     reads
	judging    chan struct{}
	conditions conditions
	statistics statistics.Table // of segments that were judged
	// snapshots are the shards that this broker holds for readers.
	snapshots      snapshots
	user           func(client uint64) string             // nil: there are no users
	rights         func(client uint64) *identity.Identity // nil: there are no users
	behalf         *identity.Behalf
	store          Store  // nil: read-only
	clock          Clock  // nil: requests about it are refused
	volume         Volume // nil: requests about it are refused
	pushByClients  bool   // requests for Subscriptions that push are permitted
	volumeTasks    *tasks
	subscriptions  Subscriptions // nil: requests about their state are refused
	readers        *activity.Clients
	stateTasks     *tasks
	values         Values // of Views; nil: requests for them are refused
	valueTasks     *tasks
	viewTrouble    ViewTrouble // nil: Views have none
	troubleTasks   *tasks
	writes         *tasks
	attributes     *attributes                  // nil: requests about them are refused
	topicSnapshots *tasks                       // snapshots of whole Topics
	holdRequests   session.Requests[holdAnswer] // of topicSnapshots
	account        func(client uint64) string   // nil: all count together
	// pace returns how long a write waits, or that it is refused. nil: writes have no rate.
	pace    func(account string, bytes int) (wait time.Duration, ok bool)
	refused atomic.Uint64 // requests, since too much was under way
}

// New returns the Server of the broker with that id. Every broker offers Subjects to it.
func New(self string, topics Topics, hub Hub, logger *slog.Logger) *Server {
	s := &Server{self: self, topics: topics, hub: hub, log: logger}
	s.volumeTasks = newTasks(volumeTasksAtOnce, writeTimeout, &s.refused)
	s.stateTasks = newTasks(statesAtOnce, writeTimeout, &s.refused)
	s.valueTasks = newTasks(valuesAtOnce, writeTimeout, &s.refused)
	s.troubleTasks = newTasks(troublesAtOnce, troubleTimeout, &s.refused)
	s.writes = newTasks(writesAtOnce, writeTimeout, &s.refused)
	s.topicSnapshots = newTasks(topicSnapshotsAtOnce, topicSnapshotTimeout, &s.refused)
	s.reads.init(s.serve, s.flush, readsAtOnce, readsQueued)
	s.judges.init(s.serve, s.flush, judgesAtOnce, judgesQueued)
	s.judging = newJudging()
	s.polls.init(s.resume, hub.Interested)
	return s
}

// Close ends waiting requests, and waits for reads and writes.
func (s *Server) Close() {
	for _, r := range s.polls.close() {
		s.resume(r)
	}
	s.reads.close()
	s.judges.close()
	s.topicSnapshots.close()
	s.snapshots.close()
	s.volumeTasks.close()
	s.stateTasks.close()
	s.valueTasks.close()
	s.troubleTasks.close()
	s.writes.close()
	if s.attributes != nil {
		s.attributes.gate.close()
	}
}

// resume queues a request again whose wait is over.
func (s *Server) resume(r *read) {
	if !s.submit(r) {
		s.refuse(r.reply, s.tooMany(r))
	}
}

// submit queues a request for records. It reports false if there is no room for it.
func (s *Server) submit(r *read) bool {
	taken, dropped := s.poolOf(r).submit(r)
	for _, other := range dropped {
		s.refuse(other.reply, s.tooMany(other))
	}
	return taken
}

// poolOf returns the pool that serves a request for records.
func (s *Server) poolOf(r *read) *reads {
	if r.judged() {
		return &s.judges
	}
	return &s.reads
}

// Stats are counters since the start of the broker.
type Stats struct {
	Overloaded uint64 // requests refused because too much was under way
	TooFast    uint64 // requests to change attributes, refused beyond their rate
	Statistics statistics.Stats
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	is := Stats{Overloaded: s.refused.Load(), Statistics: s.statistics.Stats()}
	if s.attributes != nil {
		is.TooFast = s.attributes.gate.refused.Load()
	}
	return is
}

func (s *Server) send(m protocol.Message) { s.hub.Send([]protocol.Message{m}) }

// forward forwards a message to another broker, and reports whether there is a link.
func (s *Server) forward(broker string, m *protocol.Message) bool {
	linked, _ := s.hub.Forward(broker, m)
	return linked
}

func (s *Server) refuse(to []byte, why *Error) {
	s.send(protocol.Message{Subject: to, Data: encodeError(why)})
}

// Users has the limits of users hold. user returns the name of a client's user.
func (s *Server) Users(user func(client uint64) string, behalf *identity.Behalf) *Server {
	s.user, s.behalf = user, behalf
	s.snapshots.limits = behalf.Limits
	return s
}

// Accounts sets on whose account a client works: accounts share the pools, and what is held for
// snapshots. Call it before the first request.
func (s *Server) Accounts(of func(client uint64) string) *Server {
	s.account = of
	return s
}

// TakeOf implements session.ClientTaker: it is Take for a client of this broker.
func (s *Server) TakeOf(client uint64, messages []protocol.Message, _ protocol.Memory, behind *work.Behind) {
	if refused := s.take(client, messages, false); refused > 0 {
		behind.Refused(refused)
	}
}

// Take answers requests. It ignores those without a reply subject, and those of package live.
func (s *Server) Take(messages []protocol.Message, _ protocol.Memory, forwarded bool) (behind bool) {
	s.take(0, messages, forwarded)
	return false
}

// take takes requests, and returns how many of them it has refused since too much is under way.
func (s *Server) take(client uint64, messages []protocol.Message, forwarded bool) (refused int) {
	var answers []protocol.Message
	var by origin
	if !forwarded {
		by = s.originOf(client)
	}
	for i := range messages {
		m := &messages[i]
		if forwarded && bytes.HasPrefix(m.Subject, []byte(holdPrefix)) {
			s.takeHold(m)
			continue
		}
		if len(m.Reply) == 0 || m.Header > len(m.Data) || bytes.HasPrefix(m.Subject, []byte(live.Prefix)) {
			continue
		}
		var data []byte
		if forwarded {
			by = forwardedBy(m)
		}
		if bytes.HasPrefix(m.Subject, []byte(RecordsSubject)) {
			refusal := s.takeRead(m, by)
			if refusal == nil {
				continue
			}
			data = encodeError(refusal)
		} else if bytes.HasPrefix(m.Subject, []byte(SnapshotSubject)) && len(answers) < maxAnswers {
			if data = s.takeSnapshot(s.sign(m, by), by); data == nil {
				continue
			}
		} else if len(answers) >= maxAnswers {
			data = encodeError(refuse(Busy, "more than %d requests came at once on one connection (wait for answers before asking more)", maxAnswers))
		} else {
			if data = s.answer(m, by); data == nil {
				continue
			}
		}
		if bytes.HasPrefix(data, busyPrefix) {
			refused++
		}
		answers = append(answers, protocol.Message{Subject: m.Reply, Data: data})
	}
	if len(answers) > 0 {
		s.hub.Send(answers)
	}
	return refused
}

// sign returns a request with the name of its client's user and account, so that a shard's leader
// knows them.
func (s *Server) sign(m *protocol.Message, by origin) *protocol.Message {
	if by.forwarded {
		return m
	}
	if m = identity.NameAccount(m, by.account); s.behalf == nil {
		return m
	}
	return identity.Sign(m, s.user(by.client))
}

// Wait returns at once: answers are built during Take, or on a bounded number of goroutines.
func (s *Server) Wait() {}

var _ publish.Taker = (*Server)(nil)

// answer returns the answer, or nil if it comes later.
func (s *Server) answer(m *protocol.Message, by origin) []byte {
	r, refusal := parse(m.Subject, m.Data[m.Header:])
	state := s.topics.State()
	if refusal == nil && state == nil {
		refusal = notReady()
	}
	if refusal == nil && r.writes() {
		if refusal = s.write(&r, m, by); refusal == nil {
			return nil
		}
	}
	if refusal != nil {
		return encodeError(refusal)
	}
	if r.kind == viewGet {
		return s.answerValues(&r, m, by)
	}
	if r.kind.ofViews() {
		return s.answerViews(&r, m, by)
	}
	if r.kind.ofAttributes() {
		return s.answerAttributes(&r, m, by)
	}
	if r.kind == brokerClock || r.kind == brokerConfirmClock {
		return s.answerClock(&r, m, by)
	}
	if r.kind == topicCopies {
		return s.answerCopies(&r, m, by)
	}
	if r.kind == subscriptionStates {
		return s.answerStates(&r, m, by)
	}
	if r.kind == brokerSetAside || r.kind == brokerDeleteSetAside {
		return s.answerAside(&r, m, by)
	}
	v := s.view()
	switch r.kind {
	case topicList:
		return encode(v.topicList(r.page))
	case topicInfo:
		return encode(v.topicInfo(r.topic))
	case brokerList:
		return encode(v.brokerList(r.page))
	case subscriptionList:
		return encode(v.subscriptionList(r.topic, r.page))
	}
	return encode(v.subscriptionInfo(r.topic, r.subscription))
}

// elsewhere reports whether a request about one broker is not for this one. Then it forwards the
// request, once, or returns the refusal.
func (s *Server) elsewhere(broker string, m *protocol.Message, by origin) (refusal []byte, elsewhere bool) {
	if broker == s.self {
		return nil, false
	}
	if _, member := s.topics.State().Broker(broker); !member {
		return encodeError(refuse(NotFound, "there is no broker with the id %.100q, or it is away (see: carillon brokers)", broker)), true
	}
	if s.pass(broker, m, by) {
		return nil, true
	}
	return encodeError(refuse(Unavailable, "broker %s can't be reached from this one (ask again in a moment)", broker)), true
}

// view returns the current view. There must be a State.
func (s *Server) view() view {
	v := view{state: s.topics.State(), trouble: s.trouble}
	if known, ok := s.topics.(interface{ BrokerName(id string) string }); ok {
		v.name = known.BrokerName
	}
	return v
}

// trouble returns why this broker does not serve a shard that it leads, or nil.
func (s *Server) trouble(topicID string, shard int) error {
	t := s.topics.ByID(topicID)
	if t == nil {
		return nil
	}
	var why *publish.NotServedError
	if !errors.As(t.WhyNotAt(shard), &why) {
		return nil
	}
	switch why.Reason {
	case publish.Troubled, publish.Opening, publish.ServiceIsClosing:
		return why
	}
	return nil
}

// encode encodes an answer. It cannot fail on this package's types.
func encode(answer any) []byte {
	data, err := json.Marshal(answer)
	if err != nil {
		data, _ = json.Marshal(struct {
			Error *Error `json:"error"`
		}{refuse(BadRequest, "encode the answer: %v", err)})
	}
	return data
}

func (v view) topicList(page ListRequest) TopicList {
	list := TopicList{Revision: v.state.Revision, Total: v.state.TopicCount(), Topics: []Topic{}}
	list.Unreadable = v.state.Unreadable()
	list.Unreadable = list.Unreadable[:min(len(list.Unreadable), maxUnreadable)]
	all := make([]*coordination.Topic, 0, v.state.TopicCount())
	for t := range v.state.Topics() {
		if t.Name > page.After {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *coordination.Topic) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, t := range all {
		if i == page.Limit || i > 0 && size > maxAnswer {
			list.Next = all[i-1].Name
			break
		}
		shown := v.topic(t)
		list.Topics = append(list.Topics, shown)
		size += len(encode(shown))
	}
	return list
}

func (v view) topicInfo(name string) TopicInfo {
	info := TopicInfo{Revision: v.state.Revision}
	t := v.state.Topic(name)
	if t == nil {
		info.Error = noTopic(name)
		return info
	}
	shown := v.topic(t)
	info.Topic = &shown
	return info
}

func (v view) subscriptionList(name string, page ListRequest) SubscriptionList {
	list := SubscriptionList{Revision: v.state.Revision, Subscriptions: []Subscription{}}
	t := v.state.Topic(name)
	if t == nil {
		list.Error = noTopic(name)
		return list
	}
	all := v.state.Subscriptions(t.ID) // sorted by name
	list.Total = len(all)
	from, found := slices.BinarySearchFunc(all, page.After, func(s *coordination.Subscription, name string) int { return strings.Compare(s.Name, name) })
	if found {
		from++
	}
	all = all[from:]
	size, status := 0, v.topic(t).Status
	for i, s := range all {
		if i == page.Limit || i > 0 && size > maxAnswer {
			list.Next = all[i-1].Name
			break
		}
		shown := subscriptionOf(t, s, status)
		list.Subscriptions = append(list.Subscriptions, shown)
		size += len(encode(shown))
	}
	return list
}

func (v view) subscriptionInfo(topicName, name string) SubscriptionInfo {
	info := SubscriptionInfo{Revision: v.state.Revision}
	t := v.state.Topic(topicName)
	if t == nil {
		info.Error = noTopic(topicName)
		return info
	}
	s := v.state.Subscription(t.ID, name)
	if s == nil {
		info.Error = refuse(NotFound, "topic %s has no subscription %q (see: carillon subscription list %s)", t.Name, name, t.Name)
		return info
	}
	shown := subscriptionOf(t, s, v.topic(t).Status)
	info.Subscription = &shown
	return info
}

func noTopic(name string) *Error {
	return refuse(NotFound, "there is no topic %q (see: carillon topic list)", name)
}
