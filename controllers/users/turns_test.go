package users

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
)

// versioned returns a Secret as the API server has it.
func versioned(name string, hours, version int, data map[string]string) corev1.Secret {
	s := secret(name, hours, data)
	s.UID, s.ResourceVersion = types.UID("uid-"+name), fmt.Sprint(version)
	return s
}

// newcomers returns Secrets of users that are not in etcd. They are the oldest of all.
func newcomers(n int) (all []corev1.Secret) {
	for i := range n {
		all = append(all, versioned(fmt.Sprint("new-", i), 1000-i, 5000+i, map[string]string{"password": fmt.Sprint("first-", i)}))
	}
	return all
}

func setOf(users map[string]*identity.User) *coordination.UserSet {
	set := &coordination.UserSet{}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		set.Users = append(set.Users, *users[name])
	}
	return set
}

// remembering returns what a process that made the verifiers remembers, or the one after it.
func remembering(h *hashes, restarted bool) *memory {
	if restarted {
		from := h.from
		h = newHashes(bcrypt.MinCost)
		h.from = maps.Clone(from)
	}
	return &memory{hashes: h, from: maps.Clone(h.from)}
}

// TestALostPasswordWaitsForNobody: a removed user, a removed password and a removed right are
// written before new users have their turns, however many these are. A process that does not
// remember of which password a verifier is compares that before anything else. The new password of
// a changed Secret goes before new users.
func TestALostPasswordWaitsForNobody(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		secrets, before, h := hashed(t, 25)
		secrets[23].Data["token"] = []byte("a-token")
		change(&secrets[23], "two")
		change(&secrets[24], "two")
		secrets[22].Data["user.yaml"] = []byte("roles: []")
		change(&secrets[22], "one-22")
		secrets = append(slices.Delete(secrets, 3, 4), newcomers(30)...)
		m, etcd := remembering(h, restarted), &keys{}
		done, err := m.pass(t.Context(), etcd, setOf(before), gather(secrets, nil, ""), nil)
		if err != nil || !done.pending || !done.written {
			t.Fatalf("restarted %v: it did %+v, %v", restarted, done, err)
		}
		writes := etcd.written
		if want := map[bool]int{false: 2, true: 3}[restarted]; len(writes) != want {
			t.Fatalf("restarted %v: %d writes, want %d", restarted, len(writes), want)
		}
		for i, users := range writes[:len(writes)-1] {
			if len(users) != 24 || users["user-3"] != nil || users["user-22"].Roles == nil {
				t.Errorf("restarted %v: write %d has %d users, of these %v and %v", restarted, i, len(users), users["user-3"], users["user-22"])
			}
			if gone := !restarted || i > 0; gone != (len(users["user-24"].Passwords) == 0) || gone != (len(users["user-23"].Passwords) == 0) || len(users["user-23"].Tokens) != 1 {
				t.Errorf("restarted %v: write %d has the changed users %+v and %+v", restarted, i, users["user-23"], users["user-24"])
			}
			if !slices.Equal(users["user-5"].Passwords, before["user-5"].Passwords) || !slices.Equal(users["user-22"].Passwords, before["user-22"].Passwords) {
				t.Errorf("restarted %v: write %d takes passwords that hold", restarted, i)
			}
		}
		last := writes[len(writes)-1]
		if !verifies(last["user-24"], "two") || verifies(last["user-24"], "one-24") || !verifies(last["user-23"], "two") {
			t.Errorf("restarted %v: the new passwords waited", restarted)
		}
		if n := len(last) - 24; n == 0 || n >= turnsPerPass {
			t.Errorf("restarted %v: %d new users", restarted, n)
		}
	}
}

// TestARotationKeepsTheFormerPassword at each stage, also while the new one waits.
func TestARotationKeepsTheFormerPassword(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		secrets, before, h := hashed(t, 3)
		was := before["user-1"].Passwords
		secrets[1].Data["previousPassword"] = secrets[1].Data["password"]
		change(&secrets[1], "two")
		h = remembering(h, restarted).hashes
		all := gather(secrets, nil, "")
		for until := withdrawing; until <= hashing; until++ {
			left := turns(0)
			if until == comparing {
				left = turnsPerPass
			}
			d := all.decide(before, h, &left, until)
			if got := usersByName(d)["user-1"].Passwords; d.Pending != 1 || !slices.Equal(got, was) {
				t.Errorf("restarted %v, stage %d: %d wait, with the verifiers %v", restarted, until, d.Pending, got)
			}
		}
		left := turns(1) // what was compared is remembered
		d := all.decide(before, h, &left, hashing)
		if u := usersByName(d)["user-1"]; d.Pending != 0 || len(u.Passwords) != 2 || u.Passwords[1] != was[0] || !verifies(u, "two") {
			t.Errorf("restarted %v: in the end %d wait, with the verifiers %v", restarted, d.Pending, u.Passwords)
		}
	}
}

// TestTurnsAreShared: Secrets that change in each pass keep neither new users waiting, nor users of
// whose verifiers the process knows nothing.
func TestTurnsAreShared(t *testing.T) {
	const passes = 3
	secrets, before, h := hashed(t, 25)
	m, etcd := remembering(h, true), &keys{}
	for i := range passes * int(share) { // these are unknown
		delete(m.hashes.from, fmt.Sprint("user-", i))
	}
	secrets = append(secrets, newcomers(passes*int(share))...)
	for pass := range passes {
		for i := range secrets {
			if s := &secrets[i]; s.CreationTimestamp.Unix() > secret("", 90, nil).CreationTimestamp.Unix() {
				change(s, fmt.Sprint("other-", pass))
			}
		}
		if done, err := m.pass(t.Context(), etcd, setOf(before), gather(secrets, nil, ""), nil); err != nil || !done.pending {
			t.Fatalf("pass %d did %+v, %v", pass, done, err)
		}
	}
	users := etcd.written[len(etcd.written)-1]
	for i := range passes * int(share) {
		name := fmt.Sprint("new-", i)
		if u := users[name]; u == nil || !verifies(u, fmt.Sprint("first-", i)) {
			t.Errorf("%s waits after %d passes", name, passes)
		}
		if name = fmt.Sprint("user-", i); m.hashes.from[name] == "" || !slices.Equal(users[name].Passwords, before[name].Passwords) {
			t.Errorf("%s was not compared in %d passes", name, passes)
		}
	}
}

// TestWhoWaitsHasNoMoreVerifiersThanBrokersTake: a user with more would be refused.
func TestWhoWaitsHasNoMoreVerifiersThanBrokersTake(t *testing.T) {
	_, of, _ := hashed(t, 7)
	var given [7]string
	for i := range given {
		given[i] = of[fmt.Sprint("user-", i)].Passwords[0]
	}
	before := map[string]*identity.User{"ann": {Name: "ann", Passwords: given[:4]}}
	s := versioned("ann", 1, 7, map[string]string{"password": "one-3", "passwordHash": given[0] + "\n" + given[5] + "\n" + given[6]})
	left, h := turns(1), newHashes(bcrypt.MinCost)
	d := decide([]corev1.Secret{s}, nil, "", before, h, &left)
	if u := usersByName(d)["ann"]; d.Pending != 1 || u == nil || len(u.Passwords) != identity.MaxVerifiers || !slices.Contains(u.Passwords, given[3]) {
		t.Errorf("%d wait, with %+v, of the mistakes %v", d.Pending, u, d.Mistakes)
	}
	for before = usersByName(d); d.Pending > 0; before = usersByName(d) {
		if left != 0 {
			t.Fatalf("%d turns are left, and it waits", left)
		}
		left = 1
		d = decide([]corev1.Secret{s}, nil, "", before, h, &left)
	}
	if u := before["ann"]; !slices.Equal(u.Passwords, []string{given[0], given[5], given[6], given[3]}) {
		t.Errorf("in the end the verifiers are %v", u.Passwords)
	}
}

// TestAWrongManifestComputesNothing: its hashes could not be written, and would be made again.
func TestAWrongManifestComputesNothing(t *testing.T) {
	m, etcd := &memory{hashes: newHashes(bcrypt.MinCost)}, &keys{}
	wrong := &identity.Permissions{Publish: &identity.Subjects{Deny: []string{"a..b"}}}
	done, err := m.pass(t.Context(), etcd, nil, gather(newcomers(3), wrong, ""), nil)
	if err != nil || done.pending || done.written || done.invalid == "" || len(m.hashes.known) > 0 {
		t.Errorf("it did %+v with %d hashes, %v", done, len(m.hashes.known), err)
	}
}

// TestARefusedSecretIsHashedOnce: its verifiers are not in etcd, and no pass makes them again. So a
// converged Broker costs nothing, however many Secrets are wrong.
func TestARefusedSecretIsHashedOnce(t *testing.T) {
	secrets := newcomers(3 * turnsPerPass)
	for i := range secrets { // so the oldest one is right, and all others are wrong
		secrets[i].Data["token"], secrets[i].Data["previousPassword"] = []byte("one"), []byte("former")
	}
	m, etcd := &memory{hashes: newHashes(bcrypt.MinCost)}, &keys{}
	var set *coordination.UserSet
	pass := func() outcome {
		t.Helper()
		done, err := m.pass(t.Context(), etcd, set, gather(slices.Clone(secrets), nil, ""), nil)
		if err != nil || done.invalid == "" {
			t.Fatalf("it did %+v, %v", done, err)
		}
		set = setOf(etcd.written[len(etcd.written)-1])
		return done
	}
	passes := 1
	for ; pass().pending; passes++ {
		if passes > 2*len(secrets) {
			t.Fatalf("after %d passes some wait still", passes)
		}
	}
	if len(set.Users) != 1 {
		t.Errorf("there are %d users", len(set.Users))
	}
	known := maps.Clone(m.hashes.known)
	if done := pass(); done.pending || !maps.Equal(known, m.hashes.known) {
		t.Errorf("after %d passes, another one did %+v and computes hashes", passes, done)
	}
}

// TestAFailedWriteKeepsVerifiers: after it, what etcd has is not known, and the mirror may show a
// set of before. Clients have proved themselves by what was written meanwhile.
func TestAFailedWriteKeepsVerifiers(t *testing.T) {
	secrets, before, h := hashed(t, 2)
	m, etcd, old := remembering(h, false), &keys{}, setOf(before)
	pass := func() error {
		_, err := m.pass(t.Context(), etcd, old, gather(slices.Clone(secrets), nil, ""), nil)
		return err
	}
	change(&secrets[0], "two")
	for _, refuses := range []bool{false, false, true, true, false} {
		if etcd.refuses = refuses; (pass() != nil) != refuses {
			t.Fatalf("etcd refuses: %v, and the pass does not fail by that", refuses)
		}
		change(&secrets[1], secrets[1].ResourceVersion)
	}
	first, last := etcd.written[1]["user-0"], etcd.written[len(etcd.written)-1]["user-0"]
	if !verifies(first, "two") || !slices.Equal(first.Passwords, last.Passwords) {
		t.Errorf("the verifiers are %v, and after failed writes %v", first.Passwords, last.Passwords)
	}
}

// TestARemovedPasswordHashWaitsForNobody: another process compares it with the password that
// replaces it before anything else, as it does with verifiers that the operator made.
func TestARemovedPasswordHashWaitsForNobody(t *testing.T) {
	secrets, before, h := hashed(t, 25)
	given := before["user-24"].Passwords[0]
	delete(secrets[24].Data, "password")
	secrets[24].Data["passwordHash"], secrets[24].ResourceVersion = []byte(given), "700"
	left := turns(1)
	if d := decide(secrets, nil, "", before, h, &left); d.Pending != 0 || left != 1 {
		t.Fatalf("%d wait for a hash that is given", d.Pending)
	}
	m, etcd := remembering(h, true), &keys{}
	for i := range 24 { // these are unknown
		delete(m.hashes.from, fmt.Sprint("user-", i))
	}
	delete(secrets[24].Data, "passwordHash")
	change(&secrets[24], "two")
	if done, err := m.pass(t.Context(), etcd, setOf(before), gather(secrets, nil, ""), nil); err != nil || !done.pending {
		t.Fatalf("it did %+v, %v", done, err)
	}
	if u := etcd.written[len(etcd.written)-1]["user-24"]; slices.Contains(u.Passwords, given) || !verifies(u, "two") {
		t.Errorf("the hash that is gone, or the password, waits: %v", u.Passwords)
	}
}

// TestAChangeAgainGoesToTheEnd: Secrets that change in each pass, though they are older, do not
// keep the new password of another one waiting.
func TestAChangeAgainGoesToTheEnd(t *testing.T) {
	const passes = 3
	secrets, before, h := hashed(t, 2*turnsPerPass)
	m, etcd, last := remembering(h, false), &keys{}, &secrets[len(secrets)-1]
	change(last, "two")
	for pass := range passes {
		for i := range secrets[:len(secrets)-1] {
			change(&secrets[i], fmt.Sprint("other-", pass))
		}
		if _, err := m.pass(t.Context(), etcd, setOf(before), gather(slices.Clone(secrets), nil, ""), nil); err != nil {
			t.Fatal(err)
		}
	}
	if u := etcd.written[len(etcd.written)-1][last.Name]; !verifies(u, "two") {
		t.Errorf("its password waits after %d passes: %v", passes, u.Passwords)
	}
}

// TestAUserThatIsGoneAtOnce is removed, too, while the mirror shows the set from before it came.
func TestAUserThatIsGoneAtOnce(t *testing.T) {
	secrets, before, h := hashed(t, 2)
	m, etcd, shown := remembering(h, false), &keys{}, setOf(before)
	for _, all := range [][]corev1.Secret{secrets, append(slices.Clone(secrets), newcomers(1)...), secrets} {
		if _, err := m.pass(t.Context(), etcd, shown, gather(slices.Clone(all), nil, ""), nil); err != nil {
			t.Fatal(err)
		}
		if n := len(etcd.written[len(etcd.written)-1]); n != len(all) {
			t.Errorf("%d users are written, want %d", n, len(all))
		}
	}
}
