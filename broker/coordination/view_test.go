package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/identity"
)

// hotRooms is the example of the API page, by a header in place of an attribute.
func hotRooms() ViewSpec {
	return ViewSpec{
		Topic: "readings",
		Compute: ViewCompute{
			Filter:   ViewFilter{Subjects: []string{"sensors.>"}, Where: "json.celsius > -40.0"},
			By:       "headers.room",
			Window:   ViewWindow{Tumbling: time.Minute, Time: "json.at", Lateness: 10 * time.Second, Idle: 30 * time.Second},
			Values:   map[string]string{"mean": "mean(json.celsius)", "readings": "count()"},
			Triggers: []ViewTrigger{{Name: "hot", When: "mean > 30.0", Until: "mean < 28.0"}},
		},
		Output: "room-means",
		Alerts: map[string]string{"hot": "alerts"},
	}
}

// counting is a View without windows and outputs.
func counting(topic string) ViewSpec {
	return ViewSpec{Topic: topic, Compute: ViewCompute{Values: map[string]string{"n": "count()"}}}
}

// into is a View that writes what it counts into a Topic.
func into(from, to string) ViewSpec {
	s := counting(from)
	s.Compute.Window.Tumbling, s.Output = time.Minute, to
	return s
}

func TestAViewIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	_, err := c.CreateView(ctx, "hot-rooms", hotRooms(), manifest)
	as[*NotFoundError](t, err)
	c.mustCreate(t, "readings", spec("sensors.>"), manifest)

	want := hotRooms()
	want.User = "ann"
	made, err := c.CreateView(ctx, "hot-rooms", want, manifest)
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.GetView(ctx, "hot-rooms")
	if err != nil || viewText(read) != viewText(made) || !equalSpecs(read.Spec, &want) || read.Generation != 1 {
		t.Fatalf("read %s, %v; want %s", viewText(read), err, viewText(made))
	}
	before := c.revision(t)
	if again, err := c.CreateView(ctx, "hot-rooms", want, manifest); err != nil || again.Revision != made.Revision || c.revision(t) != before {
		t.Errorf("made again: %+v, %v", again, err)
	}
	_, err = c.CreateView(ctx, "hot-rooms", want, client)
	if e := as[*ExistsError](t, err); e.Owner != manifest {
		t.Errorf("the owner named is %v", e.Owner)
	}

	idle := want
	idle.Compute.Window.Idle = time.Minute
	for _, by := range []Owner{client, other, again} {
		_, err = c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: by, Spec: idle})
		as[*NotOwnerError](t, err)
		as[*NotOwnerError](t, c.DeleteView(ctx, "hot-rooms", 0, by))
	}
	changed, err := c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Generation: 1, Spec: idle})
	if err != nil || changed.Generation != 2 || changed.Made != made.Made {
		t.Fatalf("changed: %+v, %v", changed, err)
	}
	before = c.revision(t)
	if same, err := c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Spec: idle}); err != nil || same.Generation != 2 || c.revision(t) != before {
		t.Errorf("changed to the same: %+v, %v", same, err)
	}
	_, err = c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Generation: 1, Spec: want})
	as[*StaleError](t, err)
	wrong := want
	wrong.Compute.By = "json."
	_, err = c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Spec: wrong})
	as[*InvalidError](t, err)
	if _, err := c.OrphanView(ctx, "hot-rooms", manifest); err != nil {
		t.Fatal(err)
	}
	_, err = c.AdoptView(ctx, "hot-rooms", other, want)
	as[*NotOwnerError](t, err)
	adopted, err := c.AdoptView(ctx, "hot-rooms", again, want)
	if err != nil || adopted.Owner != again || adopted.Generation != 3 {
		t.Fatalf("adopted: %+v, %v", adopted, err)
	}

	as[*StaleError](t, c.DeleteView(ctx, "hot-rooms", made.Revision, again))
	if err := c.DeleteView(ctx, "hot-rooms", adopted.Revision, again); err != nil {
		t.Fatal(err)
	}
	as[*NotFoundError](t, c.DeleteView(ctx, "hot-rooms", 0, again))
	anew, err := c.CreateView(ctx, "hot-rooms", want, manifest)
	if err != nil || anew.Made <= made.Made || anew.Generation != made.Generation {
		t.Errorf("made anew: %+v, %v", anew, err)
	}
	_, err = c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Generation: made.Generation, Revision: made.Revision, Spec: idle})
	as[*StaleError](t, err) // only the revision tells
	if changed, err := c.UpdateView(ctx, "hot-rooms", ViewUpdate{By: manifest, Revision: anew.Revision, Spec: idle}); err != nil || changed.Generation != 2 {
		t.Errorf("changed as of its revision: %+v, %v", changed, err)
	}
}

// TestAWrongViewIsRefused: the error names the field.
func TestAWrongViewIsRefused(t *testing.T) {
	right := hotRooms()
	if why := right.Misjudged(); why != "" {
		t.Fatal(why)
	}
	for want, spoil := range map[string]func(*ViewSpec){
		"topic: the name is empty":         func(s *ViewSpec) { s.Topic = "" },
		"filter.subjects: a pattern of":    func(s *ViewSpec) { s.Compute.Filter.Subjects = []string{strings.Repeat("a", maxSubject+1)} },
		"filter.where: filter":             func(s *ViewSpec) { s.Compute.Filter.Where = "json." },
		"output: there are windows":        func(s *ViewSpec) { s.Output = "" },
		"output: without a window":         func(s *ViewSpec) { s.Compute.Window = ViewWindow{} },
		"output: the name":                 func(s *ViewSpec) { s.Output = "a.b" },
		"deletionPolicy DeleteIfEmpty":     func(s *ViewSpec) { s.DeletionPolicy = DeleteIfEmpty },
		`deletionPolicy "Never"`:           func(s *ViewSpec) { s.DeletionPolicy = "Never" },
		`trigger "hot" has no topic`:       func(s *ViewSpec) { s.Alerts = nil },
		`alerts: there is no trigger "x"`:  func(s *ViewSpec) { s.Alerts = map[string]string{"hot": "alerts", "x": "alerts"} },
		`output of trigger "hot": the nam`: func(s *ViewSpec) { s.Alerts = map[string]string{"hot": "a b"} },
		"it reads topic readings, and":     func(s *ViewSpec) { s.Output = "readings" },
		"it reads topic readings, ":        func(s *ViewSpec) { s.Alerts = map[string]string{"hot": "readings"} },
	} {
		s := hotRooms()
		spoil(&s)
		if why := s.Misjudged(); !strings.HasPrefix(why, want) {
			t.Errorf("%s\nerror: %s", want, why)
		}
	}
	s := hotRooms()
	for i := range 16 {
		name := fmt.Sprintf("t%d", i)
		s.Compute.Triggers = append(s.Compute.Triggers, ViewTrigger{Name: name, When: "mean > 1.0", Until: strings.Repeat(" ", 4080) + "mean < 1.0"})
		s.Alerts[name] = "alerts"
	}
	if _, err := (&View{Name: "large", Spec: &s}).encode(); as[*InvalidError](t, err) == nil {
		t.Error("a value of any size is written")
	}
}

// TestOfViewsInACircleOneIsRefused: also if they are made, or changed, at the same moment.
func TestOfViewsInACircleOneIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	topics := []string{"a", "b", "c"}
	clients := []*Client{etcd.open(), etcd.open(), etcd.open()}
	c := clients[0]
	for _, name := range topics {
		c.mustCreate(t, name, spec(name, name+".>"), client)
	}
	write := map[string]func(c *Client, at int) error{
		"made": func(c *Client, at int) error {
			_, err := c.CreateView(ctx, topics[at], into(topics[at], topics[(at+1)%3]), client)
			return err
		},
		"changed": func(c *Client, at int) error {
			_, err := c.UpdateView(ctx, topics[at], ViewUpdate{By: client, Spec: into(topics[at], topics[(at+1)%3])})
			return err
		},
	}
	for _, how := range []string{"made", "changed"} {
		for range 10 {
			if how == "changed" {
				for _, topic := range topics {
					if _, err := c.CreateView(ctx, topic, counting(topic), client); err != nil {
						t.Fatal(err)
					}
				}
			}
			errs := make([]error, 3)
			var all sync.WaitGroup
			for at := range topics {
				all.Go(func() { errs[at] = write[how](clients[at], at) })
			}
			all.Wait()
			refused := 0
			for _, err := range errs {
				var invalid *InvalidError
				switch {
				case errors.As(err, &invalid) && strings.Contains(err.Error(), "would come back for ever, by the topics"):
					refused++
				case err != nil:
					t.Error(err)
				}
			}
			if refused != 1 {
				t.Fatalf("%s: %d were refused", how, refused)
			}
			for _, topic := range topics {
				var none *NotFoundError
				if err := c.DeleteView(ctx, topic, 0, client); err != nil && !errors.As(err, &none) {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestAViewSaysWhereItWrites: with and without a key, and whether the Topics keep it.
func TestAViewSaysWhereItWrites(t *testing.T) {
	s := hotRooms()
	want := []ViewOutput{{"room-means", "room-means.v.>"}, {"alerts", "alerts.v.hot.>"}}
	if got := s.Outputs("v"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	s.Compute.By = ""
	want = []ViewOutput{{"room-means", "room-means.v"}, {"alerts", "alerts.v.hot"}}
	if got := s.Outputs("v"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for subjects, unkept := range map[string]bool{"room-means.>": false, "room-means.*": false, "*.v": false, "room-means": true, "room-means.w": true} {
		if why := want[0].Unkept(&Topic{Spec: TopicSpec{Subjects: []string{"other", subjects}}}); (why != "") != unkept {
			t.Errorf("%s: %q", subjects, why)
		}
	}
	if why := want[0].Unkept(&Topic{Spec: TopicSpec{Subjects: []string{">"}, Stream: StreamSettings{Mirror: &StreamSource{Name: "x"}}}}); !strings.Contains(why, "is a mirror") {
		t.Errorf("a mirror: %q", why)
	}
}

// TestACircleOfViewsIsNamed: by each kind of output, and of any length; a View that is replaced
// does not count.
func TestACircleOfViewsIsNamed(t *testing.T) {
	of := func(name string, s ViewSpec) *View { return &View{Name: name, Spec: &s} }
	alerts := hotRooms()
	alerts.Topic, alerts.Output, alerts.Alerts = "b", "x", map[string]string{"hot": "c"}
	others := []*View{of("1", into("a", "b")), of("2", alerts), of("3", into("d", "e"))}
	for _, c := range []struct {
		name     string
		from, to string
		want     string
	}{
		{"4", "c", "a", "c a b c"},
		{"4", "c", "d", ""},
		{"4", "x", "a", "x a b x"},
		{"1", "c", "a", ""},
		{"3", "c", "b", "c b c"},
	} {
		s := into(c.from, c.to)
		if got := strings.Join(viewCycle(c.name, &s, others), " "); got != c.want {
			t.Errorf("%s from %s to %s: %q, want %q", c.name, c.from, c.to, got, c.want)
		}
	}
}

// TestAStateHasViews: those of a Topic sorted, each change once, and the last readable value.
func TestAStateHasViews(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	seen.wait("the first state, so that each change is one of its own", func(*State) bool { return true })
	c.mustCreate(t, "readings", spec("sensors.>"), client)
	for _, name := range []string{"zero", "one"} {
		if _, err := c.CreateView(ctx, name, counting("readings"), client); err != nil {
			t.Fatal(err)
		}
	}
	names := func(s *State) (names []string) {
		for _, v := range s.ViewsOf("readings") {
			names = append(names, v.Name)
		}
		return names
	}
	s := seen.wait("two views", func(s *State) bool { return len(names(s)) == 2 })
	if !slices.Equal(names(s), []string{"one", "zero"}) || s.View("one") == nil || s.View("two") != nil || s.ViewsOf("orders") != nil {
		t.Errorf("the state is %s", text(s))
	}
	if err := c.DeleteView(ctx, "one", 0, client); err != nil {
		t.Fatal(err)
	}
	anew, err := c.CreateView(ctx, "one", counting("readings"), client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.etcd.Put(ctx, c.viewKey("zero"), `{"v":2,"spec":7}`); err != nil {
		t.Fatal(err)
	}
	s = seen.wait("a view that nobody can read", func(s *State) bool { return len(s.Unreadable()) == 1 })
	if s.View("zero") == nil || s.View("one").Made != anew.Made {
		t.Errorf("the state is %s", text(s))
	}
	var story []string
	for _, changes := range seen.changes() {
		for _, change := range changes.Views {
			switch {
			case change.Before == nil:
				story = append(story, "+"+change.After.Name)
			case change.After == nil:
				story = append(story, "-"+change.Before.Name)
			}
		}
	}
	if got := strings.Join(story, " "); got != "+zero +one -one +one" {
		t.Errorf("the changes were %s", got)
	}
	if _, err := c.etcd.Delete(ctx, c.allViews(), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	seen.wait("none", func(s *State) bool { return len(names(s)) == 0 && len(s.Unreadable()) == 0 })
}

// TestViewsOfClientsAreBounded: in bytes, by the limit of their user, and in number. Those of
// manifests count for the number alone.
func TestViewsOfClientsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.limiting(&identity.Limits{Consumers: 1})
	c.mustCreate(t, "readings", spec("sensors.>"), manifest)
	if _, err := c.CreateView(ctx, "one", counting("readings"), ann); err != nil {
		t.Fatal(err)
	}
	_, err := c.CreateView(ctx, "two", counting("readings"), ann)
	refused(t, err, LimitConsumers)
	if err := c.DeleteView(ctx, "one", 0, ann); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateView(ctx, "two", counting("readings"), ann); err != nil {
		t.Errorf("after a deletion: %v", err)
	}

	full := etcd.open().withRoom(1, 1)
	full.watchState(t).wait("the first state", func(*State) bool { return true })
	_, err = full.CreateView(ctx, "three", counting("readings"), client)
	as[*FullError](t, err)
	if again, err := full.CreateView(ctx, "two", counting("readings"), client); err != nil || again.Name != "two" {
		t.Errorf("one that is there: %+v, %v", again, err)
	}
	if _, err = full.CreateView(ctx, "three", counting("readings"), manifest); err != nil {
		t.Error(err)
	}

	three := counting("readings")
	value, err := json.Marshal(viewValue{V: viewValueVersion, Spec: &three, Owner: manifest})
	if err != nil {
		t.Fatal(err)
	}
	var puts []clientv3.Op
	for i := range MaxViews - 2 {
		if puts = append(puts, clientv3.OpPut(c.viewKey(fmt.Sprint("v", i)), string(value))); len(puts) == 100 || i == MaxViews-3 {
			if _, err := c.etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
				t.Fatal(err)
			}
			puts = nil
		}
	}
	_, err = c.CreateView(ctx, "more", counting("readings"), manifest)
	if !strings.Contains(as[*InvalidError](t, err).Error(), "there are 1000 views") {
		t.Error(err)
	}
	if _, err := c.UpdateView(ctx, "v7", ViewUpdate{By: manifest, Spec: into("readings", "counts")}); err != nil {
		t.Errorf("one of as many as possible can't change: %v", err)
	}
}

// TestManyViewsAreWrittenAtOnceByOneClient: more than there are attempts, and none gives up.
func TestManyViewsAreWrittenAtOnceByOneClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	c.mustCreate(t, "readings", spec("sensors.>"), client)
	errs := make([]error, 4*reviseAttempts)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = c.CreateView(ctx, fmt.Sprint("v", i), counting("readings"), client) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	// Who waits gives up with its context.
	c.viewWrites <- struct{}{}
	over, stop := context.WithCancel(ctx)
	stop()
	if _, err := c.CreateView(over, "more", counting("readings"), client); !errors.Is(err, context.Canceled) {
		t.Errorf("while another is written: %v", err)
	}
}
