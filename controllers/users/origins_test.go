package users

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// TestAStartComparesNothingThatIsNoted: the process after a start computes no hash while no Secret
// has changed. A changed Secret, and verifiers in etcd that are others, are compared.
func TestAStartComparesNothingThatIsNoted(t *testing.T) {
	secrets, before, h := hashed(t, 25)
	restarted := func() *hashes {
		next := newHashes(bcrypt.MinCost)
		next.from = maps.Clone(h.from)
		return next
	}
	decided := func(h *hashes, left turns) Decision { return decide(secrets, nil, "", before, h, &left) }
	if d := decided(restarted(), 0); d.Pending != 0 || !reflect.DeepEqual(usersByName(d), before) {
		t.Errorf("%d wait after a start", d.Pending)
	}
	for name, digest := range h.from {
		if strings.Contains(digest, "one-") || len(digest) != 16 {
			t.Errorf("of %s %q is noted", name, digest)
		}
	}
	// A former password is no longer right, whichever Secret names it.
	was := before["user-3"].Passwords
	before["user-3"].Passwords = before["user-4"].Passwords
	if d := decided(restarted(), 0); d.Pending != 1 {
		t.Errorf("%d wait with a foreign verifier in etcd", d.Pending)
	}
	before["user-3"].Passwords = was
	change(&secrets[24], "two")
	next := restarted()
	if d := decided(next, 0); d.Pending != 1 || !verifies(usersByName(d)["user-24"], "one-24") || !reflect.DeepEqual(next.from, h.from) {
		t.Errorf("%d wait after a change", d.Pending)
	}
	if d := decided(next, 2); d.Pending != 0 || !verifies(usersByName(d)["user-24"], "two") || next.from["user-24"] == h.from["user-24"] {
		t.Errorf("%d wait after its turn", d.Pending)
	}
	secrets[0].UID = "made-anew"
	if d := decided(restarted(), 0); d.Pending != 2 {
		t.Errorf("%d wait after a Secret was made anew", d.Pending)
	}
}

// TestAChangedSecretGoesFirst: while a process that knows nothing compares all passwords, one that
// changes does not wait for them.
func TestAChangedSecretGoesFirst(t *testing.T) {
	secrets, before, _ := hashed(t, 25)
	h := newHashes(bcrypt.MinCost)
	left := turns(5)
	if d := decide(secrets, nil, "", before, h, &left); d.Pending != 20 {
		t.Fatalf("%d wait", d.Pending)
	}
	i := slices.IndexFunc(secrets, func(s corev1.Secret) bool { return s.Name == "user-24" })
	change(&secrets[i], "two")
	left = 2 + share
	if d := decide(secrets, nil, "", before, h, &left); d.Pending != 17 || !verifies(usersByName(d)["user-24"], "two") {
		t.Errorf("%d wait, and the changed one's verifier is not new", d.Pending)
	}
}

// TestAStartGoesOnWhereTheLastOneWas: a process that ends while passwords wait leaves what it has
// compared to the next one, and never before the verifiers themselves.
func TestAStartGoesOnWhereTheLastOneWas(t *testing.T) {
	secrets, before, _ := hashed(t, 25)
	m := &memory{hashes: newHashes(bcrypt.MinCost)}
	left := turns(10)
	d := decide(secrets, nil, "", before, m.hashes, &left)
	etcd := &keys{refuses: true}
	if written, err := m.save(t.Context(), etcd, nil, &d.Document); written || err == nil || len(etcd.from) > 0 {
		t.Errorf("without the users %d are noted, %v", len(etcd.from), err)
	}
	etcd.refuses = false
	if written, err := m.save(t.Context(), etcd, nil, &d.Document); !written || err != nil {
		t.Error(err)
	}
	next := newHashes(bcrypt.MinCost)
	next.from = etcd.from
	left = 0
	if d := decide(secrets, nil, "", before, next, &left); d.Pending != 15 {
		t.Errorf("%d wait after 10 were compared", d.Pending)
	}
}

// TestAStartAfterHalfAWriteKeepsVerifiers: brokers have the set before, so whoever it has not
// changed keeps its verifier, also if the next write fails.
func TestAStartAfterHalfAWriteKeepsVerifiers(t *testing.T) {
	secrets, before, h := hashed(t, 3)
	part := &coordination.UserSet{}
	for _, u := range before {
		part.Users = append(part.Users, *u)
	}
	etcd := &keys{from: h.from, part: part, refuses: true}
	m := &memory{hashes: newHashes(bcrypt.MinCost)}
	if err := m.recall(t.Context(), etcd, nil); err != nil {
		t.Fatal(err)
	}
	pass := func() {
		t.Helper()
		left := turns(0)
		d := decide(secrets, nil, "", m.before(nil), m.hashes, &left)
		if now := usersByName(d); d.Pending != 0 || !maps.EqualFunc(now, before, func(a, b *identity.User) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("%d wait; of %v it makes %v", d.Pending, before, now)
		}
		if _, err := m.save(t.Context(), etcd, nil, &d.Document); etcd.refuses != (err != nil) {
			t.Error(err)
		}
	}
	pass()
	etcd.refuses = false
	pass()
	pass()
	if m.begun != nil {
		t.Error("the write is over, and its former part is kept")
	}
	whole := &memory{hashes: newHashes(bcrypt.MinCost)}
	if err := whole.recall(t.Context(), etcd, part); err != nil || whole.begun != nil {
		t.Errorf("beside a whole set it keeps another, %v", err)
	}
}

// keys are the users in etcd.
type keys struct {
	observe.Keys
	refuses bool
	from    map[string]string
	part    *coordination.UserSet // a set that was not written to its end
	written []map[string]*identity.User
}

func (k *keys) VerifiersFrom(context.Context) (map[string]string, error) { return k.from, nil }

func (k *keys) ReadUsers(context.Context) (*coordination.UserSet, error) { return k.part, nil }

func (k *keys) PutUsers(_ context.Context, doc *identity.Document) (int, error) {
	if k.refuses {
		return 0, errors.New("no leader")
	}
	k.written = append(k.written, usersByName(Decision{Document: *doc}))
	return 1, nil
}

func (k *keys) PutVerifiersFrom(_ context.Context, before, from map[string]string) error {
	k.from = maps.Clone(from)
	return nil
}

// hashed returns Secrets, the users that they make, and the hashes that did.
func hashed(t *testing.T, n int) (secrets []corev1.Secret, users map[string]*identity.User, h *hashes) {
	t.Helper()
	for i := range n {
		s := secret(fmt.Sprint("user-", i), 100-i, map[string]string{"password": fmt.Sprint("one-", i)})
		s.UID, s.ResourceVersion = types.UID(fmt.Sprint("uid-", i)), fmt.Sprint(100+i)
		secrets = append(secrets, s)
	}
	h = newHashes(bcrypt.MinCost)
	left := turns(n)
	d := decide(secrets, nil, "", nil, h, &left)
	if d.Pending != 0 || len(h.from) != n {
		t.Fatalf("%d wait, %d are noted", d.Pending, len(h.from))
	}
	return secrets, usersByName(d), h
}

func change(s *corev1.Secret, password string) {
	s.Data["password"] = []byte(password)
	s.ResourceVersion += "0"
}
