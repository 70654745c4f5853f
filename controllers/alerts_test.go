package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	reading "github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/controllers/alerting"
	"github.com/carillon-mq/carillon/controllers/users"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// TestAlertsBecomeEvents: of a View whose trigger asks for it, at a real broker that knows its
// users from etcd. The operator's own user may read the Topic of the alerts, and nothing else, and
// goes with the View.
func TestAlertsBecomeEvents(t *testing.T) {
	w := newWorld(t)
	w.makeUser("ann", map[string]string{"password": "ann-s3cret"})
	w.create(`{replicas: 1, auth: {users: {selector: {matchLabels: {users: main}}}}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	address, _ := brokers.Run(t, "small", broker.Config{
		Name: "main-0", Cluster: w.namespace + "/main", Data: t.TempDir(), UsersFromEtcd: true,
		Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}, Route: broker.Address{Listen: brokers.NoRoutes}, HTTP: broker.Address{Listen: "127.0.0.1:0"},
	})
	for _, topic := range []string{"readings", "alerts"} {
		w.apply("Topic", topic, `{brokerRef: {name: main}}`)
	}
	const view = `{topicRef: {name: readings}, by: json.room, values: {total: count()}, triggers: [
		{name: many, when: total > 1.0, output: {topicRef: {name: alerts}}, events: %s},
		{name: silent, when: total > 1.0, output: {topicRef: {name: alerts}}}]}`
	w.apply("View", "rooms", fmt.Sprintf(view, "true"))
	w.untilView("rooms", "Served", "")

	store := w.keys()
	own := func() (user *identity.User, all int, err error) {
		set, err := store.ReadUsers(t.Context())
		if err != nil || set == nil {
			return nil, 0, errors.Join(err, errors.New("there are no users"))
		}
		for i := range set.Users {
			if set.Users[i].Name == users.OperatorName {
				user = &set.Users[i]
			}
		}
		return user, len(set.Users), nil
	}
	eventually.For(t, "waiting for the operator's user", func(context.Context) error {
		user, all, err := own()
		if err != nil || user == nil || all != 2 {
			return fmt.Errorf("%+v, %d, %w", user, all, err)
		}
		p := user.Permissions
		if got := fmt.Sprint(p.Publish.Allow, p.Subscribe.Allow, len(user.Passwords), len(user.NKeys), user.Roles); got !=
			"[$CARILLON.API.RECORDS.alerts.*] [_INBOX_carillon_alerts.> alerts.rooms.>] 0 1 [subscriber]" {
			return fmt.Errorf("it may %s", got)
		}
		return nil
	})

	nc, err := nats.Connect(address, nats.UserInfo("ann", "ann-s3cret"), nats.Timeout(testutil.Patience))
	testutil.Must(t, err)
	defer nc.Close()
	js, err := nc.JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(t, err)
	room := 0
	eventually.For(t, "waiting for an event of an alert", func(context.Context) error { // until it reads, none is told
		room++
		for range 2 {
			if _, err := js.Publish("readings", fmt.Appendf(nil, `{"room":"a\n%d"}`, room)); err != nil {
				return err
			}
		}
		return w.findEvent(alerting.AlertRaised, `trigger many raised an alert of key "a\n`)
	})
	events := &eventsv1.EventList{}
	testutil.Must(t, k8s.List(t.Context(), events, client.InNamespace(w.namespace)))
	var is v1alpha1.View
	testutil.Must(t, w.get("rooms", &is))
	for _, e := range events.Items {
		if strings.Contains(e.Note, "trigger silent") {
			t.Errorf("a trigger that asks for none has an event: %s", e.Note)
		}
		if e.Reason == alerting.AlertRaised && (e.Type != "Warning" || e.Regarding.Kind != "View" || e.Regarding.Name != "rooms" || e.Regarding.UID != is.UID || !strings.Contains(e.Note, "(number 1): total 2")) {
			t.Errorf("%+v", e)
		}
	}
	// Who has the rights of that user reads that Topic, and nothing else.
	user, _, err := own()
	testutil.Must(t, err)
	rights, err := json.Marshal(map[string]any{"roles": user.Roles, "permissions": user.Permissions})
	testutil.Must(t, err)
	copied := w.makeUser("copied", map[string]string{"password": "copied-s3cret", "user.yaml": string(rights)})
	var narrow *nats.Conn
	eventually.For(t, "connecting as the copied user", func(context.Context) (err error) {
		narrow, err = nats.Connect(address, nats.UserInfo("copied", "copied-s3cret"), nats.Timeout(testutil.Patience), nats.CustomInboxPrefix("_INBOX_carillon_alerts"))
		return err
	})
	defer narrow.Close()
	read := func(topic string) error {
		r, err := reading.NewReader(narrow, topic, 0, 0, reading.ReaderOptions{})
		testutil.Must(t, err)
		defer func() { _ = r.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
		defer cancel()
		_, err = r.Batch(ctx)
		return err
	}
	testutil.Must(t, read("alerts"))
	if err := read("readings"); err == nil || !strings.Contains(strings.ToLower(err.Error()), "permission") {
		t.Errorf("it reads another Topic: %v", err)
	}
	testutil.Must(t, k8s.Delete(t.Context(), copied))

	// Without the field nobody reads, and the user goes.
	w.patch(&v1alpha1.View{}, "rooms", `{"spec": {"triggers": [{"name": "silent", "when": "total > 1.0", "output": {"topicRef": {"name": "alerts"}}}]}}`)
	eventually.For(t, "waiting for the operator's user to go", func(context.Context) error {
		if user, all, err := own(); err != nil || user != nil || all != 1 {
			return fmt.Errorf("%+v, %d, %w", user, all, err)
		}
		return nil
	})
}

// TestAlertsAreReadByTLS: with the handshake first, and as the user of spec.auth.secretRef. Of a
// Broker that asks clients for certificates they are not, and an event says so.
func TestAlertsAreReadByTLS(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "login"}, StringData: map[string]string{"username": "ann", "password": "ann-s3cret"}}
	testutil.Must(t, k8s.Create(t.Context(), secret))
	w.create(`{replicas: 1, auth: {secretRef: {name: login}}, tls: {handshake: First}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	made, dir := &corev1.Secret{}, t.TempDir()
	testutil.Must(t, w.get("main-client-tls", made))
	for _, name := range []string{"tls.crt", "tls.key"} {
		testutil.Must(t, os.WriteFile(filepath.Join(dir, name), made.Data[name], 0o600))
	}
	files, err := env.LoadServerTLS(dir, false)
	testutil.Must(t, err)
	address, stop := brokers.Run(t, "small", broker.Config{
		Name: "main-0", Cluster: w.namespace + "/main", Data: t.TempDir(), Auth: login.Single{User: "ann", Password: "ann-s3cret"},
		ClientTLS: broker.ClientTLS{Files: files, First: session.FirstYes},
		Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}, Route: broker.Address{Listen: brokers.NoRoutes}, HTTP: broker.Address{Listen: "127.0.0.1:0"},
	})
	for _, topic := range []string{"readings", "alerts"} {
		w.apply("Topic", topic, `{brokerRef: {name: main}}`)
	}
	w.apply("View", "rooms", `{topicRef: {name: readings}, by: json.room, values: {total: count()}, triggers: [
		{name: many, when: total > 0.0, output: {topicRef: {name: alerts}}, events: true}]}`)
	w.untilView("rooms", "Served", "")
	bundle := filepath.Join(dir, "ca.crt")
	testutil.Must(t, os.WriteFile(bundle, []byte(w.clientCA()), 0o600))
	nc, err := nats.Connect(address, nats.UserInfo("ann", "ann-s3cret"), nats.Timeout(testutil.Patience), nats.RootCAs(bundle), nats.TLSHandshakeFirst())
	testutil.Must(t, err)
	defer nc.Close()
	js, err := nc.JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(t, err)
	room := 0
	eventually.For(t, "waiting for an event of an alert", func(context.Context) error {
		room++
		if _, err := js.Publish("readings", fmt.Appendf(nil, `{"room":"a%d"}`, room)); err != nil {
			return err
		}
		return w.findEvent(alerting.AlertRaised, "trigger many raised an alert of key")
	})

	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"tls": {"clientCertificates": {"caSecretRef": {"name": "devices", "key": "roots"}}}}}`)
	stop() // as pods are replaced then
	w.wantEvent("NotRead", "spec.tls.clientCertificates")
	var is v1alpha1.View
	eventually.For(t, "waiting for the condition", func(context.Context) error { // the event comes first
		if err := w.get("rooms", &is); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionAlertsUnread); c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "spec.tls.clientCertificates") {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	w.patch(&v1alpha1.View{}, "rooms", `{"spec": {"triggers": [{"name": "many", "when": "total > 0.0", "output": {"topicRef": {"name": "alerts"}}}]}}`)
	eventually.For(t, "waiting for the condition to go", func(context.Context) error {
		if err := w.get("rooms", &is); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionAlertsUnread); c != nil {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}
