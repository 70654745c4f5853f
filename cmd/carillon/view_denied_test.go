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

// TestRequestsAboutViewsThatAreDeniedEndAtOnce: the refusal is said once, with the subject, and no
// answer is waited for, which --timeout allows to take longer than this test waits. A View is shown
// without its values.
func TestRequestsAboutViewsThatAreDeniedEndAtOnce(t *testing.T) {
	t.Parallel()
	ann, _, _ := command(t, "", "user", "token")
	bot, _, _ := command(t, "", "user", "token")
	text, err := json.Marshal(identity.Document{Users: []identity.User{
		{Name: "ann", Tokens: []string{valueOf(t, ann, "tokens")},
			Roles: []identity.Role{identity.Operator}},
		{Name: "bot", Tokens: []string{valueOf(t, bot, "tokens")}, Permissions: &identity.Permissions{
			Publish: &identity.Subjects{Allow: []string{"$CARILLON.API.VIEW.INFO"}}}},
	}})
	testutil.Must(t, err)
	file := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(file, text, 0o600))
	dev := startDev(t, "--data", t.TempDir(), "--users", file)
	defer dev.stop()
	s := shell{t, dev.url}
	token := " --token " + valueOf(t, ann, "token (")
	s.does("topic create orders" + token)
	s.does("view create count orders --value n=count()" + token)
	for _, c := range []struct {
		line, request string
		code          int
	}{
		{"show count", "GET", 0},
		{"get count", "GET", exitFailure},
		{"list", "LIST", exitFailure},
		{"update count orders --value n=count()", "UPDATE", exitFailure},
	} {
		type result struct {
			out, said string
			code      int
		}
		ended := make(chan result, 1)
		go func() {
			out, said, code := s.types("", "view "+c.line+" --timeout 10m --token "+valueOf(t, bot, "token ("))
			ended <- result{out, said, code}
		}()
		select {
		case r := <-ended:
			why := r.said
			if c.code == 0 {
				why = r.out
			}
			if r.code != c.code || !strings.Contains(why, "the user lacks a right that this takes") ||
				strings.Count(r.out+r.said, `for Publish to "$CARILLON.API.VIEW.`+c.request+`"`) != 1 ||
				c.code == 0 && (r.said != "" || !strings.HasPrefix(r.out, "View ") || !strings.Contains(r.out, "\nThe present values can't be had: ")) {
				t.Errorf("view %s: exit code %d\n%s%s", c.line, r.code, r.out, r.said)
			}
		case <-time.After(testutil.Patience):
			t.Fatalf("view %s waits for an answer", c.line)
		}
	}
}
