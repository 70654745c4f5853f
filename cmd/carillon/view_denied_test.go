package main

import (
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
	dev, ann, bot := annAndBot(t, []identity.Role{identity.Operator}, "$CARILLON.API.VIEW.INFO")
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders" + ann)
	s.does("view create count orders --value n=count()" + ann)
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
			out, said, code := s.types("", "view "+c.line+" --timeout 10m"+bot)
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
