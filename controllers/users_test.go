package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func (w *world) makeUser(name string, data map[string]string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"users": "main"}}, Type: v1alpha1.SecretTypeUser, StringData: data}
	if err := k8s.Create(w.t.Context(), secret); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// TestUsersFromSecrets: Secrets that agree become users in etcd, without a secret in it. A change
// of users replaces no pod, and what is equal is not written again. A wrong Secret is named.
func TestUsersFromSecrets(t *testing.T) {
	w := newWorld(t)
	store := w.keys()
	users := func(what string, check func(*coordination.UserSet) error) *coordination.UserSet {
		t.Helper()
		var set *coordination.UserSet
		eventually.For(t, what, func(ctx context.Context) (err error) {
			if set, err = store.ReadUsers(ctx); err != nil {
				return err
			}
			if set == nil {
				return errors.New("there are none")
			}
			return check(set)
		})
		return set
	}
	count := func(n int) func(*coordination.UserSet) error {
		return func(s *coordination.UserSet) error {
			if len(s.Users) != n {
				return fmt.Errorf("there are %d", len(s.Users))
			}
			return nil
		}
	}
	w.makeUser("ann", map[string]string{"password": "ann-s3cret", "user.yaml": "roles: [operator]"})
	// These agree to nothing, or to another Broker.
	for _, other := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: "opaque", Labels: map[string]string{"users": "main"}}, StringData: map[string]string{"password": "a"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Labels: map[string]string{"users": "other"}}, Type: v1alpha1.SecretTypeUser, StringData: map[string]string{"password": "a"}},
	} {
		other.Namespace = w.namespace
		if err := k8s.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	w.create(`{replicas: 1, auth: {users: {selector: {matchLabels: {users: main}}, defaultPermissions: {publish: {allow: []}}}}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	w.until(v1alpha1.ConditionOpen, "", "")
	set := users("the first user", count(1))
	if u := set.Users[0]; u.Name != "ann" || len(u.Passwords) != 1 || !strings.HasPrefix(u.Passwords[0], "$2a$") || set.Default.Publish.Allow == nil {
		t.Errorf("the users are %+v", set)
	}
	pod := w.pods("broker")[0]
	if args := pod.Spec.Containers[0].Args; !slices.Contains(args, "--users-from-etcd") {
		t.Errorf("the broker is started with %v", args)
	}

	bob := w.makeUser("bob", map[string]string{"token": "bob-s3cret"})
	users("the second user", count(2))
	w.makeUser("eve", map[string]string{"token": "bob-s3cret"})
	wrong := w.until(v1alpha1.ConditionUsersInvalid, metav1.ConditionTrue, "UsersInvalid")
	if !strings.Contains(wrong.Message, `Secret eve: has the same token as user "bob"`) || strings.Contains(wrong.Message, "s3cret") {
		t.Errorf("the condition says %q", wrong.Message)
	}
	w.wantEvent("UsersInvalid", "Secret eve")
	if n := w.broker().Status.Users; n == nil || *n != 2 {
		t.Errorf("status.users is %v", n)
	}
	// The older one goes, so the credential is the younger one's.
	if err := k8s.Delete(t.Context(), bob); err != nil {
		t.Fatal(err)
	}
	users("the user that is right now", func(s *coordination.UserSet) error {
		if len(s.Users) != 2 || s.Users[1].Name != "eve" {
			return fmt.Errorf("the users are %+v", s.Users)
		}
		return nil
	})
	w.until(v1alpha1.ConditionUsersInvalid, "", "")

	// A converged Broker writes nothing, also in another process.
	w.quiet()
	before := users("the users", count(2)).Generation
	w.stop()
	w.startOperator()
	w.quiet()
	if after := users("the users", count(2)); after.Generation != before {
		t.Errorf("the set was written again without a change: generation %d was %d", after.Generation, before)
	}
	if from, err := store.VerifiersFrom(t.Context()); err != nil || len(from["ann"]) != 16 {
		t.Errorf("where the verifiers come from is noted as %v, %v", from, err)
	}
	// Another password is another verifier, and what somebody writes into etcd is put right.
	w.patch(&corev1.Secret{}, "ann", `{"stringData": {"password": "another-s3cret"}}`)
	changed := users("the new verifier", func(s *coordination.UserSet) error {
		// The former one is removed before the new one is made.
		if is := s.Users[0].Passwords; len(is) != 1 || is[0] == set.Users[0].Passwords[0] {
			return fmt.Errorf("the verifiers are %v", is)
		}
		return nil
	})
	foreign := changed.Document
	foreign.Users = nil
	if _, err := store.PutUsers(t.Context(), &foreign); err != nil {
		t.Fatal(err)
	}
	if again := users("the users again", count(2)); again.Users[0].Passwords[0] != changed.Users[0].Passwords[0] {
		t.Error("the password was hashed anew")
	}
	if now := w.pods("broker")[0]; now.UID != pod.UID {
		t.Error("a change of users replaced a pod")
	}
}

// TestAuthChangesToUsers: pods stay until the first users are in etcd. Then they are replaced.
func TestAuthChangesToUsers(t *testing.T) {
	w := newWorld(t)
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "login"}, StringData: map[string]string{"token": "a"}}
	if err := k8s.Create(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	w.create(`{replicas: 1, auth: {secretRef: {name: login}}, coordination: {managed: {replicas: 1}}}`)
	w.untilReady()
	before := w.pods("broker")[0]
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"auth": {"secretRef": null, "users": {"selector": {}, "defaultPermissions": {"publish": {"deny": ["a..b"]}}}}}}`)
	wrong := w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "WritingUsers")
	eventually.For(t, "the mistake in the condition", func(context.Context) error {
		wrong = w.until(v1alpha1.ConditionReady, metav1.ConditionFalse, "WritingUsers")
		if !strings.Contains(wrong.Message, "spec.auth.users.defaultPermissions") {
			return errors.New(wrong.Message)
		}
		return nil
	})
	if now := w.pods("broker")[0]; now.UID != before.UID {
		t.Error("the pod was replaced before there were users")
	}
	w.patch(&v1alpha1.Broker{}, "main", `{"spec": {"auth": {"users": {"defaultPermissions": null}}}}`)
	w.wantEvent("RollingPod", "flag --users-from-etcd is new")
	w.untilReady()
	if n := w.broker().Status.Users; n == nil || *n != 0 {
		t.Errorf("status.users is %v", n)
	}
	if set, err := w.keys().ReadUsers(t.Context()); err != nil || set == nil || len(set.Users) != 0 {
		t.Errorf("in etcd there is %+v, %v", set, err)
	}
}
