package users

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// secret returns a Secret that is as old as its number of hours.
func secret(name string, hours int, data map[string]string) corev1.Secret {
	s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1_000_000-3600*hours), 0))}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// decide makes the decision of a whole pass.
func decide(secrets []corev1.Secret, defaults *identity.Permissions, anonymous string, before map[string]*identity.User, h *hashes, left *turns) Decision {
	return gather(secrets, defaults, anonymous).decide(before, h, left, hashing)
}

func usersByName(d Decision) map[string]*identity.User {
	users := map[string]*identity.User{}
	for i := range d.Document.Users {
		users[d.Document.Users[i].Name] = &d.Document.Users[i]
	}
	return users
}

func verifies(u *identity.User, password string) bool {
	for _, hash := range u.Passwords {
		if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
			return true
		}
	}
	return false
}

func TestASecretBecomesAUser(t *testing.T) {
	left := turns(100)
	d := decide([]corev1.Secret{secret("orders", 1, map[string]string{
		"username": "orders-service\n", "password": "new", "previousPassword": "old", "token": "abc", "previousToken": "def",
		"certificate": "dns:a\n CN=ann,O=acme \n", "nkey": "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
		"user.yaml": `
roles: []
permissions: {publish: {allow: []}, subscribe: {deny: [secret]}}
limits: {connections: 3, streams: 4, consumers: 5, storedBytes: 6000000000, pulls: 7, snapshots: 8}
expires: 2027-01-31T00:00:00Z
`})}, &identity.Permissions{}, "", nil, newHashes(bcrypt.MinCost), &left)
	if len(d.Mistakes) > 0 || d.Trouble != "" || d.Pending != 0 || len(d.Document.Users) != 1 {
		t.Fatalf("decided %+v", d)
	}
	u := d.Document.Users[0]
	if u.Name != "orders-service" || len(u.Passwords) != 2 || !verifies(&u, "new") || !verifies(&u, "old") || len(u.Tokens) != 2 || len(u.NKeys) != 1 {
		t.Errorf("the user is %+v", u)
	}
	if !reflect.DeepEqual(u.Certificates, []string{"dns:a", "CN=ann,O=acme"}) || u.Roles == nil || len(u.Roles) != 0 || u.Permissions.Publish.Allow == nil ||
		u.Limits.String() != "connections 3, streams 4, consumers 5, storedBytes 6000000000, pulls 7, snapshots 8" || !u.Expires.Equal(time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("its rights are %+v %+v", u, u.Permissions)
	}
}

// TestAWrongSecretTakesNoUserAway: each mistake names its Secret and shows no value of it. Of two
// with one name or credential, the older one is right.
func TestAWrongSecretTakesNoUserAway(t *testing.T) {
	const value = "s3cret-value"
	left := turns(100)
	secrets := []corev1.Secret{
		secret("right", 50, map[string]string{"token": value}),
		secret("younger", 40, map[string]string{"username": "right", "token": "other"}),
		secret("same-token", 39, map[string]string{"token": value}),
		secret("seed", 38, map[string]string{"nkey": "SUA" + value}),
		secret("no-nkey", 37, map[string]string{"nkey": "UA" + strings.ToUpper(value)}),
		secret("no-hash", 36, map[string]string{"passwordHash": value}),
		secret("long", 35, map[string]string{"password": strings.Repeat(value, 10)}),
		secret("empty", 34, map[string]string{"password": ""}),
		secret("nothing", 33, nil),
		secret("rights", 32, map[string]string{"token": "a", "user.yaml": "role: [operator]"}),
		secret("role", 31, map[string]string{"token": "b", "user.yaml": "roles: [king]"}),
		secret("pattern", 30, map[string]string{"token": "c", "user.yaml": "permissions: {publish: {allow: [a..b]}}"}),
		secret("reserved", 2, map[string]string{"username": OperatorName, "token": "d"}),
		secret("also-right", 1, map[string]string{"password": value}),
	}
	d := decide(secrets, nil, "", nil, newHashes(bcrypt.MinCost), &left)
	if users := usersByName(d); len(users) != 2 || users["right"] == nil || len(users["right"].Tokens) != 1 || users["also-right"] == nil {
		t.Errorf("the users are %+v", d.Document.Users)
	}
	if _, err := d.Document.Table(); err != nil {
		t.Errorf("the document is wrong: %v", err)
	}
	want := []Mistake{
		{"younger", "name of that of Secret right, which is older"}, {"same-token", `the same token as user "right"`}, {"seed", "public key"},
		{"no-nkey", "public key"}, {"no-hash", "not a bcrypt hash"}, {"long", "more than 72 bytes"}, {"empty", "password is empty"}, {"nothing", "add one"},
		{"rights", "role"}, {"role", "king"}, {"pattern", "a..b"},
		{"reserved", "the operator's own"},
	}
	if len(d.Mistakes) != len(want) {
		t.Fatalf("the mistakes are %+v", d.Mistakes)
	}
	for i, m := range d.Mistakes {
		if m.Secret != want[i].Secret || !strings.Contains(m.Why, want[i].Why) {
			t.Errorf("a mistake is %+v, want %+v", m, want[i])
		}
		if strings.Contains(strings.ToLower(m.Why), value) {
			t.Errorf("a mistake shows a value: %+v", m)
		}
	}
	if text := d.invalid(); !strings.Contains(text, "Secret younger: ") || !strings.HasSuffix(text, "and 2 more") {
		t.Errorf("in short: %s", text)
	}
}

// TestHashingIsBounded: each pass computes a few hashes. The verifier of a password that is gone is
// removed without a turn. Then nothing is computed any more, also by a process that remembers
// nothing, once it has compared all.
func TestHashingIsBounded(t *testing.T) {
	var secrets []corev1.Secret
	for i := range 25 {
		secrets = append(secrets, secret(fmt.Sprint("user-", i), 100-i, map[string]string{"password": fmt.Sprint("one-", i)}))
	}
	h := newHashes(bcrypt.MinCost)
	var before map[string]*identity.User
	passes := func(h *hashes) (d Decision, n int) {
		t.Helper()
		for n = 1; ; n++ {
			left := turns(10)
			d = decide(secrets, nil, "", before, h, &left)
			before = usersByName(d)
			if d.Pending == 0 {
				return d, n
			}
			if n > 100 {
				t.Fatal("it never ends")
			}
		}
	}
	first, n := passes(h)
	if n != 3 || len(first.Document.Users) != 25 {
		t.Errorf("%d users after %d passes", len(first.Document.Users), n)
	}
	left := turns(0)
	if again := decide(secrets, nil, "", before, h, &left); again.Pending != 0 || !reflect.DeepEqual(again.Document, first.Document) {
		t.Error("without a change the users change, or wait")
	}
	// The next process compares, and changes nothing.
	h = newHashes(bcrypt.MinCost)
	if again, n := passes(h); n != 3 || !reflect.DeepEqual(again.Document, first.Document) {
		t.Errorf("after a restart the users change, or take %d passes", n)
	}
	// All passwords change, and a user is new.
	for i := range secrets {
		secrets[i].Data["password"] = fmt.Appendf(nil, "two-%d", i)
	}
	secrets = append(secrets, secret("new", 1, map[string]string{"password": "one"}))
	left = 3
	d := decide(secrets, nil, "", before, h, &left)
	users := usersByName(d)
	if d.Pending != 23 || len(users) != 26 || !verifies(users["new"], "one") || len(users["user-3"].Passwords) != 0 {
		t.Errorf("%d wait, and there are %d users", d.Pending, len(users))
	}
	if d, _ = passes(h); !verifies(usersByName(d)["user-3"], "two-3") || verifies(usersByName(d)["user-3"], "one-3") {
		t.Error("a changed password has no verifier, or the one before still has")
	}
	// A rotation keeps the verifier of the password before.
	was := usersByName(d)["user-3"].Passwords[0]
	secrets[3].Data["password"], secrets[3].Data["previousPassword"] = []byte("three"), []byte("two-3")
	d, _ = passes(h)
	if u := usersByName(d)["user-3"]; len(u.Passwords) != 2 || u.Passwords[1] != was || !verifies(u, "three") {
		t.Errorf("after a rotation the verifiers are %v", u.Passwords)
	}
	if len(h.known) > 60 {
		t.Errorf("%d verifiers are remembered", len(h.known))
	}
}

// TestAPasswordKeepsItsVerifier whatever else changes, also in the next process: brokers cut off
// the clients of a verifier that is gone.
func TestAPasswordKeepsItsVerifier(t *testing.T) {
	var before map[string]*identity.User
	verifiers := func(h *hashes, data map[string]string) []string {
		t.Helper()
		left := turns(10)
		d := decide([]corev1.Secret{secret("ann", 1, data)}, nil, "", before, h, &left)
		if before = usersByName(d); before["ann"] == nil || d.Pending > 0 {
			t.Fatalf("%d wait, of the mistakes %v", d.Pending, d.Mistakes)
		}
		return before["ann"].Passwords
	}
	for name, process := range map[string]func(*hashes) *hashes{
		"one process": func(h *hashes) *hashes { return h },
		"several":     func(*hashes) *hashes { return newHashes(bcrypt.MinCost) },
	} {
		h := newHashes(bcrypt.MinCost)
		before = nil
		one := verifiers(h, map[string]string{"password": "one"})[0]
		h = process(h)
		both := verifiers(h, map[string]string{"password": "two", "previousPassword": "one", "user.yaml": "roles: []"})
		if len(both) != 2 || both[1] != one {
			t.Errorf("%s: a rotation makes %q of %s", name, both, one)
		}
		h = process(h)
		if back := verifiers(h, map[string]string{"password": "one", "previousPassword": "two"}); len(back) != 2 || back[0] != both[1] || back[1] != both[0] {
			t.Errorf("%s: another order makes %q of %q", name, back, both)
		}
		h = process(h)
		if last := verifiers(h, map[string]string{"password": "two"}); len(last) != 1 || last[0] != both[0] {
			t.Errorf("%s: the end of a rotation makes %q of %q", name, last, both)
		}
	}
}

// TestMistakesOfTheManifest: wrong default permissions keep the set in etcd as it is; an anonymous
// user that is missing, or is not hashed yet, is none.
func TestMistakesOfTheManifest(t *testing.T) {
	left := turns(0)
	secrets := []corev1.Secret{secret("ann", 1, map[string]string{"password": "a"}), secret("guest", 2, nil)}
	wrong := &identity.Permissions{Publish: &identity.Subjects{Deny: []string{"a..b"}}}
	if d := decide(secrets, wrong, "", nil, newHashes(bcrypt.MinCost), &left); !d.Keep || !strings.Contains(d.Trouble, "spec.auth.users.defaultPermissions") {
		t.Errorf("with wrong defaults: %+v", d)
	}
	for anonymous, want := range map[string]string{"guest": "", "ann": "", "eve": `spec.auth.users.anonymous: there is no user "eve"`} {
		d := decide(secrets, nil, anonymous, nil, newHashes(bcrypt.MinCost), &left)
		if d.Keep || d.Trouble != want || (d.Document.Anonymous != "") != (anonymous == "guest") {
			t.Errorf("with the anonymous user %s: %+v", anonymous, d)
		}
		_, err := d.Document.Table()
		testutil.Must(t, err)
	}
}

// TestAUserThatWaitsForItsFirstPasswordStays: without it, whoever gives nothing would be cut off,
// and nothing be done on its behalf.
func TestAUserThatWaitsForItsFirstPasswordStays(t *testing.T) {
	var none turns
	before := map[string]*identity.User{"ann": {Name: "ann"}}
	d := decide([]corev1.Secret{secret("ann", 1, map[string]string{"password": "one"})}, nil, "ann", before, newHashes(bcrypt.MinCost), &none)
	if d.Pending != 1 || d.Trouble != "" || d.Document.Anonymous != "ann" || len(d.Document.Users) != 1 || len(d.Document.Users[0].Passwords) != 0 {
		t.Errorf("it makes %+v", d)
	}
}

// TestTheOperatorsOwnUserTakesNoUserAway: where it would make the users wrong together, it is left
// out.
func TestTheOperatorsOwnUserTakesNoUserAway(t *testing.T) {
	left := turns(100)
	const key = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
	secrets := []corev1.Secret{secret("ann", 2, map[string]string{"nkey": key}), secret("zoe", 1, map[string]string{"token": "a"})}
	for _, c := range []struct {
		own  *identity.User
		want int
	}{
		{nil, 2},
		{&identity.User{Name: OperatorName, Tokens: []string{"sha256:" + strings.Repeat("ab", 32)}}, 3},
		{&identity.User{Name: OperatorName, NKeys: []string{key}}, 2},
		{&identity.User{Name: OperatorName, Permissions: &identity.Permissions{Publish: &identity.Subjects{Allow: make([]string, 2000)}}}, 2},
	} {
		d := decide(secrets, nil, "", nil, newHashes(bcrypt.MinCost), &left)
		d.withOwn(c.own)
		if _, err := d.Document.Table(); err != nil || len(d.Document.Users) != c.want || c.want == 3 && d.Document.Users[1].Name != OperatorName {
			t.Errorf("with %+v there are %d users, want %d; %v, %+v", c.own, len(d.Document.Users), c.want, err, d.Mistakes)
		}
	}
}
