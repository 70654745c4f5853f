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
	"strings"
	"sync"
	"sync/atomic"

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
)

// OpenRequest opens a query. Everything else comes to Inbox, to which the client is subscribed on
// the same connection.
type OpenRequest struct {
	Where    string  `json:"where"`
	Syntax   string  `json:"syntax,omitempty"`   // cel, or cqbs; empty: cel
	Subjects string  `json:"subjects,omitempty"` // a pattern; empty: all
	Inbox    string  `json:"inbox"`
	Resume   *Resume `json:"resume,omitempty"`
}

// Resume says what the client knows from a query that it had open before.
type Resume struct {
	Revision uint64 `json:"revision"`
}

// CloseRequest closes a query of the same connection.
type CloseRequest struct {
	Query string `json:"query"`
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
	Busy       Code = "Busy"       // too many requests
	NotReady   Code = "NotReady"   // the broker has just started
	TooOld     Code = "TooOld"     // the revision is too old to resume from
	TooLarge   Code = "TooLarge"   // beyond a bound of queries or members
)

// Error is why a request was refused, or why a query has ended.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Text }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func encode(a answer) []byte {
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
	Notify(feature coordination.Feature, notice []byte)
	Sync(ctx context.Context) error
}

// Server serves live queries. It is a session.ClientTaker, and safe for concurrent use.
type Server struct {
	hub      Hub
	store    *attribute.Store
	log      *slog.Logger
	openings *work.FairJobs
	seed     maphash.Seed
	unwatch  func()
	mesh     Mesh // nil: there are no other brokers
	feature  coordination.Feature
	late     atomic.Uint64 // changes for which a linked broker was not waited for

	// What has come in and waits for the next turn.
	incoming sync.Mutex
	events   []attribute.Event
	touched  []query.ID // whose feeds have changed
	wake     chan struct{}

	// The queries. Guarded by mu; feeds lock the hub's index under it.
	mu     sync.Mutex
	set    *query.Set
	open   map[query.ID]*live
	names  map[string]*live
	last   query.ID
	gone   []*session.Feed // to be closed, without mu
	deltas []query.Delta   // scratch of turn
	turned []*live         // queries with something to tell
	loaded bool            // the set has had all attributes once
	closed bool

	running sync.WaitGroup
	quit    chan struct{}
}

// New returns the Server of a broker. Close ends it.
func New(hub Hub, store *attribute.Store, logger *slog.Logger) (*Server, error) {
	s := &Server{
		hub: hub, store: store, log: logger, openings: work.NewFairJobs(openingsAtOnce, openingsWaiting, openingsBytes), seed: maphash.MakeSeed(),
		wake: make(chan struct{}, 1), set: query.NewSet(query.DefaultLimits()), open: map[query.ID]*live{}, names: map[string]*live{}, quit: make(chan struct{}),
	}
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

// Close ends all queries. Their clients are told.
func (s *Server) Close() {
	s.unwatch()
	s.openings.Finish()
	close(s.quit)
	s.running.Wait()
	s.locked(func() {
		s.closed = true
		for _, q := range s.open {
			s.end(q, refuse(NotReady, "the broker stops (open the query at another one)"))
		}
	})
}

// locked runs do with mu held, and then closes the feeds of queries that have ended.
func (s *Server) locked(do func()) {
	s.mu.Lock()
	do()
	gone := s.gone
	s.gone = nil
	s.mu.Unlock()
	for _, f := range gone {
		f.Close()
	}
}

// Stats are the figures of a Server.
type Stats struct{ query.Stats }

// Stats returns the figures.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.set.Stats()}
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
func (s *Server) TakeOf(client uint64, messages []protocol.Message, _ protocol.Memory, _ *work.Behind) {
	account := maphash.String(s.seed, s.hub.Account(client))
	for i := range messages {
		m := &messages[i]
		if len(m.Reply) == 0 || m.Header > len(m.Data) {
			continue
		}
		r := &request{s: s, client: client, owner: query.Owner(account), reply: bytes.Clone(m.Reply), close: string(m.Subject) == CloseSubject, body: bytes.Clone(m.Data[m.Header:])}
		switch {
		case i >= maxAnswers:
			r.refuse(refuse(Busy, "more than %d requests came at once on one connection (wait for answers before asking more)", maxAnswers))
		case string(m.Subject) != OpenSubject && !r.close:
			r.refuse(refuse(BadRequest, "there is no request %s", m.Subject))
		case !s.openings.Submit(account, r, len(r.body)+requestBytes):
			r.Drop()
		}
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
	close  bool
	body   []byte
}

// Drop implements work.Job.
func (r *request) Drop() {
	r.refuse(refuse(Busy, "too many requests for queries are under way (try again later)"))
}

func (r *request) refuse(why *Error) { r.s.answer(r.reply, answer{Error: why}) }

// Run implements work.Job.
func (r *request) Run() {
	do := r.open
	if r.close {
		do = r.closeQuery
	}
	if refusal := do(); refusal != nil {
		r.refuse(refusal)
	}
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

func newName() string { return "q-" + strings.ToLower(rand.Text()[:12]) }
