package coordination

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// peopleOf are n users, who may publish as the version says.
func peopleOf(n, version int) *identity.Document {
	doc := &identity.Document{Anonymous: "user-0"}
	for i := range n {
		doc.Users = append(doc.Users, identity.User{
			Name: fmt.Sprintf("user-%d", i), Certificates: []string{fmt.Sprintf("dns:%d", i)}, Roles: []identity.Role{},
			Permissions: &identity.Permissions{Publish: &identity.Subjects{Allow: []string{fmt.Sprintf("v%d", version)}}},
		})
	}
	return doc
}

func (c *Client) putUsers(t *testing.T, doc *identity.Document) (written int) {
	t.Helper()
	written, err := c.PutUsers(t.Context(), doc)
	testutil.Must(t, err)
	return written
}

// TestTheUsersAreWhatWasPut: names with every byte, empty lists, and what is taken away. What is
// equal is not written.
func TestTheUsersAreWhatWasPut(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	if first := seen.wait("a state", func(*State) bool { return true }); first.Users() != nil {
		t.Errorf("before any were written, there are users: %v", first.Users())
	}
	doc := &identity.Document{
		Users: []identity.User{
			{Name: "a/b ä%2F", Tokens: []string{"sha256:" + strings.Repeat("0", 64)}, Roles: []identity.Role{}},
			{Name: "ann", Roles: []identity.Role{identity.Operator}, Permissions: &identity.Permissions{Publish: &identity.Subjects{Allow: []string{}}}},
		},
		Default: &identity.Permissions{Subscribe: &identity.Subjects{Allow: []string{}}}, Anonymous: "ann",
	}
	if n := c.putUsers(t, doc); n != 2 {
		t.Errorf("%d users were written", n)
	}
	state := seen.wait("the users", func(s *State) bool { return s.Users() != nil })
	if got := state.Users(); !reflect.DeepEqual(&got.Document, doc) || got.Generation != 1 || got.Wrong != nil {
		t.Errorf("the users are %+v", got)
	}
	if n := c.putUsers(t, doc); n != 0 {
		t.Errorf("%d equal users were written", n)
	}
	if got, err := c.ReadUsers(t.Context()); err != nil || !reflect.DeepEqual(got, state.Users()) {
		t.Errorf("read: %+v, %v", got, err)
	}
	doc.Users, doc.Anonymous = doc.Users[:1], ""
	if n := c.putUsers(t, doc); n != 1 {
		t.Errorf("%d users were written", n)
	}
	state = seen.wait("the next users", func(s *State) bool { return s.Users().Generation > 1 })
	if got := state.Users(); !reflect.DeepEqual(&got.Document, doc) || got.Generation != 2 {
		t.Errorf("the users are %+v; an equal set may have been written", got)
	}
	testutil.Must(t, c.DeleteUsers(t.Context()))
	seen.wait("no users", func(s *State) bool { return s.Users() == nil })
}

// TestASetInPartsIsSeenAsAWhole: a set takes several transactions. Followers see all of it or the
// set before, also if its writer dies in between, and the next call goes on.
func TestASetInPartsIsSeenAsAWhole(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	const n = 3*userOps + 50
	c.putUsers(t, peopleOf(n, 1))
	seen.wait("the first set", func(s *State) bool { return s.Users() != nil })

	// The writer of the second set dies behind its second transaction.
	before, err := c.readUsers(t.Context())
	testutil.Must(t, err)
	wanted := map[string]string{}
	for _, u := range peopleOf(n, 2).Users {
		wanted[c.userKey(u.Name)], err = encodeUser(&u)
		testutil.Must(t, err)
	}
	batches := batchesOf(c.userChanges(before, wanted))
	if len(batches) != 4 {
		t.Fatalf("%d transactions", len(batches))
	}
	batches[2] = nil
	for i := range 200 { // more than etcd takes
		batches[2] = append(batches[2], clientv3.OpPut(fmt.Sprint(i), ""))
	}
	if err := c.writeUsers(t.Context(), before.revision, usersValue{Generation: 2, Users: n}, batches); err == nil {
		t.Error("more operations than etcd takes were written")
	}
	_, err = c.CreateTopic(t.Context(), "later", spec("later"), client)
	testutil.Must(t, err)
	state := seen.wait("what was written later", func(s *State) bool { return s.Topic("later") != nil })
	if got := state.Users().Users[n-1].Permissions.Publish.Allow[0]; got != "v1" || state.Users().Generation != 1 {
		t.Errorf("with half a set, the users may publish on %s", got)
	}
	if after, err := c.readUsers(t.Context()); err != nil || after.whole() || !after.settings.Partial {
		t.Errorf("half a set is called a whole one: %+v, %v", after.settings, err)
	}
	if state.UsersBegun() {
		t.Error("a process that has seen the set before has none")
	}
	late := etcd.open().watchState(t).wait("the state", func(s *State) bool { return true })
	if late.Users() != nil || !late.UsersBegun() {
		t.Errorf("to a process that begins, half a set is %v", late.Users())
	}

	if n := c.putUsers(t, peopleOf(n, 2)); n != userOps+50 {
		t.Errorf("the second writer wrote %d", n)
	}
	seen.wait("the second set", func(s *State) bool { return s.Users().Generation > 1 })
	for _, s := range seen.all() {
		if s.Users() == nil {
			continue
		}
		if len(s.Users().Users) != n {
			t.Fatalf("a state has %d users", len(s.Users().Users))
		}
		want := s.Users().Users[0].Permissions.Publish.Allow[0]
		for _, u := range s.Users().Users {
			if got := u.Permissions.Publish.Allow[0]; got != want {
				t.Fatalf("a state has users of two sets: %s and %s", want, got)
			}
		}
	}
	// A key that somebody removes is not a set without that user.
	_, err = c.etcd.Delete(t.Context(), c.userKey("user-1"))
	testutil.Must(t, err)
	testutil.Must(t, c.DeleteTopic(t.Context(), "later", "", client))
	state = seen.wait("what was deleted later", func(s *State) bool { return s.Topic("later") == nil })
	if len(state.Users().Users) != n {
		t.Errorf("%d users are left", len(state.Users().Users))
	}
	if n := c.putUsers(t, peopleOf(n, 2)); n != 1 {
		t.Errorf("%d users were written to mend it", n)
	}
}

// TestAnUnreadableUserIsLeftOut: a user of a later version may have fewer rights than this one
// understands. It is named, and the others are there.
func TestAnUnreadableUserIsLeftOut(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().watchState(t)
	c.putUsers(t, peopleOf(5, 1))
	seen.wait("the users", func(s *State) bool { return s.Users() != nil })
	for name, value := range map[string]string{
		"user-0": "{", "user-1": `{"v":2,"name":"user-1"}`, "user-2": `{"v":1,"name":"user-2","onlyOnMondays":true}`, "user-3": `{"v":1,"name":"user-4"}`,
	} {
		_, err := c.etcd.Put(t.Context(), c.userKey(name), value)
		testutil.Must(t, err)
	}
	state := seen.wait("one right user", func(s *State) bool { return len(s.Users().Users) == 1 })
	if got := state.Users(); got.Users[0].Name != "user-4" || len(got.Wrong) != 4 || got.Wrong[2].User != "user-2" {
		t.Errorf("the users are %+v", got)
	}
}

// TestUsersBeyondTheBoundsAreRefused: before anything of them is written.
func TestUsersBeyondTheBoundsAreRefused(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).open()
	large := func(name string) identity.User { // close to the largest
		u := identity.User{Name: name, Permissions: &identity.Permissions{Publish: &identity.Subjects{}}}
		for i := range 500 {
			u.Permissions.Publish.Allow = append(u.Permissions.Publish.Allow, fmt.Sprintf("%d.%s", i, strings.Repeat("a", 1000)))
		}
		return u
	}
	tooLarge := large("ann")
	tooLarge.Permissions.Subscribe = tooLarge.Permissions.Publish
	many := identity.Document{}
	for i := range 17 {
		many.Users = append(many.Users, large(fmt.Sprint("user-", i)))
	}
	for why, doc := range map[string]*identity.Document{
		`user "ann": its description has`: {Users: []identity.User{tooLarge}},
		"at most 8388608 can be kept":     &many,
		"at most 10000 are possible":      peopleOf(identity.MaxUsers+1, 1),
		"the default permissions have":    {Default: tooLarge.Permissions},
		"has the same name of a":          {Users: append(peopleOf(1, 1).Users, identity.User{Name: "eve", Certificates: []string{"dns:0"}})},
	} {
		_, err := c.PutUsers(t.Context(), doc)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if got, err := c.ReadUsers(t.Context()); err != nil || got != nil {
		t.Errorf("there are users: %v, %v", got, err)
	}
	many.Users = many.Users[:16]
	if n := c.putUsers(t, &many); n != 16 {
		t.Errorf("%d large users were written", n)
	}
}

// TestTwoWritersDoNotMixTheirUsers: the second one has read before the first one wrote.
func TestTwoWritersDoNotMixTheirUsers(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).open()
	before, err := c.readUsers(t.Context())
	testutil.Must(t, err)
	c.putUsers(t, peopleOf(3, 1))
	var stale *StaleError
	if err := c.writeUsers(t.Context(), before.revision, usersValue{Generation: 1}, batchesOf(nil)); !errors.As(err, &stale) {
		t.Errorf("the second writer: %v", err)
	}
}

// TestRestoredUsersAreThoseOfTheBackup: a broker that goes on over a restore follows the users of
// the backup.
func TestRestoredUsersAreThoseOfTheBackup(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a := etcd.openBroker(&memory{})
	seen := a.watchState(t)
	a.join(t, modern("a")).incarnation()
	a.putUsers(t, peopleOf(3, 1))
	seen.await("the users", func(s *State) bool { return s.Users() != nil })
	backup := etcd.Backup()
	a.putUsers(t, peopleOf(2, 2))
	seen.await("the later users", func(s *State) bool { return len(s.Users().Users) == 2 })
	etcd.Restore(backup)
	etcd.Start()
	state := seen.await("the users of the backup", func(s *State) bool { return s.Generation == 1 && len(s.Users().Users) == 3 })
	if got := state.Users().Users[0].Permissions.Publish.Allow[0]; got != "v1" {
		t.Errorf("they may publish on %s", got)
	}
}

// TestTheLastUsersAreKeptInAFile: the file shows verifiers to its owner only, and half a file is
// never read.
func TestTheLastUsersAreKeptInAFile(t *testing.T) {
	t.Parallel()
	dir := UsersDir(t.TempDir())
	if s, err := dir.Load(); s != nil || err != nil {
		t.Errorf("there are users: %v, %v", s, err)
	}
	want := &UserSet{Document: *peopleOf(3, 1), Generation: 7}
	testutil.Must(t, dir.Save(&UserSet{Document: *peopleOf(2, 0)}))
	testutil.Must(t, dir.Save(want))
	if got, err := dir.Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v, %v", got, err)
	}
	path := filepath.Join(string(dir), usersFile)
	if about, err := os.Stat(path); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", about.Mode(), err)
	}
	testutil.Must(t, os.WriteFile(path, []byte(`{"v":1,"docu`), 0o600))
	if s, err := dir.Load(); s != nil || err == nil {
		t.Errorf("half a file was loaded: %v", s)
	}
	testutil.Must(t, dir.Save(nil))
	if s, err := dir.Load(); s != nil || err != nil {
		t.Errorf("there are users: %v, %v", s, err)
	}
}

// TestWhereVerifiersComeFromIsNoted: it is read as it was written, and changes no user. The change
// of one user of 10,000 writes little, and nothing is left when all are gone.
func TestWhereVerifiersComeFromIsNoted(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	had := map[string]string{}
	note := func(from map[string]string) {
		t.Helper()
		testutil.Must(t, c.PutVerifiersFrom(t.Context(), had, from))
		if got, err := c.VerifiersFrom(t.Context()); err != nil || !maps.Equal(got, from) {
			t.Errorf("of %d entries %d are read, %v", len(from), len(got), err)
		}
		had = maps.Clone(from)
	}
	note(nil)
	doc := peopleOf(3, 1)
	c.putUsers(t, doc)
	from := map[string]string{"user-1": "a", "a/b ä": "b"}
	note(from)
	if set, err := c.ReadUsers(t.Context()); err != nil || !reflect.DeepEqual(&set.Document, doc) || set.Wrong != nil {
		t.Errorf("the users are %+v, %v", set, err)
	}
	for i := range 10_000 {
		from[fmt.Sprint("user-", i)] = "a digest of bytes"
	}
	note(from)
	before, err := c.etcd.Get(t.Context(), c.prefix, clientv3.WithPrefix())
	testutil.Must(t, err)
	from["user-7"] = "another one"
	note(from)
	after, err := c.etcd.Get(t.Context(), c.prefix, clientv3.WithPrefix(), clientv3.WithMinModRev(before.Header.Revision+1))
	testutil.Must(t, err)
	if len(after.Kvs) != 1 || len(after.Kvs[0].Value) > 4<<10 {
		t.Errorf("one change writes %d keys", len(after.Kvs))
	}
	_, err = c.etcd.Put(t.Context(), c.verifiersKey("user-7"), `{"v": 9}`)
	testutil.Must(t, err)
	if got, err := c.VerifiersFrom(t.Context()); err != nil || len(got) >= len(from) || got["user-7"] != "" || got["user-8"] == "" {
		t.Errorf("beside a piece of another version %d entries are read, %v", len(got), err)
	}
	note(nil)
	left, err := c.etcd.Get(t.Context(), c.verifiersPrefix(), clientv3.WithPrefix())
	testutil.Must(t, err)
	if len(left.Kvs) > 0 {
		t.Errorf("%d keys are left", len(left.Kvs))
	}
}
