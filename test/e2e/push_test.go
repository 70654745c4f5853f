//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/env/testca"
)

const (
	pushedName     = "pushed" // of the Topic and its Subscription
	pushedSubjects = 8
	// pushedAtOnce is how many records each subject gets before the endpoint goes, and meanwhile.
	pushedAtOnce = 25
	// arrivalTime bounds the time until published records are at the endpoint. A circuit may pause a
	// minute before that.
	arrivalTime = 2 * time.Minute
	// secretTime bounds the time until brokers use a Secret's new value.
	secretTime = 3 * time.Minute

	firstToken  = "Bearer of-the-first-token"
	secondToken = "Bearer of-the-second-token"
)

// pushing is what is known of the records that are pushed to the receiver. Records of each subject
// are the numbers from 0.
type pushing struct {
	published int           // records on each subject
	earlier   []pushedEvent // what former pods of the receiver took
	ca        *testca.CA    // of the receiver and of its clients
	client    string        // the serial number of the client certificate
	key       string        // a line of its key
}

// pushedEvent is a request that the receiver took. Client is the serial number of the certificate
// that it came with.
type pushedEvent struct{ Subject, Authorization, Client, Data string }

// pushDeclared applies a receiver and a Subscription that pushes to it before their Broker exists.
func pushDeclared(t *testing.T, e *environment) {
	e.pushing = &pushing{ca: testca.New(t)}
	dir := t.TempDir()
	e.pushing.ca.Issue(t, dir, testca.Options{Names: []string{"receiver." + namespace + ".svc"}})
	e.secret(t, "receiver-tls", false, filesOf(t, dir, "tls.crt", "tls.key", "ca.crt"))
	e.secret(t, "receiver-ca", true, filesOf(t, dir, "ca.crt"))
	e.secret(t, "receiver-client", true, e.pushing.issue(t))
	e.secret(t, "receiver-token", true, map[string][]byte{"authorization": []byte(firstToken)})
	mustRun(t, "kubectl", "-n", namespace, "apply", "-f", "test/e2e/receiver.yaml")
}

// issue returns a new client certificate and its key.
func (p *pushing) issue(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	p.client = p.ca.Issue(t, dir).SerialNumber.String()
	pair := filesOf(t, dir, "tls.crt", "tls.key")
	p.key = strings.Split(string(pair["tls.key"]), "\n")[1]
	return pair
}

// secret creates a Secret, with the label that lets Subscriptions refer to it if pushed is true.
func (e *environment) secret(t *testing.T, name string, pushed bool, data map[string][]byte) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
	if pushed {
		s.Labels = map[string]string{v1alpha1.LabelPush: "true"}
	}
	if err := e.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// renew changes the content of a Secret.
func (e *environment) renew(t *testing.T, name string, data map[string][]byte) {
	t.Helper()
	s := &corev1.Secret{}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	s.Data = data
	if err := e.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func filesOf(t *testing.T, dir string, names ...string) map[string][]byte {
	t.Helper()
	data := map[string][]byte{}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		data[name] = content
	}
	return data
}

// pushServes pushes from all brokers to the receiver, with a client certificate and a header that
// no etcd of brokers has. Then the receiver goes, and records are published that nobody takes for
// now. The status tells of it within half a minute, which the benchmark lasts, so quiescence finds
// the Subscription at rest.
func pushServes(t *testing.T, e *environment) {
	upTo(readyTime).For(t, "the Subscription is Ready", func(ctx context.Context) error {
		s, err := e.subscription(ctx, pushedName)
		if err != nil {
			return err
		}
		return isReady(s.Status.Conditions, s.Generation)
	})
	js := e.publishers(t)
	e.publishNumbers(t, js, pushedAtOnce)
	e.arrived(t)
	for _, got := range e.taken(t) {
		if got.Authorization != firstToken || got.Client != e.pushing.client {
			t.Fatalf("the receiver got the header %q and certificate %s, want %s", got.Authorization, got.Client, e.pushing.client)
		}
	}
	e.notInEtcd(t, firstToken, e.pushing.key)

	// The operator notices the Subscription's change at once, and a Secret's within a minute.
	renewed := e.pushing.issue(t)
	e.renew(t, "receiver-client", renewed)
	e.renew(t, "receiver-token", map[string][]byte{"authorization": []byte(secondToken)})
	mustRun(t, "kubectl", "-n", namespace, "patch", "subscriptions.carillon.dev", pushedName, "--type=merge", "--patch", `{"spec": {"ack": {"wait": "20s"}}}`)
	upTo(readyTime).For(t, "the brokers' Secret has the new values", func(ctx context.Context) error {
		s := &corev1.Secret{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "main-push"}, s); err != nil {
			return err
		}
		if got := string(s.Data["receiver-token_authorization"]); got != secondToken || !bytes.Equal(s.Data["receiver-client_tls.key"], renewed["tls.key"]) {
			return fmt.Errorf("it has %q and keys from %d files", got, len(s.Data))
		}
		return nil
	})

	e.pushing.earlier = e.taken(t)
	mustRun(t, "kubectl", "-n", namespace, "scale", "deployment/receiver", "--replicas=0")
	upTo(replaceTime).For(t, "the receiver is gone", func(ctx context.Context) error {
		pods, err := e.receivers(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods))
		}
		return err
	})
	e.publishNumbers(t, js, pushedAtOnce)
}

// pushDown finds that the Subscription tells of the lost receiver. Then the receiver returns.
func pushDown(t *testing.T, e *environment) {
	upTo(lookTime).For(t, "the Subscription tells that its endpoint is not reached", func(ctx context.Context) error {
		s, err := e.subscription(ctx, pushedName)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionEndpointUnreached)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Unreachable" {
			return fmt.Errorf("%s is %+v", v1alpha1.ConditionEndpointUnreached, c)
		}
		if backlog := s.Status.Lag + s.Status.Pending; backlog != pushedSubjects*pushedAtOnce || s.Status.Members == nil || *s.Status.Members != 0 {
			return fmt.Errorf("the status has the numbers %+v", s.Status)
		}
		t.Logf("it says: %s", c.Message)
		return nil
	})
	upTo(lookTime).For(t, "one event tells of the lost endpoint", func(ctx context.Context) error { // it is written apart from the status
		events := &corev1.EventList{}
		if err := e.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err
		}
		told := 0
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "Subscription" && event.InvolvedObject.Name == pushedName && event.Reason == "Unreachable" && event.Type == corev1.EventTypeWarning {
				told++
			}
		}
		if told > 1 {
			t.Fatalf("%d events tell of the lost endpoint, want 1", told)
		}
		if told == 0 {
			return errors.New("none does")
		}
		return nil
	})
	mustRun(t, "kubectl", "-n", namespace, "scale", "deployment/receiver", "--replicas=1")
}

// pushEnds finds all records at the receiver, in order, and removes what pushDeclared made.
func pushEnds(t *testing.T, e *environment) {
	e.arrived(t)
	js := e.publishers(t)
	e.publishNumbers(t, js, 1)
	upTo(secretTime).For(t, "all brokers use the Secrets' new values", func(ctx context.Context) error {
		all, _, err := e.inOrder(ctx, t)
		if err != nil {
			return err
		}
		last := strconv.Itoa(e.pushing.published - 1)
		for _, got := range all {
			if got.Data == last && (got.Authorization != secondToken || got.Client != e.pushing.client) {
				e.publishNumbers(t, js, 1)
				return fmt.Errorf("%s came with the header %q and certificate %s, want %s", got.Subject, got.Authorization, got.Client, e.pushing.client)
			}
		}
		return nil
	})
	upTo(lookTime).For(t, "the status has the numbers", func(ctx context.Context) error {
		s, err := e.subscription(ctx, pushedName)
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionEndpointUnreached); c != nil {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
		if s.Status.Lag != 0 || s.Status.Pending != 0 || s.Status.Members == nil || *s.Status.Members != 1 {
			return fmt.Errorf("the status is %+v", s.Status)
		}
		return nil
	})
	e.notInEtcd(t, secondToken, e.pushing.key)
	mustRun(t, "kubectl", "-n", namespace, "delete", "-f", "test/e2e/receiver.yaml")
	mustRun(t, "kubectl", "-n", namespace, "delete", "secret", "receiver-tls", "receiver-ca", "receiver-client", "receiver-token")
}

func (e *environment) subscription(ctx context.Context, name string) (*v1alpha1.Subscription, error) {
	s := &v1alpha1.Subscription{}
	return s, e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
}

// publishers returns a client of each broker.
func (e *environment) publishers(t *testing.T) (js []jetstream.JetStream) {
	t.Helper()
	for i := range brokers {
		js = append(js, e.stream(t, podName(i)))
	}
	return js
}

// publishNumbers publishes so many records on each subject, through all brokers.
func (e *environment) publishNumbers(t *testing.T, js []jetstream.JetStream, each int) {
	t.Helper()
	for range each {
		for s := range pushedSubjects {
			if _, err := js[s%brokers].Publish(within(t), fmt.Sprintf("%s.%d", pushedName, s), []byte(strconv.Itoa(e.pushing.published))); err != nil {
				t.Fatal(err)
			}
		}
		e.pushing.published++
	}
}

// arrived waits until the receiver has all records, each behind the one before it on its subject.
func (e *environment) arrived(t *testing.T) {
	t.Helper()
	again := 0
	upTo(arrivalTime).For(t, fmt.Sprintf("the receiver has %d records of each subject", e.pushing.published), func(ctx context.Context) (err error) {
		_, again, err = e.inOrder(ctx, t)
		return err
	})
	t.Logf("%d requests came again", again)
}

// inOrder returns the requests that the receiver's pods have taken, and how many of them came
// again. It returns an error unless they have all records. It fails if one came before an earlier
// one of its subject.
func (e *environment) inOrder(ctx context.Context, t *testing.T) (all []pushedEvent, again int, err error) {
	t.Helper()
	if all, err = e.events(ctx); err != nil {
		return nil, 0, err
	}
	next := map[string]int{}
	for _, got := range all {
		n, err := strconv.Atoi(got.Data)
		switch {
		case err != nil || n > next[got.Subject]:
			t.Fatalf("the receiver got %q of %s where %d is next", got.Data, got.Subject, next[got.Subject])
		case n < next[got.Subject]:
			again++
		default:
			next[got.Subject]++
		}
	}
	for s := range pushedSubjects {
		if has := next[fmt.Sprintf("%s.%d", pushedName, s)]; has != e.pushing.published {
			return nil, 0, fmt.Errorf("it has %d of subject %d", has, s)
		}
	}
	return all, again, nil
}

// taken returns the requests that the receiver's pods have taken.
func (e *environment) taken(t *testing.T) []pushedEvent {
	t.Helper()
	all, err := e.events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (e *environment) events(ctx context.Context) (all []pushedEvent, err error) {
	pods, err := e.receivers(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 || pods[0].Status.PodIP == "" {
		return nil, fmt.Errorf("there are %d pods of the receiver, not one with an address", len(pods))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pods[0].Status.PodIP+":8080/", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var now []pushedEvent
	err = json.NewDecoder(response.Body).Decode(&now)
	return append(append(all, e.pushing.earlier...), now...), err
}

func (e *environment) receivers(ctx context.Context) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := e.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": "receiver"})
	return pods.Items, err
}

// notInEtcd fails if one of the values is anywhere on the volumes of the coordinators, whose files
// have what is in the brokers' etcd as it is.
func (e *environment) notInEtcd(t *testing.T, values ...string) {
	t.Helper()
	for i := range 3 {
		pod := fmt.Sprintf("main-coordinator-%d", i)
		volume, err := e.volumeOf(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		spec := false
		if err := filepath.WalkDir(volume, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
				return nil
			}
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			for n, value := range values {
				if bytes.Contains(content, []byte(value)) {
					t.Errorf("secret value %d is in %s of %s", n, filepath.Base(path), pod)
				}
			}
			spec = spec || bytes.Contains(content, []byte("receiver-token_authorization"))
			return err
		}); err != nil {
			t.Error(err)
		}
		if !spec {
			t.Errorf("the files of %s do not have the Subscription either", pod)
		}
	}
}
