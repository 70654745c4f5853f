package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// annAndBot runs brokers with two users: ann has roles, and bot may publish to some subjects. It
// returns the flags by which a command is one of them. The caller stops the brokers.
func annAndBot(t *testing.T, roles []identity.Role, may ...string) (dev *child, ann, bot string) {
	t.Helper()
	a, _, _ := command(t, "", "user", "token")
	b, _, _ := command(t, "", "user", "token")
	text, err := json.Marshal(identity.Document{Users: []identity.User{
		{Name: "ann", Tokens: []string{valueOf(t, a, "tokens")}, Roles: roles},
		{Name: "bot", Tokens: []string{valueOf(t, b, "tokens")},
			Permissions: &identity.Permissions{Publish: &identity.Subjects{Allow: may}}},
	}})
	testutil.Must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(file, text, 0o600))
	dev = startDev(t, "--data", t.TempDir(), "--users", file)
	return dev, " --token " + valueOf(t, a, "token ("), " --token " + valueOf(t, b, "token (")
}

// TestAQueryWithoutTheRightToReadEndsOnce: the refusal is said once. The query does not wait for
// answers, which its --timeout allows to take longer than this test waits.
func TestAQueryWithoutTheRightToReadEndsOnce(t *testing.T) {
	t.Parallel()
	dev, ann, bot := annAndBot(t, []identity.Role{identity.Operator}, "greet.>")
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders" + ann)
	type result struct {
		said string
		code int
	}
	ended := make(chan result, 1)
	go func() {
		_, said, code := s.types("", "query orders --timeout 10m"+bot)
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

// TestAQueryWithTheRightToOneShardOfTwo: what is printed before the refusal consists of whole
// lines, and no file is left, since that would lack the other shard.
func TestAQueryWithTheRightToOneShardOfTwo(t *testing.T) {
	t.Parallel()
	dev, ann, bot := annAndBot(t, []identity.Role{identity.Operator, identity.Publisher},
		"$CARILLON.API.SNAPSHOT.orders", "$CARILLON.API.RECORDS.orders.0")
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 2" + ann)
	for n := range 8 {
		s.does(fmt.Sprintf("pub --ack orders.%d%s", n, ann), `{"n":1}`)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "orders.parquet")
	for _, more := range []string{
		"", "--follow", "--where json.n==1", "--follow --where json.n==1", "--aggregate count()",
		"--output-file " + file, "--aggregate count() --output-file " + file,
	} {
		out, said, code := s.types("", "query orders "+more+" --timeout 10m"+bot)
		if code != exitFailure || strings.Count(said, "carillon: topic orders: ") != 1 ||
			strings.Count(said, `"$CARILLON.API.RECORDS.orders.1"`) != 1 ||
			strings.Contains(more, "aggregate") && out != "" {
			t.Errorf("query %s: exit code %d, %q: %s", more, code, out, said)
		}
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("query %s prints %q", more, line)
			}
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v are left (%v)", left, err)
	}
}

// TestAnIncompleteAnswerIsAFailure: what can be read is printed, and the exit code tells that a
// message is too large to be read. With --count it does if that comes before the last one.
func TestAnIncompleteAnswerIsAFailure(t *testing.T) {
	t.Parallel()
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
		{" --filter orders.a,orders.c", "before\nbehind\n", 0}, // it is not asked for
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

// TestAQueryShowsWhatItsUserMaySubscribeTo: messages, results and files have no others, and nothing
// is said of these. Who may subscribe to none is told so.
func TestAQueryShowsWhatItsUserMaySubscribeTo(t *testing.T) {
	tokens := map[string]string{}
	var users []identity.User
	for name, allow := range map[string][]string{"ann": nil, "bot": {"_INBOX.>", "orders.eu.*"}, "dan": {"_INBOX.>", "orders.none"}, "eve": {"_INBOX.>", "bills.>"}} {
		out, _, _ := command(t, "", "user", "token")
		tokens[name] = " --token " + valueOf(t, out, "token (")
		u := identity.User{Name: name, Tokens: []string{valueOf(t, out, "tokens")}}
		if allow == nil {
			u.Roles = []identity.Role{identity.Operator}
		} else {
			u.Permissions = &identity.Permissions{Subscribe: &identity.Subjects{Allow: allow}}
		}
		users = append(users, u)
	}
	text, err := json.Marshal(identity.Document{Users: users})
	testutil.Must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(file, text, 0o600))
	dev := startDev(t, "--data", t.TempDir(), "--users", file)
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 2" + tokens["ann"])
	for n := range 12 {
		region := []string{"eu", "us", "asia"}[n%3]
		s.does(fmt.Sprintf("pub --ack orders.%s.%d%s", region, n, tokens["ann"]), fmt.Sprintf(`{"n":%d,"region":%q}`, n, region))
	}
	s.does("pub --ack orders.us.note"+tokens["ann"], "no JSON")
	for _, c := range []struct{ user, more, want, says string }{
		{"ann", "", "eu us asia eu us asia eu us asia eu us asia note", "13 messages"},
		{"bot", "", "eu eu eu eu", "4 messages"},
		{"bot", "--where json.n>=6", "eu eu", "4 messages"},
		{"bot", "--filter orders.>", "eu eu eu eu", "4 messages"},
		{"bot", "--aggregate count()", `{"count()":4}`, "4 messages"},
		{"dan", "", "", "0 of 0 messages"}, // there is none yet
		{"dan", "--where true", "", "0 of 0 messages"},
		{"ann", "--aggregate count()", `{"count()":13}`, "13 messages"},
		{"bot", "--aggregate count(),max(json.n) --where json.n>1", `{"count()":3,"max(json.n)":9}`, "4 messages"},
	} {
		out, said, code := s.types("", "query orders "+c.more+tokens[c.user])
		ok := code == 0 && strings.Contains(said, c.says) && (c.user != "bot" || !strings.Contains(said, "judged"))
		if strings.HasPrefix(c.want, "{") {
			ok = ok && strings.TrimSpace(out) == c.want
		} else {
			ok = ok && strings.Count(out, "\n") == len(strings.Fields(c.want)) &&
				(c.user != "bot" || strings.Count(out, `"subject":"orders.eu.`) == strings.Count(out, "\n"))
		}
		if !ok {
			t.Errorf("%s asks for %q: exit code %d\n%s%s", c.user, c.more, code, out, said)
		}
	}
	for _, more := range []string{"", "--where true", "--aggregate count()", "--follow"} {
		out, said, code := s.types("", "query orders "+more+tokens["eve"])
		if code != exitFailure || out != "" || !strings.Contains(said, `user "eve" may read none of it`) {
			t.Errorf("eve asks for %q: exit code %d\n%s%s", more, code, out, said)
		}
	}
}
