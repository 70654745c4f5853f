package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// accessOfTest are the users of the test's etcd, which is the API server's, too, and has none. It
// tells what its etcd does with them; test/roots has a real one. world.mu guards it.
type accessOfTest struct {
	want             coordination.Access
	granted, enabled bool
	grants, enables  int
	early            []string // pods that were not as wanted when etcd began to ask for users
	strangers        []string // users that asked for what only root may
}

// asRoot notes a call that only root may make.
func (e *etcdOfTest) asRoot() error {
	if e.world.noEtcd {
		return errors.New("etcd is away")
	}
	if e.user != coordination.RootUser {
		e.world.access.strangers = append(e.world.access.strangers, e.user)
	}
	return nil
}

func (e *etcdOfTest) Access(_ context.Context, want coordination.Access) (coordination.AccessState, error) {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	a := &e.world.access
	a.want = want
	state := coordination.AccessState{Enabled: a.enabled}
	if !a.granted {
		state.Lacks = []string{"role cluster"}
	}
	return state, e.asRoot()
}

func (e *etcdOfTest) GrantAccess(context.Context, coordination.Access) error {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	a := &e.world.access
	a.granted = true
	a.grants++
	return e.asRoot()
}

func (e *etcdOfTest) EnableAccess(context.Context, coordination.Access) error {
	e.world.mu.Lock()
	defer e.world.mu.Unlock()
	a := &e.world.access
	if !a.granted {
		return errors.New("root does not exist")
	}
	a.enabled = true
	a.enables++
	return e.asRoot()
}

// Owner needs a user once etcd asks for them.
func (e *etcdOfTest) Owner(ctx context.Context) (string, error) {
	e.world.mu.Lock()
	refused := e.world.access.enabled && !e.world.access.granted
	e.world.mu.Unlock()
	if refused {
		return "", &coordination.RefusedError{User: e.user, Cause: errors.New("permission denied")}
	}
	return e.Client.Owner(ctx)
}

// spoilAccess changes the users of etcd, as a restore or a person does. It triggers a pass.
func (w *world) spoilAccess(granted, enabled bool) {
	w.t.Helper()
	w.mu.Lock()
	w.access.granted, w.access.enabled = granted, enabled
	w.mu.Unlock()
	w.look()
}

// look triggers a pass.
func (w *world) look() {
	w.t.Helper()
	w.patch(&v1alpha1.Broker{}, "main", fmt.Sprintf(`{"metadata": {"annotations": {"look": "%d"}}}`, time.Now().UnixNano()))
}

// untilAccess waits until etcd asks for its users, and has them.
func (w *world) untilAccess() (a accessOfTest) {
	w.t.Helper()
	eventually.For(w.t, "waiting for an etcd that asks for users", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if a = w.access; !a.granted || !a.enabled {
			return fmt.Errorf("it has them: %v, and asks for them: %v", a.granted, a.enabled)
		}
		return nil
	})
	return a
}

// TestEtcdAsksForUsers: from when all pods of a new Broker are ready. The operator does it once,
// and again if etcd was restored from a backup without users, or lost what the operator needs.
func TestEtcdAsksForUsers(t *testing.T) {
	w := newWorld(t)
	w.create(`{}`)
	a := w.untilAccess()
	w.untilReady()
	w.wantEvent("GrantingEtcdAccess", "role cluster")
	w.wantEvent("RestrictingEtcd", "from now on etcd asks for users")
	if want := []string{"main-broker", "carillon-operator"}; !slices.Equal(a.want.Cluster, want) || !slices.Equal(a.want.Root, []string{"main-coordinator"}) {
		t.Errorf("the users are %+v", a.want)
	}
	w.quiet()
	w.look()
	w.quiet()
	if a := w.untilAccess(); a.grants != 1 || a.enables != 1 || len(a.strangers) > 0 {
		t.Errorf("they were made %d times, and asked for %d times; by others than root: %v", a.grants, a.enables, a.strangers)
	}
	if c := meta.FindStatusCondition(w.broker().Status.Conditions, v1alpha1.ConditionEtcdUnrestricted); c != nil {
		t.Errorf("the condition says %q", c.Message)
	}
	for i, spoil := range []struct{ granted, enabled bool }{{false, false}, {true, false}, {false, true}} {
		w.spoilAccess(spoil.granted, spoil.enabled)
		w.untilAccess()
		w.untilReady()
		w.quiet()
		if t.Failed() {
			t.Fatalf("after change %d", i)
		}
	}
	if a := w.untilAccess(); a.grants != 3 || a.enables != 3 || len(a.strangers) > 0 {
		t.Errorf("in the end they were made %d times, and asked for %d times; by others than root: %v", a.grants, a.enables, a.strangers)
	}
}

// TestEtcdAsksForNoUsersWhileAPodIsOfAnEarlierVersion: with update OnRequest that lasts until a
// restart is asked for, and a condition tells of it. Then no pod is of an earlier version, and all
// are ready, when etcd begins to ask.
func TestEtcdAsksForNoUsersWhileAPodIsOfAnEarlierVersion(t *testing.T) {
	w := newWorld(t)
	w.earlier()
	w.untilReady()
	w.look()
	w.quiet()
	w.mu.Lock()
	granted, enabled := w.access.granted, w.access.enabled
	w.mu.Unlock()
	if enabled || !granted {
		t.Fatalf("etcd has users: %v, and asks for them: %v", granted, enabled)
	}
	c := w.until(v1alpha1.ConditionEtcdUnrestricted, metav1.ConditionTrue, "UsersNotEnabled")
	if !strings.Contains(c.Message, "pods of an earlier version") {
		t.Errorf("the condition says %q", c.Message)
	}
	open := w.options.OpenEtcd
	w.restartOperator(func(o *controllersOptions) {
		o.OpenEtcd = func(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
			etcd, err := open(cluster, endpoints, ca, cert, key)
			return etcdThatChecksPods{etcd, w}, err
		}
	})
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"carillon.dev/restart": "now"}}}`)
	w.untilPhase("signing")
	w.whileOperatorsSettle()
	w.advance(11 * time.Minute)
	w.untilPhase("separate")
	// The coordinators' second restart, without the former CA, waits for another request.
	w.patch(&v1alpha1.Broker{}, "main", `{"metadata": {"annotations": {"carillon.dev/restart": "again"}}}`)
	w.untilAccess()
	w.untilReady()
	w.quiet()
	if a := w.untilAccess(); a.enables != 1 || len(a.early) > 0 {
		t.Errorf("etcd was made to ask for users %d times; not as wanted were then %v", a.enables, a.early)
	}
}

// etcdThatChecksPods notes pods that are not as wanted when etcd begins to ask for users.
type etcdThatChecksPods struct {
	observe.Etcd
	world *world
}

func (e etcdThatChecksPods) EnableAccess(ctx context.Context, want coordination.Access) error {
	var early []string
	for _, component := range []string{"coordinator", "broker"} {
		pods := e.world.pods(component)
		if len(pods) != 3 {
			early = append(early, fmt.Sprintf("%d pods of %s", len(pods), component))
		}
		for i := range pods {
			if pod := &pods[i]; !podReady(pod) || pod.Spec.Containers[0].Image != "carillon:one" {
				early = append(early, pod.Name+" of "+pod.Spec.Containers[0].Image)
			}
		}
	}
	e.world.mu.Lock()
	e.world.access.early = append(e.world.access.early, early...)
	e.world.mu.Unlock()
	return e.Etcd.EnableAccess(ctx, want)
}

// TestAPassThatFailsLeavesNoConnection: connections to etcd that a pass opened before its error are
// closed.
func TestAPassThatFailsLeavesNoConnection(t *testing.T) {
	const failures = 5
	w := newWorld(t)
	open := w.options.OpenEtcd
	var opened, closed, failed atomic.Int64
	w.restartOperator(func(o *controllersOptions) {
		o.OpenEtcd = func(cluster string, endpoints []string, ca, cert, key []byte) (observe.Etcd, error) {
			tls, err := coordination.ParseTLS(ca, cert, key)
			if err != nil {
				return nil, err
			}
			if tls.Name() == coordination.RootUser && failed.Add(1) <= failures {
				return nil, errors.New("too many open files")
			}
			etcd, err := open(cluster, endpoints, ca, cert, key)
			if err != nil {
				return nil, err
			}
			opened.Add(1)
			return etcdThatCounts{etcd, &closed}, nil
		}
	})
	w.create(`{}`)
	w.untilAccess()
	w.untilReady()
	w.stop()
	eventually.For(t, "waiting for closed connections", func(context.Context) error {
		if opened, closed := opened.Load(), closed.Load(); opened != closed {
			return fmt.Errorf("%d were opened and %d closed", opened, closed)
		}
		return nil
	})
	if failed.Load() <= failures {
		t.Errorf("%d passes failed", failed.Load())
	}
}

// etcdThatCounts counts what is closed.
type etcdThatCounts struct {
	observe.Etcd
	closed *atomic.Int64
}

func (e etcdThatCounts) Close() error {
	e.closed.Add(1)
	return e.Etcd.Close()
}
