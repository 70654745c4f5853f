package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const hotRooms = `{"view":"hot-rooms","topic":"readings","filter":{"subjects":["sensors.>"],"where":"json.celsius > -40.0"},"by":"json.room",` +
	`"window":{"sliding":{"size":"1m","every":"10s"},"time":"json.at","lateness":"10s","idle":"30s"},"values":{"mean":"mean(json.celsius)"},` +
	`"output":"room-means","triggers":[{"name":"hot","when":"mean > 30.0","until":"mean < 28.0","output":"alerts"}]}`

// viewServer returns a Server over an etcd with the Topics of hotRooms, whose clients 1, 2 … are
// the users user1, user2 … of a document. An empty document: there are no users.
func viewServer(t *testing.T, users string) (*cluster, *letterbox) {
	t.Helper()
	c, box := startAdmin(t), &letterbox{all: map[string][]byte{}}
	c.server = New("a", c, box, slog.New(slog.DiscardHandler)).Writing(c.Client)
	// A busy machine takes its time.
	c.server.writes = newTasks(writesAtOnce, testutil.Patience, &c.server.refused)
	c.server.troubleTasks = newTasks(troublesAtOnce, testutil.Patience, &c.server.refused)
	t.Cleanup(c.server.Close)
	if users != "" {
		document, err := identity.Parse([]byte(users))
		if err != nil {
			t.Fatal(err)
		}
		table, err := document.Table()
		if err != nil {
			t.Fatal(err)
		}
		c.server.Rights(func(client uint64) *identity.Identity { return table.User(fmt.Sprint("user", client)).Identity })
	}
	for name, subjects := range map[string][]string{"readings": {"sensors.>"}, "room-means": {"room-means.>"}, "alerts": {"alerts.>"}} {
		if _, err := c.CreateTopic(t.Context(), name, coordination.TopicSpec{Subjects: subjects, Shards: 1}, coordination.Owner{Kind: coordination.ClientOwner}); err != nil {
			t.Fatal(err)
		}
	}
	c.await("the topics", func(s *coordination.State) bool { return s.TopicCount() == 3 })
	return c, box
}

// asksOfView makes a request about Views, and returns its answer.
func asksOfView(t *testing.T, c *cluster, box *letterbox, client uint64, subject, payload string) (info ViewInfo) {
	t.Helper()
	box.asks(t, c.server, client, subject, payload, &info)
	return info
}

// knows waits until the State has a View that was written. An answer waits for that only so long.
func (c *cluster) knows(info ViewInfo) {
	c.Helper()
	if info.Error != nil {
		c.Fatalf("%+v", info.Error)
	}
	c.await("view "+info.View.Name, func(s *coordination.State) bool { return s.Revision >= info.View.Revision })
}

func refusedOfView(t *testing.T, info ViewInfo, code Code, says string) {
	t.Helper()
	if info.Error == nil || info.Error.Code != code || !strings.Contains(info.Error.Text, says) || info.View != nil {
		t.Errorf("%+v, want %s and %q", info.Error, code, says)
	}
}

func TestAViewIsDeclaredByRequests(t *testing.T) {
	c, box := viewServer(t, "")
	refusedOfView(t, asksOfView(t, c, box, 1, ViewInfoSubject, `{"view":"hot-rooms"}`), NotFound, "there is no view")
	refusedOfView(t, asksOfView(t, c, box, 1, ViewUpdateSubject, hotRooms), NotFound, "there is no view")
	made := asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms)
	if made.Error != nil || made.View.Generation != 1 || made.View.Owner.Kind != coordination.ClientOwner || made.View.User != "" {
		t.Fatalf("made: %+v", made)
	}
	c.knows(made)
	// The declaration is answered in the form in which it was asked for.
	var asked ViewSettings
	if err := json.Unmarshal([]byte(hotRooms), &asked); err != nil || !reflect.DeepEqual(made.View.Spec, asked) {
		t.Errorf("%+v, want %+v: %v", made.View.Spec, asked, err)
	}
	stored := c.State().View("hot-rooms")
	if w := stored.Spec.Compute.Window; w.Sliding.Every != 10*time.Second || w.Lateness != 10*time.Second || stored.Spec.Alerts["hot"] != "alerts" {
		t.Errorf("stored: %+v", stored.Spec)
	}
	if again := asksOfView(t, c, box, 2, ViewCreateSubject, hotRooms); again.Error != nil || again.View.Revision != made.View.Revision {
		t.Errorf("made again: %+v", again)
	}
	other := strings.Replace(hotRooms, `"30s"`, `"40s"`, 1)
	refusedOfView(t, asksOfView(t, c, box, 1, ViewCreateSubject, other), Exists, "view hot-rooms exists already")
	changed := asksOfView(t, c, box, 1, ViewUpdateSubject, strings.TrimSuffix(other, "}")+`,"generation":1}`)
	if changed.Error != nil || changed.View.Generation != 2 || changed.View.Spec.Window.Idle != Span(40*time.Second) {
		t.Fatalf("changed: %+v", changed)
	}
	refusedOfView(t, asksOfView(t, c, box, 1, ViewUpdateSubject, strings.TrimSuffix(hotRooms, "}")+`,"generation":1}`), Changed, "has changed in between")

	for _, name := range []string{"b", "a"} {
		c.knows(asksOfView(t, c, box, 1, ViewCreateSubject, `{"view":"`+name+`","topic":"alerts","values":{"n":"count()"}}`))
	}
	list := func(payload, want string) {
		t.Helper()
		var list ViewList
		box.asks(t, c.server, 1, ViewListSubject, payload, &list)
		names := fmt.Sprintf("%d:", list.Total)
		for _, v := range list.Views {
			names += " " + v.Name
		}
		if names += ", " + list.Next; names != want {
			t.Errorf("%s: %s, want %s", payload, names, want)
		}
	}
	list("", "3: a b hot-rooms, ")
	list(`{"limit":1}`, "3: a, a")
	list(`{"limit":1,"after":"a"}`, "3: b, b")
	list(`{"topic":"alerts"}`, "2: a b, ")
	list(`{"topic":"none"}`, "0:, ")

	refusedOfView(t, asksOfView(t, c, box, 1, ViewDeleteSubject, fmt.Sprintf(`{"view":"hot-rooms","revision":%d}`, made.View.Revision)), Changed, "")
	if gone := asksOfView(t, c, box, 1, ViewDeleteSubject, `{"view":"hot-rooms"}`); gone.Error != nil {
		t.Errorf("deleted: %+v", gone)
	}
	c.await("the end of the view", func(s *coordination.State) bool { return s.View("hot-rooms") == nil })
	refusedOfView(t, asksOfView(t, c, box, 1, ViewDeleteSubject, `{"view":"hot-rooms"}`), NotFound, "there is no view")
	// One that was made again has the same generation, and another revision.
	again := asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms)
	if again.Error != nil || again.View.Generation != made.View.Generation {
		t.Fatalf("made again: %+v", again)
	}
	at := func(revision int64) string {
		return strings.TrimSuffix(other, "}") + fmt.Sprintf(`,"generation":1,"revision":%d}`, revision)
	}
	refusedOfView(t, asksOfView(t, c, box, 1, ViewUpdateSubject, at(made.View.Revision)), Changed, "has changed in between")
	if changed := asksOfView(t, c, box, 1, ViewUpdateSubject, at(again.View.Revision)); changed.Error != nil || changed.View.Generation != 2 {
		t.Errorf("changed: %+v", changed)
	}

	// A manifest's is its own.
	manifest := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "m", UID: "1"}
	if _, err := c.CreateView(t.Context(), "m", *stored.Spec, manifest); err != nil {
		t.Fatal(err)
	}
	refusedOfView(t, asksOfView(t, c, box, 1, ViewDeleteSubject, `{"view":"m"}`), Refused, "the manifest shop/m")
	refusedOfView(t, asksOfView(t, c, box, 1, ViewUpdateSubject, strings.Replace(hotRooms, "hot-rooms", "m", 1)), Refused, "the manifest shop/m")
}

func TestAWrongViewIsRefusedWithTheReason(t *testing.T) {
	c, box := viewServer(t, "")
	if _, err := c.CreateTopic(t.Context(), "copy", coordination.TopicSpec{Shards: 1, Stream: coordination.StreamSettings{Mirror: &coordination.StreamSource{Name: "room-means"}}}, coordination.Owner{Kind: coordination.ClientOwner}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateTopic(t.Context(), "narrow", coordination.TopicSpec{Shards: 1, Subjects: []string{"narrow.*"}}, coordination.Owner{Kind: coordination.ClientOwner}); err != nil {
		t.Fatal(err)
	}
	c.await("both topics", func(s *coordination.State) bool { return s.Topic("copy") != nil && s.Topic("narrow") != nil })
	with := func(old, new string) string {
		if !strings.Contains(hotRooms, old) {
			t.Fatal(old)
		}
		return strings.Replace(hotRooms, old, new, 1)
	}
	for _, tc := range []struct {
		subject, payload string
		code             Code
		says             string
	}{
		{ViewCreateSubject, ``, BadRequest, "it is empty"},
		{ViewInfoSubject, ``, BadRequest, "it is empty"},
		{ViewInfoSubject + ".hot-rooms", ``, BadRequest, "there is no request"},
		{ViewListSubject, `{"limit":257}`, BadRequest, "use 1 to 256"},
		{ViewInfoSubject, `{"view":"a","revision":3}`, BadRequest, "revision is for deletions"},
		{ViewCreateSubject, with(`"by"`, `"generation":1,"by"`), BadRequest, "generation is for updates"},
		{ViewCreateSubject, with(`"by"`, `"revision":1,"by"`), BadRequest, "revision is for updates"},
		{ViewCreateSubject, with(`"by"`, `"color":"red","by"`), BadRequest, "unknown field"},
		{ViewCreateSubject, with(`"idle":"30s"`, `"idle":"soon"`), BadRequest, `"soon" is no length of time`},
		{ViewCreateSubject, with(`"hot-rooms"`, `"hot rooms"`), BadRequest, "the name has a blank"},
		{ViewCreateSubject, with(`"mean(json.celsius)"`, `"average(json.celsius)"`), BadRequest, "values.mean: "},
		{ViewCreateSubject, with(`"topic":"readings"`, `"topic":"none"`), NotFound, `there is no topic "none"`},
		{ViewCreateSubject, with(`"output":"room-means"`, `"output":"none"`), NotFound, `there is no topic "none", which the view would write into`},
		{ViewCreateSubject, with(`"output":"alerts"`, `"output":"none"`), NotFound, `there is no topic "none", which the view would write into`},
		{ViewCreateSubject, with(`"output":"alerts"`, `"output":"copy"`), Refused, "topic copy is a mirror"},
		{ViewCreateSubject, with(`"output":"alerts"`, `"output":"narrow"`), Refused, "topic narrow does not keep narrow.hot-rooms.hot.>"},
		{ViewCreateSubject, with(`"output":"alerts"`, `"output":"readings"`), Refused, "topic readings does not keep readings.hot-rooms.hot.>"},
		{ViewCreateSubject, with(`[{"name":"hot"`, `[{"name":"hot","when":"mean > 1.0","output":"room-means"},{"name":"hot"`), BadRequest, "two have the name"},
	} {
		if info := asksOfView(t, c, box, 1, tc.subject, tc.payload); info.Error == nil || info.Error.Code != tc.code || !strings.Contains(info.Error.Text, tc.says) {
			t.Errorf("%s %s: %+v, want %s and %q", tc.subject, tc.payload, info.Error, tc.code, tc.says)
		}
	}
	// A request of a stream, or of another broker, has no user.
	c.server.Take([]protocol.Message{{Subject: []byte(ViewCreateSubject), Reply: []byte("r"), Data: []byte(hotRooms)}}, nil, false)
	var info ViewInfo
	if err := json.Unmarshal(box.all["r"], &info); err != nil {
		t.Fatal(err)
	}
	refusedOfView(t, info, Forbidden, "declared by clients")

	c.join("old") // announces nothing
	c.await("the broker", func(s *coordination.State) bool { return len(s.Brokers) == 1 })
	refusedOfView(t, asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms), Refused, "broker main-old is of a version that keeps no views up to date")
	if _, views := c.State().View("hot-rooms"), c.State().ViewsOf("readings"); len(views) > 0 {
		t.Error("one was made")
	}
}

// TestAViewNeedsTheRightsToAllThatItReadsAndWrites: and it is kept on whose behalf it was declared.
func TestAViewNeedsTheRightsToAllThatItReadsAndWrites(t *testing.T) {
	all := `"publish":{"allow":[">"]},"subscribe":{"allow":[">"]}`
	user := func(n int, permissions string) string {
		return fmt.Sprintf(`{"name":"user%d","certificates":["dns:user%d"],"roles":["operator"],"permissions":{%s}}`, n, n, permissions)
	}
	c, box := viewServer(t, `{"users":[`+strings.Join([]string{
		user(1, all),
		user(2, `"publish":{"allow":["room-means.hot-rooms.>","alerts.hot-rooms.hot.*","alerts.hot-rooms.>"]},"subscribe":{"allow":["sensors.1.>"]}`),
		user(3, `"publish":{"allow":[">"]},"subscribe":{"allow":[">"],"deny":["sensors.secret"]}`),
		user(4, `"publish":{"allow":[">"],"deny":["room-means.hot-rooms.410"]},"subscribe":{"allow":[">"]}`),
		user(5, `"publish":{"allow":["room-means.hot-rooms.>"]},"subscribe":{"allow":[">"]}`),
	}, ",")+`]}`)
	refusedOfView(t, asksOfView(t, c, box, 2, ViewCreateSubject, hotRooms), Forbidden, "of subject sensors.> of topic readings")
	refusedOfView(t, asksOfView(t, c, box, 2, ViewCreateSubject, strings.Replace(hotRooms, `"subjects":["sensors.>"],`, "", 1)), Forbidden, "of subject sensors.> of topic readings")
	refusedOfView(t, asksOfView(t, c, box, 3, ViewCreateSubject, hotRooms), Forbidden, "of subject sensors.> of topic readings")
	refusedOfView(t, asksOfView(t, c, box, 4, ViewCreateSubject, hotRooms), Forbidden, "writes into topic room-means")
	refusedOfView(t, asksOfView(t, c, box, 5, ViewCreateSubject, hotRooms), Forbidden, "writes into topic alerts")
	made := asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms)
	if c.knows(made); made.View.User != "user1" || c.State().View("hot-rooms").Owner.User != "user1" {
		t.Fatalf("made: %+v", made.View)
	}
	part := strings.Replace(hotRooms, "sensors.>", "sensors.1.>", 1)
	changed := asksOfView(t, c, box, 2, ViewUpdateSubject, part)
	if c.knows(changed); changed.View.User != "user2" || c.State().View("hot-rooms").Owner.User != "user1" {
		t.Errorf("changed: %+v", changed.View)
	}
	refusedOfView(t, asksOfView(t, c, box, 2, ViewUpdateSubject, hotRooms), Forbidden, "of subject sensors.>")
}

// TestValuesOfAViewNeedTheRightToAllThatItReads: else they would tell of messages that the client
// may not have. Another broker's request was judged there.
func TestValuesOfAViewNeedTheRightToAllThatItReads(t *testing.T) {
	t.Parallel()
	user := func(n int, subscribe string) string {
		return fmt.Sprintf(`{"name":"user%d","certificates":["dns:user%d"],"roles":["operator"],"permissions":{"publish":{"allow":[">"]},"subscribe":%s}}`, n, n, subscribe)
	}
	c, box := viewServer(t, `{"users":[`+strings.Join([]string{
		user(1, `{"allow":[">"]}`), user(2, `{"allow":["sensors.1.>"]}`), user(3, `{"allow":[">"],"deny":["sensors.secret"]}`),
	}, ",")+`]}`)
	const get = `{"view":"hot-rooms","keys":["410"]}`
	var none ViewValues
	if box.asks(t, c.server, 1, ViewGetSubject, get, &none); none.Error == nil || none.Error.Code != NotFound {
		t.Errorf("%+v", none.Error)
	}
	c.knows(asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms))
	for client := range uint64(3) {
		code, says := Forbidden, "to subscribe to sensors.> of topic readings"
		if client == 0 {
			code, says = NotServed, "has no leader" // there is no controller
		}
		var is ViewValues
		box.asks(t, c.server, client+1, ViewGetSubject, get, &is)
		if is.Error == nil || is.Error.Code != code || !strings.Contains(is.Error.Text, says) {
			t.Errorf("user%d got %+v, want %s and %q", client+1, is.Error, code, says)
		}
	}
	for payload, says := range map[string]string{`{"view":"hot-rooms","keys":[4]}`: "a key is a text", `{"view":"hot-rooms","limit":-1}`: "leave limit out", `{"view":"hot-rooms","key":"410"}`: "unknown"} {
		var is ViewValues
		if box.asks(t, c.server, 1, ViewGetSubject, payload, &is); is.Error == nil || is.Error.Code != BadRequest || !strings.Contains(is.Error.Text, says) {
			t.Errorf("%s is answered by %+v", payload, is.Error)
		}
	}
}

// TestAViewIsShownWithItsTrouble: as the broker says that writes its results, to who may have its
// values. If too many ask for that, it says so.
func TestAViewIsShownWithItsTrouble(t *testing.T) {
	t.Parallel()
	user := func(n int, subscribe string) string {
		return fmt.Sprintf(`{"name":"user%d","certificates":["dns:user%d"],"roles":["operator"],"permissions":{"publish":{"allow":[">"]},"subscribe":%s}}`, n, n, subscribe)
	}
	c, box := viewServer(t, `{"users":[`+user(1, `{"allow":[">"]}`)+`,`+user(2, `{"allow":["sensors.1.>"]}`)+`]}`)
	c.server.ViewTrouble(func(ctx context.Context, topicID, name string, made int64) string {
		_, bounded := ctx.Deadline()
		state := c.State()
		return fmt.Sprint(name, " stands still ", bounded, topicID == state.Topic("readings").ID, made == state.View(name).Made)
	})
	made := asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms)
	if c.knows(made); made.View.Trouble != "" {
		t.Fatalf("made: %+v", made)
	}
	shown := func(client uint64, want string) {
		t.Helper()
		if is := asksOfView(t, c, box, client, ViewInfoSubject, `{"view":"hot-rooms"}`); is.Error != nil || is.View.Name != "hot-rooms" || is.View.Trouble != want {
			t.Errorf("to user%d it is shown as %+v, %+v; want the trouble %q", client, is.View, is.Error, want)
		}
	}
	shown(1, "hot-rooms stands still true true true")
	shown(2, "")
	refusedOfView(t, asksOfView(t, c, box, 1, ViewInfoSubject, `{"view":"none"}`), NotFound, "there is no view")
	c.server.troubleTasks.close()
	shown(1, "it is not known whether the results are up to date: more than 16 requests about views wait for other brokers (ask again in a moment)")
}

// TestValuesEndWithTheRight: the right is that of the moment of the request.
func TestValuesEndWithTheRight(t *testing.T) {
	t.Parallel()
	table := func(subscribe string) *identity.Table {
		document, err := identity.Parse([]byte(`{"users":[{"name":"user1","certificates":["dns:user1"],"roles":["operator"],"permissions":{"publish":{"allow":[">"]},"subscribe":{"allow":["` + subscribe + `"]}}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		is, err := document.Table()
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	c, box := viewServer(t, "")
	is := table(">").User("user1").Identity
	c.server.Rights(func(uint64) *identity.Identity { return is })
	c.knows(asksOfView(t, c, box, 1, ViewCreateSubject, hotRooms))
	for _, step := range []struct {
		is   *identity.Identity
		code Code
	}{{is, NotServed}, {table("room-means.>").User("user1").Identity, Forbidden}, {is, NotServed}} {
		is = step.is
		var got ViewValues
		box.asks(t, c.server, 1, ViewGetSubject, `{"view":"hot-rooms"}`, &got)
		if got.Error == nil || got.Error.Code != step.code {
			t.Errorf("the answer is %+v, want %s", got.Error, step.code)
		}
	}
}

// unseen is an etcd whose writes this broker's State does not have yet.
type unseen struct{ Store }

func (unseen) CreateView(_ context.Context, name string, spec coordination.ViewSpec, by coordination.Owner) (*coordination.View, error) {
	return &coordination.View{Name: name, Generation: 1, Revision: 9, Made: 9, Owner: by, Spec: &spec}, nil
}

// TestAViewIsShownBeforeTheStateHasIt: it was made, though the watch of this broker is behind.
func TestAViewIsShownBeforeTheStateHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var topics []*coordination.Topic
		for name, subject := range map[string]string{"readings": "sensors.>", "room-means": "room-means.>", "alerts": "alerts.>"} {
			topics = append(topics, &coordination.Topic{Name: name, ID: name, Spec: coordination.TopicSpec{Subjects: []string{subject}, Shards: 1}})
		}
		box := newMailbox()
		s := New("a", known{coordination.NewState(3, nil, topics, nil, nil)}, box, slog.New(slog.DiscardHandler)).Writing(unseen{})
		defer s.Close()
		s.TakeOf(1, []protocol.Message{{Subject: []byte(ViewCreateSubject), Reply: []byte("r"), Data: []byte(hotRooms)}}, nil, &work.Behind{})
		var info ViewInfo
		if err := json.Unmarshal(<-box.answers, &info); err != nil {
			t.Fatal(err)
		}
		if info.Error != nil || info.Revision != 3 || info.View == nil || info.View.Name != "hot-rooms" || info.View.Revision != 9 || info.View.Spec.Topic != "readings" {
			t.Errorf("it is shown as %+v, %+v", info.View, info.Error)
		}
	})
}
