package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// The subjects of requests that declare Views. What a View computes is asked for elsewhere.
const (
	ViewCreateSubject = Prefix + "VIEW.CREATE"
	ViewUpdateSubject = Prefix + "VIEW.UPDATE"
	ViewDeleteSubject = Prefix + "VIEW.DELETE"
	ViewListSubject   = Prefix + "VIEW.LIST"
	ViewInfoSubject   = Prefix + "VIEW.INFO"
)

// maxView is the size of a request with the largest View, with any escaping.
const maxView = 256 << 10

// Span is a length of time, in JSON as text such as 1m30s.
type Span time.Duration

// MarshalText encodes a span.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText decodes a span.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no length of time (write for example 1m30s)", text)
	}
	*s = Span(d)
	return nil
}

// ViewSettings are what a View computes, in the form of a manifest's spec, but for the names of
// Topics.
type ViewSettings struct {
	Topic    string                  `json:"topic"`
	Filter   coordination.ViewFilter `json:"filter,omitzero"`
	By       string                  `json:"by,omitempty"`
	Window   *ViewWindow             `json:"window,omitempty"`
	Values   map[string]string       `json:"values"`
	Output   string                  `json:"output,omitempty"` // name of a Topic
	Triggers []ViewTrigger           `json:"triggers,omitempty"`
}

// ViewWindow says which windows there are.
type ViewWindow struct {
	Tumbling Span         `json:"tumbling,omitempty"`
	Sliding  *ViewSliding `json:"sliding,omitempty"`
	Session  Span         `json:"session,omitempty"`
	Time     string       `json:"time,omitempty"`
	Lateness Span         `json:"lateness,omitempty"`
	Idle     Span         `json:"idle,omitempty"`
}

// ViewSliding are windows of a size that begin at multiples of another time.
type ViewSliding struct {
	Size  Span `json:"size"`
	Every Span `json:"every"`
}

// ViewTrigger is a trigger, with the name of the Topic for its alerts.
type ViewTrigger struct {
	coordination.ViewTrigger
	Output string `json:"output"`
}

// spec returns the settings as they are in etcd.
func (v *ViewSettings) spec() coordination.ViewSpec {
	s := coordination.ViewSpec{Topic: v.Topic, Output: v.Output}
	s.Compute = coordination.ViewCompute{Filter: v.Filter, By: v.By, Values: v.Values}
	if w := v.Window; w != nil {
		s.Compute.Window = coordination.ViewWindow{Tumbling: time.Duration(w.Tumbling), Session: time.Duration(w.Session), Time: w.Time, Lateness: time.Duration(w.Lateness), Idle: time.Duration(w.Idle)}
		if w.Sliding != nil {
			s.Compute.Window.Sliding = &coordination.ViewSliding{Size: time.Duration(w.Sliding.Size), Every: time.Duration(w.Sliding.Every)}
		}
	}
	for _, t := range v.Triggers {
		if s.Alerts == nil {
			s.Alerts = map[string]string{}
		}
		s.Compute.Triggers = append(s.Compute.Triggers, t.ViewTrigger)
		s.Alerts[t.Name] = t.Output
	}
	return s
}

// settingsOf is the reverse of spec.
func settingsOf(s *coordination.ViewSpec) ViewSettings {
	c := &s.Compute
	v := ViewSettings{Topic: s.Topic, Filter: c.Filter, By: c.By, Values: c.Values, Output: s.Output}
	if w := &c.Window; s.Windowed() {
		v.Window = &ViewWindow{Tumbling: Span(w.Tumbling), Session: Span(w.Session), Time: w.Time, Lateness: Span(w.Lateness), Idle: Span(w.Idle)}
		if w.Sliding != nil {
			v.Window.Sliding = &ViewSliding{Size: Span(w.Sliding.Size), Every: Span(w.Sliding.Every)}
		}
	}
	for _, t := range c.Triggers {
		v.Triggers = append(v.Triggers, ViewTrigger{t, s.Alerts[t.Name]})
	}
	return v
}

// CreateViewRequest requests a View, or other settings of one.
type CreateViewRequest struct {
	View string `json:"view"` // its name
	ViewSettings
	// Generation of an update is the one that the View has to have, and Revision that it has to be at;
	// 0: any. A View that was deleted and made again may have the same generation, and no revision of
	// the one before.
	Generation int64 `json:"generation,omitempty"`
	Revision   int64 `json:"revision,omitempty"`
}

// ViewRequest names a View.
type ViewRequest struct {
	View     string `json:"view"`
	Revision int64  `json:"revision,omitempty"` // of a deletion: that the View has to be at; 0: any
}

// ViewListRequest requests a page of Views, in the order of their names.
type ViewListRequest struct {
	Topic string `json:"topic,omitempty"` // only those that read it; empty: all
	ListRequest
}

// View is the declaration and the status of a View.
type View struct {
	Name       string       `json:"name"`
	Generation int64        `json:"generation"`
	Revision   int64        `json:"revision"` // at which it was written
	Created    time.Time    `json:"created"`
	Owner      Owner        `json:"owner"`
	User       string       `json:"user,omitempty"` // on whose behalf it reads and writes
	Spec       ViewSettings `json:"spec"`
	// DeletionPolicy is what becomes of it when its manifest is deleted.
	DeletionPolicy coordination.DeletionPolicy `json:"deletionPolicy,omitempty"`
	Status                                     // its Topic's
	// Trouble is why results are not up to date, in answers about one View to clients that may have
	// its values. Empty: they are, or the broker that writes them is of an earlier version.
	Trouble string `json:"trouble,omitempty"`
}

// ViewInfo is one View.
type ViewInfo struct {
	Error    *Error `json:"error,omitempty"`
	Revision int64  `json:"revision"`
	View     *View  `json:"view,omitempty"`
}

// ViewList is one page of Views.
type ViewList struct {
	Error    *Error `json:"error,omitempty"`
	Revision int64  `json:"revision"`
	Total    int    `json:"total"`
	Views    []View `json:"views"`
	Next     string `json:"next,omitempty"`
}

// viewRequest is a parsed request about Views.
type viewRequest struct {
	create CreateViewRequest
	one    ViewRequest
	list   ViewListRequest
	get    ViewGetRequest
}

// viewKinds are the requests about Views, by the end of their subject.
var viewKinds = map[string]kind{"CREATE": viewCreate, "UPDATE": viewUpdate, "DELETE": viewDelete, "LIST": viewList, "INFO": viewInfo, "GET": viewGet}

func (k kind) ofViews() bool {
	return slices.Contains([]kind{viewCreate, viewUpdate, viewDelete, viewList, viewInfo, viewGet}, k)
}

// payload returns what the payload of a request about Views is decoded into, its bound, and what it
// should have been.
func (v *viewRequest) payload(of kind) (most int, into any, example string) {
	switch of {
	case viewCreate, viewUpdate:
		return maxView, &v.create, `a view's (write for example {"view":"count","topic":"orders","by":"json.region","values":{"n":"count()"}})`
	case viewGet:
		return maxRequest, &v.get, `one for values (write for example {"view":"hot-rooms","keys":["410"]})`
	case viewList:
		return maxRequest, &v.list, `a list's (write for example {"topic":"orders","limit":100})`
	}
	return maxRequest, &v.one, `one for a view (write for example {"view":"hot-rooms"})`
}

// parseViews checks a decoded request.
func (r *request) parseViews() *Error {
	switch v := r.view; {
	case r.kind == viewList:
		r.page = v.list.ListRequest
	case r.kind == viewGet && v.get.Limit < 0:
		return refuse(BadRequest, "a page of %d values (leave limit out, or use a number above 0)", v.get.Limit)
	case r.kind == viewCreate && v.create.Generation != 0:
		return refuse(BadRequest, "generation is for updates (leave it out)")
	case r.kind == viewCreate && v.create.Revision != 0:
		return refuse(BadRequest, "revision is for updates (leave it out)")
	case r.kind == viewInfo && v.one.Revision != 0:
		return refuse(BadRequest, "revision is for deletions (leave it out)")
	}
	return nil
}

// Rights sets how the identity of a client is found; nil: there are no users. Call it before the
// first request.
func (s *Server) Rights(of func(client uint64) *identity.Identity) *Server {
	s.rights = of
	return s
}

// writeView returns what writes a View, judged by the rights of the client.
func (s *Server) writeView(r *request, by origin) (func(context.Context) []byte, *Error) {
	if by.client == 0 {
		return nil, refuse(Forbidden, "views are declared by clients, and not by streams or other brokers")
	}
	var is *identity.Identity
	if s.rights != nil {
		is = s.rights(by.client)
	}
	if r.kind == viewDelete {
		one := r.view.one
		return func(ctx context.Context) []byte { return encode(s.deleteView(ctx, one)) }, nil
	}
	asked, create := r.view.create, r.kind == viewCreate
	return func(ctx context.Context) []byte { return encode(s.declareView(ctx, is, &asked, create)) }, nil
}

// declareView creates or updates a View owned by clients.
func (s *Server) declareView(ctx context.Context, is *identity.Identity, asked *CreateViewRequest, create bool) ViewInfo {
	state := s.topics.State()
	info := ViewInfo{Revision: state.Revision}
	spec, by := asked.spec(), coordination.Owner{Kind: coordination.ClientOwner}
	if is != nil {
		spec.User, by.User = is.Name, is.Name
	}
	if info.Error = asked.repeated(); info.Error != nil {
		return info
	}
	if info.Error = without(state, coordination.FeatureViews, "keeps no views up to date"); info.Error != nil {
		return info
	}
	if info.Error = mayView(state, is, asked.View, &spec); info.Error != nil {
		return info
	}
	var written *coordination.View
	var err error
	what := "create view " + asked.View
	if create {
		written, err = s.store.CreateView(ctx, asked.View, spec, by)
	} else {
		what = "change view " + asked.View
		written, err = s.changeView(ctx, asked, spec, by)
	}
	if err != nil {
		info.Error = s.notWritten(what, err)
		return info
	}
	s.followed(ctx, func(state *coordination.State) bool { return state.Revision >= written.Revision })
	v := s.view()
	if v.state.Revision >= written.Revision {
		return v.viewInfo(asked.View)
	}
	shown := v.declared(written) // the State does not have it yet
	return ViewInfo{Revision: v.state.Revision, View: &shown}
}

// changeView replaces the settings of a View. What only manifests say stays.
func (s *Server) changeView(ctx context.Context, asked *CreateViewRequest, spec coordination.ViewSpec, by coordination.Owner) (*coordination.View, error) {
	before, err := s.store.GetView(ctx, asked.View)
	if err != nil {
		return nil, err
	}
	spec.DeletionPolicy = before.Spec.DeletionPolicy
	return s.store.UpdateView(ctx, asked.View, coordination.ViewUpdate{By: by, Generation: asked.Generation, Revision: asked.Revision, Spec: spec})
}

// repeated refuses two triggers of one name: their Topics would be one.
func (v *ViewSettings) repeated() *Error {
	seen := map[string]bool{}
	for _, t := range v.Triggers {
		if seen[t.Name] {
			return refuse(BadRequest, "triggers: two have the name %.70q", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// mayView returns why a client may not have a View, or nil: it may subscribe to all that the View
// reads, and publish all that it writes.
func mayView(state *coordination.State, is *identity.Identity, name string, spec *coordination.ViewSpec) *Error {
	from := state.Topic(spec.Topic)
	if from == nil || from.Deleting {
		return noTopic(spec.Topic)
	}
	for _, pattern := range from.ReadBy(spec.Compute.Filter.Subjects) {
		if !is.MaySubscribe([]byte(pattern), nil) || is.Filters(pattern, "") {
			return refuse(Forbidden, "this user may not have a view of subject %.100s of topic %s: that takes the right to subscribe to all of it (choose others as filter.subjects)", pattern, spec.Topic)
		}
	}
	for _, o := range spec.Outputs(name) {
		into := state.Topic(o.Topic)
		if into == nil || into.Deleting {
			return refuse(NotFound, "there is no topic %.100q, which the view would write into (create it first)", o.Topic)
		}
		if why := o.Unkept(into); why != "" {
			return refuse(Refused, "%s", why)
		}
		if !is.MayPublishAll(o.Subjects) {
			return refuse(Forbidden, "this user may not have a view that writes into topic %s: that takes the right to publish on %.300s", o.Topic, o.Subjects)
		}
	}
	return nil
}

// deleteView deletes a View owned by clients.
func (s *Server) deleteView(ctx context.Context, asked ViewRequest) ViewInfo {
	info := ViewInfo{Revision: s.topics.State().Revision}
	if err := s.store.DeleteView(ctx, asked.View, asked.Revision, coordination.Owner{Kind: coordination.ClientOwner}); err != nil {
		info.Error = s.notWritten("delete view "+asked.View, err)
		return info
	}
	s.followed(ctx, func(state *coordination.State) bool { return state.View(asked.View) == nil })
	info.Revision = s.topics.State().Revision
	return info
}

// answerViews answers a request that writes nothing, or returns nil if the answer comes later.
func (s *Server) answerViews(r *request, m *protocol.Message, by origin) []byte {
	if r.kind == viewList {
		return encode(s.view().viewList(r.view.list.Topic, r.page))
	}
	return s.answerInfo(r.view.one.View, m, by)
}

func (v view) declared(d *coordination.View) View {
	shown := View{
		Name: d.Name, Generation: d.Generation, Revision: d.Revision, Created: d.Created, Owner: ownerOf(d.Owner), User: d.Spec.User,
		Spec: settingsOf(d.Spec), DeletionPolicy: d.Spec.DeletionPolicy,
		Status: Status{Reason: TopicMissing, Why: fmt.Sprintf("there is no topic %s, which it reads (create it, or have the view read another)", d.Spec.Topic)},
	}
	if from := v.state.Topic(d.Spec.Topic); from != nil {
		shown.Status = v.topic(from).Status
	}
	return shown
}

func (v view) viewInfo(name string) ViewInfo {
	info := ViewInfo{Revision: v.state.Revision}
	d := v.state.View(name)
	if d == nil {
		info.Error = noView(name)
		return info
	}
	shown := v.declared(d)
	info.View = &shown
	return info
}

func (v view) viewList(topic string, page ListRequest) ViewList {
	list := ViewList{Revision: v.state.Revision, Views: []View{}}
	all := slices.Collect(v.state.Views())
	if topic != "" {
		all = slices.Clone(v.state.ViewsOf(topic))
	}
	list.Total = len(all)
	all = slices.DeleteFunc(all, func(d *coordination.View) bool { return d.Name <= page.After })
	slices.SortFunc(all, func(a, b *coordination.View) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, d := range all {
		if i == page.Limit || i > 0 && size > maxAnswer {
			list.Next = all[i-1].Name
			break
		}
		shown := v.declared(d)
		list.Views = append(list.Views, shown)
		size += len(encode(shown))
	}
	return list
}
