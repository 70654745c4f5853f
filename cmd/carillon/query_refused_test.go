package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAQueryWithoutTheRightToReadEndsOnce: the refusal is said once. The query does not wait for
// answers, which its --timeout allows to take longer than this test waits.
func TestAQueryWithoutTheRightToReadEndsOnce(t *testing.T) {
	ann, _, _ := command(t, "", "user", "token")
	bot, _, _ := command(t, "", "user", "token")
	text, err := json.Marshal(identity.Document{Users: []identity.User{
		{Name: "ann", Tokens: []string{valueOf(t, ann, "tokens")},
			Roles: []identity.Role{identity.Operator}},
		{Name: "bot", Tokens: []string{valueOf(t, bot, "tokens")}, Permissions: &identity.Permissions{
			Publish: &identity.Subjects{Allow: []string{"greet.>"}}}},
	}})
	testutil.Must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(file, text, 0o600))
	dev := startDev(t, "--data", t.TempDir(), "--users", file)
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --token " + valueOf(t, ann, "token ("))
	type result struct {
		said string
		code int
	}
	ended := make(chan result, 1)
	go func() {
		_, said, code := s.types("", "query orders --timeout 10m --token "+valueOf(t, bot, "token ("))
		ended <- result{said, code}
	}()
	select {
	case r := <-ended:
		if r.code != exitFailure ||
			strings.Count(r.said, `for Publish to "$CARILLON.API.SNAPSHOT.orders"`) != 1 ||
			!strings.HasPrefix(r.said, "carillon: topic orders: ") || strings.Count(r.said, "\n") != 1 {
			t.Errorf("exit code %d: %s", r.code, r.said)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("it waits for answers")
	}
}

// TestAnIncompleteAnswerIsAFailure: what can be read is printed, and the exit code tells that a
// message is too large to be read. With --count it does if that comes before the last one.
func TestAnIncompleteAnswerIsAFailure(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders")
	s.does("pub --ack orders.a", "before")
	if _, errs, code := s.types(strings.Repeat("x", 8<<20), "pub --ack orders.b"); code != 0 {
		t.Fatal(errs)
	}
	s.does("pub --ack orders.c", "behind")
	for _, c := range []struct {
		more, out string
		code      int
	}{
		{"", "before\nbehind\n", exitFailure},
		{" --filter orders.*", "before\nbehind\n", exitFailure},
		{" --count 2", "before\nbehind\n", exitFailure},
		{" --count 1", "before\n", 0},
	} {
		out, said, code := s.types("", "query orders --output raw"+c.more)
		if out != c.out || code != c.code ||
			strings.Contains(said, "the answer is incomplete: 1 offsets can't be read") != (c.code != 0) {
			t.Errorf("query%s: exit code %d, %q: %s", c.more, code, out, said)
		}
	}
}
