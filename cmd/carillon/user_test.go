package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// valueOf returns what stands behind a label in a command's output.
func valueOf(t *testing.T, out, label string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if name, value, found := strings.Cut(line, ":"); found && strings.HasPrefix(name, label) {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s in %q", label, out)
	return ""
}

// TestUsersOfAFile: what carillon user makes goes into a file, by which a broker knows its clients,
// and changes take effect while it runs.
func TestUsersOfAFile(t *testing.T) {
	t.Parallel()
	hash, errs, code := command(t, "s3cret\n", "user", "hash")
	if code != 0 {
		t.Fatal(errs)
	}
	token, _, _ := command(t, "", "user", "token")
	key, _, _ := command(t, "", "user", "nkey")
	file := filepath.Join(t.TempDir(), "users.json")
	write := func(users ...identity.User) {
		t.Helper()
		text, err := json.Marshal(identity.Document{Users: users})
		testutil.Must(t, err)
		testutil.Must(t, os.WriteFile(file+".new", text, 0o600))
		testutil.Must(t, os.Rename(file+".new", file))
	}
	ann := identity.User{Name: "ann", Passwords: []string{strings.TrimSpace(hash)}, Roles: []identity.Role{identity.Operator}}
	bot := identity.User{Name: "bot", Tokens: []string{valueOf(t, token, "tokens")}, Permissions: &identity.Permissions{Publish: &identity.Subjects{Allow: []string{"greet.>"}}}}
	keyed := identity.User{Name: "keyed", NKeys: []string{valueOf(t, key, "nkeys")}, Limits: identity.Limits{Connections: 10, Messages: 5000}}
	write(ann, bot, keyed)
	out, errs, code := command(t, "", "user", "check", file)
	if want := "ann  by password; roles operator\nbot  by token; roles publisher,subscriber\nkeyed  by nkey; roles publisher,subscriber; limits connections 10, messages 5000\n"; code != 0 || out != want {
		t.Errorf("check: %d %q %q", code, out, errs)
	}

	dev := startDev(t, "--data", t.TempDir(), "--users", file)
	defer dev.stop()
	seed := filepath.Join(t.TempDir(), "seed")
	testutil.Must(t, os.WriteFile(seed, []byte(valueOf(t, key, "seed")+"\n"), 0o600))
	for _, as := range [][]string{{"--user", "ann", "--password", "s3cret"}, {"--token", valueOf(t, token, "token (")}, {"--nkey", seed}} {
		if _, errs, code := command(t, "", append([]string{"pub", "greet.x", "hello", "--server", dev.url}, as...)...); code != 0 {
			t.Errorf("as %v: %s", as[0], errs)
		}
	}
	testutil.Eventually(t, "a wrong password is refused", func() error { // commands give up after five seconds
		_, errs, code := command(t, "", "pub", "greet.x", "hello", "--server", dev.url, "--user", "ann", "--password", "wrong")
		if code != exitFailure {
			t.Fatalf("with a wrong password: %d %q", code, errs)
		}
		if !strings.Contains(errs, "refuses these credentials") {
			return errors.New(errs)
		}
		return nil
	})
	for _, tc := range []struct {
		as   []string
		code int
	}{{[]string{"--user", "ann", "--password", "s3cret"}, 0}, {[]string{"--nkey", seed}, exitFailure}} {
		if _, errs, code := command(t, "", append([]string{"topic", "create", "orders", "--server", dev.url, "--shards", "2"}, tc.as...)...); code != tc.code || code != 0 && !strings.Contains(errs, "permissions violation") {
			t.Errorf("a Topic as %s: %d %q", tc.as[0], code, errs)
		}
	}
	revoked := make(chan error, 1)
	nc, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience), nats.Token(valueOf(t, token, "token (")), nats.NoReconnect(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { revoked <- err }))
	testutil.Must(t, err)
	defer nc.Close()
	write(ann)
	if err := <-revoked; !strings.Contains(strings.ToLower(err.Error()), "revoked") {
		t.Errorf("the connection ended: %v", err)
	}
}

func TestMistakesInUsersSayWhatToDo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(file, []byte(`{"users":[{"name":"ann","passwords":["s3cret"]}]}`), 0o600))
	for _, tc := range []struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		{"", []string{"user", "hash"}, exitFailure, "write it to standard input"},
		{strings.Repeat("x", 80), []string{"user", "hash"}, exitFailure, "more than 72 bytes"},
		{"", []string{"user", "check"}, exitUsage, "takes the path of a file"},
		{"", []string{"user", "check", file}, exitFailure, "carillon user hash"},
		{"", []string{"user", "check", file + ".missing"}, exitFailure, "no such file"},
		{"", []string{"dev", "--data", t.TempDir(), "--users", file}, exitFailure, "carillon user hash"},
		{"", []string{"dev", "--data", t.TempDir(), "--users", file, "--token", "x"}, exitUsage, "choose one"},
		{"", []string{"broker", "--name", "a", "--cluster", "a/b", "--data", t.TempDir(), "--etcd-endpoints", "http://localhost:1", "--users-from-etcd", "--token", "x"}, exitUsage, "choose one"},
		{"", []string{"pub", "a", "b", "--nkey", file}, exitFailure, "carillon user nkey"},
	} {
		if _, errs, code := command(t, tc.stdin, tc.args...); code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: %d %q, want %q", tc.args, code, errs, tc.want)
		}
	}
}
