package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/query"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
)

// Prefix begins the subjects of requests.
const Prefix = "$CARILLON.API.QUERY."

// Requests, each with one JSON object.
const (
	OpenSubject  = Prefix + "OPEN"
	CloseSubject = Prefix + "CLOSE"
	ListSubject  = Prefix + "LIST"
)

// OpenRequest opens a query. Everything else comes to Inbox, to which the client is subscribed on
// the same connection.
type OpenRequest struct {
	Where    string `json:"where"`
	Syntax   string `json:"syntax,omitempty"`   // cel, or cqbs; empty: cel
	Subjects string `json:"subjects,omitempty"` // a pattern; empty: all
	Content  string `json:"content,omitempty"`  // a condition on each message; empty: all are delivered
	Messages *bool  `json:"messages,omitempty"` // false: only notices come
	Inbox    string `json:"inbox"`
	// Resume is from the last notice of the same query that had it, of any broker. The client gets
	// the difference since then if that is known, and all members otherwise.
	Resume string `json:"resume,omitempty"`
}

// CloseRequest closes a query of the same connection.
type CloseRequest struct {
	Query string `json:"query"`
}

// ListRequest requests a page of the queries of the same connection, in the order of their names.
type ListRequest struct {
	After string `json:"after,omitempty"` // the name of a query
	Limit int    `json:"limit,omitempty"` // 0: as many as a page has
}

// Listed is a query in a list.
type Listed struct {
	Query    string `json:"query"`
	Where    string `json:"where"`
	Syntax   string `json:"syntax,omitempty"`
	Subjects string `json:"subjects,omitempty"`
	Content  string `json:"content,omitempty"`
	Unjudged uint64 `json:"unjudged,omitempty"` // messages that Content could not judge
	Messages *bool  `json:"messages,omitempty"` // as it was asked for
	Inbox    string `json:"inbox"`
	Members  int    `json:"members"`
}

// List is a page of queries.
type List struct {
	Queries []Listed `json:"queries"`
	Total   int      `json:"total"`          // of this connection
	Next    string   `json:"next,omitempty"` // there are more: ask for those after this one
}

// answer is the answer to a request. Of a query that resumes, Members counts the present ones.
type answer struct {
	Query    string `json:"query,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	Members  *int   `json:"members,omitempty"`
	Error    *Error `json:"error,omitempty"`
}

// Code is the reason of an Error.
type Code string

// Codes.
const (
	BadRequest Code = "BadRequest" // the request is malformed
	NotFound   Code = "NotFound"   // no such query of this connection
	Forbidden  Code = "Forbidden"  // the user has lost the right to open queries, perhaps meanwhile
	Busy       Code = "Busy"       // too many requests
	NotReady   Code = "NotReady"   // the broker has just started
	TooLarge   Code = "TooLarge"   // beyond a bound of queries or members
	TooSlow    Code = "TooSlow"    // judging messages takes too much
)

// Error is why a request was refused, or why a query has ended.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// stops is the text of an Error at the broker's end.
const stops = "the broker stops (connect to another one)"

func (e *Error) Error() string { return e.Text }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func encode(a any) []byte {
	data, err := json.Marshal(a)
	if err != nil {
		return []byte(`{"error":{"code":"BadRequest","text":"the answer can't be encoded"}}`)
	}
	return data
}

// Hub is the part of *session.Hub that is used.
type Hub interface {
	Send(messages []protocol.Message) work.Behind
	OpenFeed(client uint64, subject string, changed func()) (*session.Feed, error)
	Account(client uint64) string
}

// Mesh is the part of *route.Mesh that is used.
type Mesh interface {
	Notify(feature coordination.Feature, notice []byte) (left int)
	Sync(ctx context.Context, feature coordination.Feature) (late int)
}

// Server serves live queries. It is a session.ClientTaker, and safe for concurrent use.
type Server struct {
	hub      Hub
	store    *attribute.Store
	log      *slog.Logger
	openings *work.FairJobs
	modest   work.Modest // of openings, which give way to messages
	seed     maphash.Seed
	unwatch  func()
	mesh     Mesh // nil: there are no other brokers
	feature  coordination.Feature
	late     atomic.Uint64 // changes for which a linked broker was not waited for
	busy     atomic.Uint64
	unjudged atomic.Uint64 // messages that conditions could not judge
	patience time.Duration // aheadTimeout, except in tests

	// What has come in and waits for the next turn.
	incoming sync.Mutex
	events   []attribute.Event
	touched  []query.ID // whose feeds have changed
	wake     chan struct{}

	// The queries. Guarded by mu; feeds lock the hub's index and the Store under it.
	mu     sync.Mutex
	set    *query.Set
	open   map[query.ID]*live
	names  map[string]*live
	last   query.ID
	gone   []*session.Feed          // to be closed, without mu
	deltas []query.Delta            // scratch of turn
	turned []*live                  // queries with something to tell
	parked []*parked                // in the order of late
	places *work.FairQueue[*parked] // theirs
	again  []*request               // parked ones that go on, without mu
	held   []held                   // changes that wait, in the order in which they came
	holds  map[string]int           // how many of each subject
	closed bool
	counts counts
	// contents and contentsOf are about what conditions on messages take in memory.
	contents   int
	contentsOf map[query.Owner]int

	// What is held is applied in rounds of Sync: this is how many have begun, and whether one is
	// under way.
	round   uint64
	syncing bool

	// What is known of the attributes, as of the last turn.
	loaded  bool // the set has had all of them once
	doubted bool // etcd was restored, and not all is read again
	lists   uint64
	history string
	newest  uint64
	latest  uint64 // revision of the latest change that was told, also ahead of the watch

	running sync.WaitGroup
	ctx     context.Context // of what runs; quit ends it
	quit    context.CancelFunc
}

// New returns the Server of a broker. Close ends it.
func New(hub Hub, store *attribute.Store, logger *slog.Logger) (*Server, error) {
	s := &Server{
		hub: hub, store: store, log: logger, openings: work.NewFairJobs(openingsAtOnce, openingsWaiting, openingsBytes), seed: maphash.MakeSeed(), patience: aheadTimeout,
		places: work.NewFairQueue[*parked](0, maxAhead, aheadBytes),
		wake:   make(chan struct{}, 1), set: query.NewSet(query.DefaultLimits()), open: map[query.ID]*live{}, names: map[string]*live{}, contentsOf: map[query.Owner]int{},
		holds: map[string]int{},
	}
	s.ctx, s.quit = context.WithCancel(context.Background())
	stop, ok := store.Tell(s.note)
	if !ok {
		return nil, errors.New("live queries: too many are told of changes of attributes")
	}
	s.unwatch = stop
	s.running.Go(s.run)
	return s, nil
}

// Link has changes spread to linked brokers that have the feature. Call it before the first change.
func (s *Server) Link(mesh Mesh, feature coordination.Feature) { s.mesh, s.feature = mesh, feature }

// Close ends all queries, and refuses requests that wait. Clients are told. What is called later
// has no effect.
func (s *Server) Close() {
	s.unwatch()
	s.locked(func() {
		s.closed = true
		s.unpark()
		for _, q := range s.open {
			s.end(q, s.notReady())
		}
	})
	s.quit()
	s.openings.Finish()
	s.running.Wait()
}

// locked runs do with mu held, and then what was left for later: it closes the feeds of queries
// that have ended, and queues requests again that have waited.
func (s *Server) locked(do func()) {
	s.mu.Lock()
	do()
	gone, again := s.gone, s.again
	s.gone, s.again = nil, nil
	s.mu.Unlock()
	for _, f := range gone {
		f.Close()
	}
	for _, r := range again {
		s.submit(r)
	}
}

// Stats are the figures of a Server.
type Stats struct {
	query.Stats
	counts
	Late uint64 // changes of attributes that were answered before all linked brokers had them
	Busy uint64 // requests that were refused, since too many were under way
	// Unjudged are messages that the content of a query could not judge.
	Unjudged uint64
}

// counts are counters of what happened to queries.
type counts struct {
	Told    uint64 // members that came or went
	Resumed uint64 // queries whose clients got a difference
	Refused uint64 // queries that were not opened, since they are beyond a bound
	Shared  uint64 // queries that were not opened, since their users have their parts of a bound
	Ended   uint64 // queries that ended, since they were beyond a bound
}

// Stats returns the figures.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.set.Stats(), s.counts, s.late.Load(), s.busy.Load(), s.unjudged.Load()}
}

// Take implements session.Taker. What comes from links or from this broker itself has no
// connection.
func (s *Server) Take(messages []protocol.Message, _ protocol.Memory, _ bool) bool {
	for i := range messages {
		s.answer(messages[i].Reply, answer{Error: refuse(BadRequest, "a query belongs to the connection of its client")})
	}
	return false
}

// Wait implements session.Taker.
func (s *Server) Wait() {}

// TakeOf implements session.ClientTaker.
func (s *Server) TakeOf(client uint64, messages []protocol.Message, _ protocol.Memory, behind *work.Behind) {
	refused := 0
	account := maphash.String(s.seed, s.hub.Account(client))
	for i := range messages {
		m := &messages[i]
		if len(m.Reply) == 0 || m.Header > len(m.Data) {
			continue
		}
		r := &request{s: s, client: client, owner: query.Owner(account), reply: bytes.Clone(m.Reply)}
		body := m.Data[m.Header:]
		switch string(m.Subject) {
		case OpenSubject:
			r.do = r.open
		case CloseSubject:
			r.do = r.closeQuery
		case ListSubject:
			r.do = r.list
		default:
			r.refuse(refuse(BadRequest, "there is no request %.100s", m.Subject))
			continue
		}
		if i >= maxAnswers {
			refused++
			s.busy.Add(1)
			r.refuse(refuse(Busy, "more than %d requests came at once on one connection (wait for answers before asking more)", maxAnswers))
			continue
		}
		if len(body) > maxRequest {
			r.refuse(refuse(BadRequest, "the request has %d bytes (make it %d at most)", len(body), maxRequest))
			continue
		}
		r.body = bytes.Clone(body)
		if !s.submit(r) {
			refused++
		}
	}
	if refused > 0 {
		behind.Refused(refused)
	}
}

func (s *Server) answer(to []byte, a answer) {
	if len(to) > 0 {
		s.hub.Send([]protocol.Message{{Subject: to, Data: encode(a)}})
	}
}

// request is a request that waits for its turn.
type request struct {
	s      *Server
	client uint64
	owner  query.Owner
	reply  []byte
	do     func() *Error
	only   *content // of a query to open
	body   []byte
	waited bool // it was parked
}

// Drop implements work.Job.
func (r *request) Drop() {
	r.s.busy.Add(1)
	r.refuse(refuse(Busy, "too many requests for queries are under way (try again later)"))
}

func (r *request) refuse(why *Error) { r.s.answer(r.reply, answer{Error: why}) }

// Run implements work.Job.
func (r *request) Run() {
	select {
	case <-r.s.ctx.Done():
		r.refuse(refuse(NotReady, stops))
		return
	default:
	}
	began := time.Now()
	if refusal := r.do(); refusal != nil {
		r.refuse(refusal)
	}
	r.s.modest.Rest(r.s.ctx, time.Since(began))
}

func (r *request) parse(into any) *Error {
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return refuse(BadRequest, "the request can't be read: %v", err)
	}
	if d.More() {
		return refuse(BadRequest, "the request is more than one JSON object")
	}
	return nil
}

func (r *request) closeQuery() *Error {
	var of CloseRequest
	if refusal := r.parse(&of); refusal != nil {
		return refusal
	}
	var refusal *Error
	r.s.locked(func() {
		q := r.s.names[of.Query]
		if q == nil || q.client != r.client {
			refusal = refuse(NotFound, "this connection has no query %q", of.Query)
			return
		}
		r.s.end(q, nil)
		r.s.answer(r.reply, answer{Query: of.Query})
	})
	return refusal
}

// list answers with the queries of the connection.
func (r *request) list() *Error {
	var of ListRequest
	if refusal := r.parse(&of); refusal != nil {
		return refusal
	}
	if of.Limit < 0 {
		return refuse(BadRequest, "limit %d: give 1 to %d, or leave it out", of.Limit, maxList)
	}
	limit := maxList
	if of.Limit > 0 {
		limit = min(of.Limit, maxList)
	}
	page := List{Queries: []Listed{}}
	r.s.locked(func() {
		var mine []*live
		for _, q := range r.s.open {
			if q.client != r.client {
				continue
			}
			if page.Total++; q.name > of.After {
				mine = append(mine, q)
			}
		}
		slices.SortFunc(mine, func(a, b *live) int { return strings.Compare(a.name, b.name) })
		bytes := 0
		for i, q := range mine {
			if i == limit || bytes > listBytes {
				page.Next = mine[i-1].name
				break
			}
			is := Listed{q.name, q.of.Where, q.of.Syntax, q.of.Subjects, q.of.Content, 0, q.of.Messages, q.of.Inbox, r.s.set.Size(q.id)}
			if q.only != nil {
				is.Unjudged = q.only.failed.Load()
			}
			page.Queries = append(page.Queries, is)
			bytes += len(q.of.Where) + len(q.of.Content) + len(q.of.Subjects) + len(q.of.Inbox) + requestBytes
		}
	})
	r.s.hub.Send([]protocol.Message{{Subject: r.reply, Data: encode(page)}})
	return nil
}

func newName() string { return "q-" + strings.ToLower(rand.Text()[:12]) }
