package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subject"
)

// The subjects of requests about the attributes of subjects.
const (
	AttributesSetSubject    = Prefix + "ATTRIBUTES.SET"
	AttributesGetSubject    = Prefix + "ATTRIBUTES.GET"
	AttributesDeleteSubject = Prefix + "ATTRIBUTES.DELETE"
	AttributesListSubject   = Prefix + "ATTRIBUTES.LIST"
)

// Bounds of requests about attributes.
const (
	// maxAttributes is the size of a request with as many changes of as many bytes as there may be,
	// with their subjects.
	maxAttributes = 768 << 10
	// listLooks is how many subjects a request for a list looks at: some milliseconds. A page may
	// have few then, and another one follows. If the last one is not for the client, it looks at as
	// many again: at all of them at most, which are attribute.MaxSubjects.
	listLooks = 10_000
)

// Attributes are the attributes of all subjects. *coordination.Attributes implements it.
type Attributes interface {
	Store() *attribute.Store
	Change(ctx context.Context, changes []attribute.Change) ([]coordination.Outcome, error)
}

// AttributesRequest requests a change of one subject's attributes, or several changes. Each is made
// by itself, those of one subject in their order.
type AttributesRequest struct {
	AttributesChange
	Changes []AttributesChange `json:"changes,omitempty"` // then there is nothing beside it
}

// AttributesChange is a change of one subject's attributes.
type AttributesChange struct {
	Subject string        `json:"subject,omitempty"`
	Set     attribute.Set `json:"set,omitempty"`     // these get the values
	Delete  []string      `json:"delete,omitempty"`  // these go
	Replace bool          `json:"replace,omitempty"` // all others go
	// Bound binds the subject's attributes to the connection of the request (true), so that they go
	// some time after it, or to none (false). nil: as they were.
	Bound *bool `json:"bound,omitempty"`
	// IfRevision is the revision that the subject's attributes have to be at; 0: there are to be
	// none; nil: whatever there is.
	IfRevision *int64 `json:"if_revision,omitempty"`
}

// SubjectRequest names a subject.
type SubjectRequest struct {
	Subject    string `json:"subject"`
	IfRevision *int64 `json:"if_revision,omitempty"` // of a deletion
}

// AttributesListRequest requests a page of subjects with attributes, in their order.
type AttributesListRequest struct {
	Subjects string `json:"subjects,omitempty"` // a pattern; empty: all
	ListRequest
}

// SubjectAttributes are the attributes of a subject, after a change or as they are.
type SubjectAttributes struct {
	Error    *Error `json:"error,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Revision int64  `json:"revision,omitempty"` // of etcd, at which they were written or deleted
	// Attributes is empty if the subject has none.
	Attributes json.RawMessage `json:"attributes,omitempty"`
	Bound      bool            `json:"bound,omitempty"` // to a publisher's connection
	User       string          `json:"user,omitempty"`  // who changed them last
}

// AttributesResults are the answers to several changes, in their order.
type AttributesResults struct {
	Error   *Error              `json:"error,omitempty"`
	Results []SubjectAttributes `json:"results,omitempty"`
}

// AttributesList is a page of subjects with attributes.
type AttributesList struct {
	Error    *Error              `json:"error,omitempty"`
	Revision int64               `json:"revision"`        // of etcd, which the broker has seen
	Total    int                 `json:"total,omitempty"` // of all subjects; only for who may subscribe to all
	Subjects []SubjectAttributes `json:"subjects"`
	Next     string              `json:"next,omitempty"` // set if there may be more: request the page after this subject
}

// attributesRequest is a parsed request about attributes.
type attributesRequest struct {
	set  AttributesRequest
	one  SubjectRequest
	list AttributesListRequest
}

// Attributes sets the attributes that requests are about. process is when this process started, by
// which connections are told apart (attribute.Holder). rights returns the identity of a client;
// nil: there are no users. rate returns how many changes a second this broker may make. Call it
// before the first request.
func (s *Server) Attributes(a Attributes, process int64, rights func(client uint64) *identity.Identity, rate func() float64) *Server {
	s.attributes = &attributes{all: a, process: process, rights: rights, gate: newChangeGate(rate)}
	return s
}

// attributes answers requests about attributes.
type attributes struct {
	all     Attributes
	process int64
	rights  func(client uint64) *identity.Identity
	gate    *changeGate
}

// answerAttributes returns the answer, or nil if it comes later.
func (s *Server) answerAttributes(r *request, m *protocol.Message, by origin) []byte {
	if s.attributes == nil || !s.attributes.all.Store().Stats().Ready {
		return encodeError(refuse(NotReady, "this broker has not read the attributes of subjects yet (ask again in a second, or another broker)"))
	}
	if by.client == 0 {
		return encodeError(refuse(Forbidden, "requests about attributes come from clients, and not from streams or other brokers"))
	}
	is := s.attributes.rights(by.client)
	switch r.kind {
	case attributesGet:
		return encode(s.attributes.get(is, r.attributes.one.Subject))
	case attributesList:
		return encode(s.attributes.list(is, &r.attributes.list, r.page))
	}
	asked := r.attributes.set.Changes
	single := len(asked) == 0
	if r.kind == attributesDelete {
		asked = []AttributesChange{{Subject: r.attributes.one.Subject, Replace: true, IfRevision: r.attributes.one.IfRevision}}
	} else if single {
		asked = []AttributesChange{r.attributes.set.AttributesChange}
	}
	changes := make([]attribute.Change, len(asked))
	for i := range asked {
		var refusal *Error
		if changes[i], refusal = s.attributes.change(is, &asked[i], s.self, by.client); refusal != nil {
			if !single {
				refusal.Text = fmt.Sprintf("change %d of %d: %s", i+1, len(asked), refusal.Text)
			}
			return encodeError(refusal)
		}
	}
	memory := 0
	for i := range changes {
		memory += changes[i].Memory()
	}
	reply := bytes.Clone(m.Reply)
	busy := refuse(Busy, "more changes of attributes are asked for than this broker's part of %d a second (ask again in a moment, or wait for the answers)", ChangeRate)
	if !s.attributes.gate.submit(by.by, len(changes), memory, func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: s.changeAttributes(ctx, is, changes, single)})
	}, func() { s.refuse(reply, busy) }) {
		return encodeError(busy)
	}
	return nil
}

// change returns the change that a client asks for.
func (a *attributes) change(is *identity.Identity, asked *AttributesChange, broker string, client uint64) (attribute.Change, *Error) {
	c := attribute.Change{Subject: asked.Subject, Set: asked.Set, Delete: asked.Delete, Replace: asked.Replace, If: asked.IfRevision}
	if is != nil {
		c.User = is.Name
	}
	if asked.Bound != nil {
		c.Holder = &attribute.Holder{}
		if *asked.Bound {
			c.Holder = &attribute.Holder{Broker: broker, Process: a.process, Connection: client}
		}
	}
	if err := c.Check(); err != nil {
		return c, refuse(BadRequest, "%v", err)
	}
	if !is.MayPublish([]byte(c.Subject)) {
		return c, refuse(Forbidden, "this user may not change the attributes of subject %.100s: that takes the right to publish there", c.Subject)
	}
	return c, nil
}

// changeAttributes makes changes, and returns their answer, which shows no more than a request for
// the attributes would.
func (s *Server) changeAttributes(ctx context.Context, is *identity.Identity, changes []attribute.Change, single bool) []byte {
	out, err := s.attributes.all.Change(ctx, changes)
	if err != nil {
		return encodeError(s.notWritten("change attributes", err))
	}
	results := make([]SubjectAttributes, len(out))
	for i := range out {
		if results[i] = shown(&out[i].Entry); !maySee(is, changes[i].Subject) {
			results[i] = SubjectAttributes{Revision: results[i].Revision}
		}
		if moved, ok := errors.AsType[*attribute.MovedError](out[i].Err); ok {
			results[i].Error, results[i].Revision = refuse(Changed, "%v", moved), moved.Revision
		} else if out[i].Err != nil {
			results[i].Error = s.notWritten("change attributes", out[i].Err)
		}
		results[i].Subject = changes[i].Subject
	}
	if single {
		return encode(results[0])
	}
	return encode(AttributesResults{Results: results})
}

// maySee reports whether a client may be shown the attributes of a subject.
func maySee(is *identity.Identity, of string) bool {
	return is.MayPublish([]byte(AttributesGetSubject)) && is.MaySubscribe([]byte(of), nil)
}

func shown(e *attribute.Entry) SubjectAttributes {
	return SubjectAttributes{Subject: e.Subject, Revision: e.Revision, Attributes: json.RawMessage(e.Text), Bound: e.Holder != attribute.Holder{}, User: e.User}
}

func (a *attributes) get(is *identity.Identity, of string) SubjectAttributes {
	if err := attribute.CheckSubject(of); err != nil {
		return SubjectAttributes{Error: refuse(BadRequest, "%v", err)}
	}
	if !is.MaySubscribe([]byte(of), nil) {
		return SubjectAttributes{Error: refuse(Forbidden, "this user may not see the attributes of subject %.100s: that takes the right to subscribe to it", of)}
	}
	e := a.all.Store().Get(of)
	if e.Text == "" {
		return SubjectAttributes{Subject: of, Error: refuse(NotFound, "subject %.100s has no attributes", of)}
	}
	return shown(&e)
}

func (a *attributes) list(is *identity.Identity, asked *AttributesListRequest, page ListRequest) AttributesList {
	pattern := []byte(asked.Subjects)
	if len(pattern) > 0 && !subject.ValidPattern(pattern) {
		return AttributesList{Subjects: []SubjectAttributes{}, Error: refuse(BadRequest, "%.100q is no pattern of subjects (write one such as sensors.>)", asked.Subjects)}
	}
	all := a.all.Store().Stats()
	list := AttributesList{Revision: all.Revision, Subjects: []SubjectAttributes{}}
	if is.MaySubscribe([]byte(">"), nil) {
		list.Total = all.Subjects
	}
	list.Next = page.After
	for room := maxAnswer; ; {
		var found []attribute.Entry
		found, list.Next = a.all.Store().Page(list.Next, page.Limit-len(list.Subjects), room, listLooks, func(s string) bool {
			return (len(pattern) == 0 || subject.Matches(pattern, []byte(s))) && is.MaySubscribe([]byte(s), nil)
		})
		for i := range found {
			list.Subjects, room = append(list.Subjects, shown(&found[i])), room-found[i].Bytes
		}
		// A subject that the client may not know ends no page, since the answer would name it.
		if list.Next == "" || is.MaySubscribe([]byte(list.Next), nil) {
			return list
		}
	}
}

// parseAttributes checks a decoded request.
func (r *request) parseAttributes() *Error {
	a := r.attributes
	switch {
	case r.kind == attributesList:
		r.page = a.list.ListRequest
	case len(a.set.Changes) > attribute.MaxChanges:
		return refuse(BadRequest, "%d changes at once (make at most %d)", len(a.set.Changes), attribute.MaxChanges)
	case len(a.set.Changes) > 0 && (a.set.Subject != "" || a.set.Set != nil || a.set.Delete != nil || a.set.Replace || a.set.Bound != nil || a.set.IfRevision != nil):
		return refuse(BadRequest, "a request with both changes and a change (write one of both)")
	case r.kind == attributesGet && a.one.IfRevision != nil:
		return refuse(BadRequest, "if_revision is for changes (leave it out)")
	}
	return nil
}

// attributeKinds are the requests about attributes, by the end of their subject.
var attributeKinds = map[string]kind{"SET": attributesSet, "GET": attributesGet, "DELETE": attributesDelete, "LIST": attributesList}

func (k kind) ofAttributes() bool {
	return slices.Contains([]kind{attributesSet, attributesGet, attributesDelete, attributesList}, k)
}
