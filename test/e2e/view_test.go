//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// eventTime is how long alerts are raised until one has an event: some turns of the operator, which
// takes a minute for the next one after failures, as while the broker was away.
const eventTime = 4 * time.Minute

// viewComputes declares the View of the samples, by attributes of subjects, and has the broker that
// computes it killed between two windows: each result and each alert is there once.
func viewComputes(t *testing.T, e *environment) {
	// The status is as late as the poll interval, which must not make the shard idle: the time up to
	// which windows are closed would go on to the present, and later readings would be late.
	sample, err := os.ReadFile("../../config/samples/view.yaml")
	if err != nil {
		t.Fatal(err)
	}
	patient := strings.Replace(string(sample), "idle: 30s", "idle: 1h", 1)
	if patient == string(sample) {
		t.Fatal("the sample has no idle: 30s")
	}
	manifest, err := os.CreateTemp("", "view-*.yaml") // kubectl divides the name of t.TempDir at its commas
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(manifest.Name())
	_, err = manifest.WriteString(patient)
	if err := errors.Join(err, manifest.Close()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", manifest.Name())
	upTo(readyTime).For(t, "the View is Ready", func(ctx context.Context) error {
		v := &v1alpha1.View{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hot-rooms"}, v); err != nil {
			return err
		}
		return isReady(v.Status.Conditions, v.Generation)
	})
	mustRun(t, "kubectl", "-n", namespace, "exec", podName(0), "--", "/carillon", "attributes", "set", "sensors.7", "room=410")

	leader := e.leaderOf(t, "temperatures")
	survivor := another(leader)
	js := e.stream(t, survivor)
	begin := time.Now().Add(-2 * time.Hour).Truncate(time.Minute)
	read := func(minute int, celsius float64) {
		at := begin.Add(time.Duration(minute)*time.Minute + 30*time.Second)
		body := fmt.Sprintf(`{"at":%d,"celsius":%g}`, at.Unix(), celsius)
		upTo(readyTime).For(t, "a reading is acknowledged", func(ctx context.Context) error {
			_, err := js.Publish(ctx, "sensors.7", []byte(body), jetstream.WithMsgID(body))
			return err
		})
	}
	read(0, 33)
	read(0, 35)
	read(1, 36)
	e.printed(t, survivor, "room-means", "34 2")
	killed := e.deletePod(t, leader, client.GracePeriodSeconds(0))
	read(2, 20)
	read(3, 31)
	read(5, 0)
	e.printed(t, survivor, "room-means", "34 2", "36 1", "20 1", "31 1")
	e.printed(t, survivor, "alerts", "1 raised 34", "2 cleared 20", "3 raised 31")
	upTo(3*time.Minute).For(t, "the status of the View has the time up to which windows are closed", func(ctx context.Context) error {
		v := &v1alpha1.View{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hot-rooms"}, v); err != nil {
			return err
		}
		if want := begin.Add(5*time.Minute + 30*time.Second - 10*time.Second); v.Status.Watermark == nil || !v.Status.Watermark.Time.Equal(want) {
			return fmt.Errorf("it is %v, want %v", v.Status.Watermark, want)
		}
		return nil
	})
	got := mustRun(t, "kubectl", "-n", namespace, "exec", survivor, "--", "/carillon", "view", "get", "hot-rooms", "410")
	if !strings.Contains(got, "410") {
		t.Errorf("carillon view get prints %q", got)
	}
	t.Logf("carillon view get prints\n%s", got)

	// Reading begins at the end of the Topic, at a time that nothing shows, so alerts are raised and
	// cleared until one has an event. All minutes are past ones.
	minute, last := 6, time.Time{}
	upTo(eventTime).For(t, "an alert is an event of the View", func(ctx context.Context) error {
		if minute < 110 && time.Since(last) > 10*time.Second {
			read(minute, 40)
			read(minute+1, 0) // ends the minute before, whose mean is 40
			minute, last = minute+2, time.Now()
		}
		return e.alertTold(ctx)
	})
	// Topics that are retained would keep the later stories from taking a broker away.
	mustRun(t, "kubectl", "-n", namespace, "patch", "topics.carillon.dev", "temperatures", "room-means", "alerts", "--type=merge", "-p", `{"spec":{"deletionPolicy":"Delete"}}`)
	mustRun(t, "kubectl", "-n", namespace, "delete", "--timeout=60s", "-f", "config/samples/view.yaml")
	upTo(replaceTime).For(t, "the Topics are gone, as their policy says", func(ctx context.Context) error {
		told, err := e.told(ctx, survivor)
		if err != nil {
			return err
		}
		for _, one := range told.Topics {
			if one.Name == "temperatures" || one.Name == "room-means" || one.Name == "alerts" {
				return errors.New(one.Name + " is there")
			}
		}
		return nil
	})
	upTo(replaceTime).For(t, leader+" is back", e.replaced(leader, killed))
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
}

// alertTold returns an error unless an alert of the View is an event about it.
func (e *environment) alertTold(ctx context.Context) error {
	v, all := &v1alpha1.View{}, &eventsv1.EventList{}
	if err := errors.Join(e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hot-rooms"}, v), e.List(ctx, all, client.InNamespace(namespace))); err != nil {
		return err
	}
	var others []string
	for _, is := range all.Items {
		if is.Regarding.Kind != "View" || is.Regarding.UID != v.UID {
			continue
		}
		if is.Reason == "AlertRaised" && is.Type == "Warning" && strings.HasPrefix(is.Note, "trigger hot raised an alert of key ") && strings.Contains(is.Note, "410") {
			return nil
		}
		others = append(others, is.Reason+": "+is.Note)
	}
	return fmt.Errorf("the events are %q, and the conditions %+v", others, v.Status.Conditions)
}

// printed waits until a Topic has these results, or these alerts, and fails if it has others.
func (e *environment) printed(t *testing.T, pod, topic string, want ...string) {
	t.Helper()
	js := e.stream(t, pod)
	upTo(readyTime).For(t, topic+" has what is due", func(ctx context.Context) error {
		s, err := js.Stream(ctx, topic)
		if err != nil {
			return err
		}
		var lines []string
		for n := range s.CachedInfo().State.LastSeq {
			m, err := s.GetMsg(ctx, n+1)
			if err != nil {
				return err
			}
			var is struct {
				Serial int
				State  string
				Values struct{ Mean, Readings float64 }
			}
			if err := json.Unmarshal(m.Data, &is); err != nil {
				return err
			}
			line := fmt.Sprint(is.Values.Mean, is.Values.Readings)
			if is.Serial > 0 {
				line = fmt.Sprint(is.Serial, " ", is.State, " ", is.Values.Mean)
			}
			lines = append(lines, line)
		}
		switch n := min(len(lines), len(want)); {
		case !slices.Equal(lines[:n], want[:n]) || n > len(want):
			t.Errorf("%s has %q, want %q", topic, lines, want)
			return nil
		case n < len(want):
			return errors.New("it has " + strings.Join(lines, ", "))
		}
		return nil
	})
}
