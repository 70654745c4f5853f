//go:build linux || darwin

package push

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAPipeInPlaceOfASecret is reported, and nothing waits for whoever might write to it.
func TestAPipeInPlaceOfASecret(t *testing.T) {
	s, dir := secretService(t)
	testutil.Must(t, syscall.Mkfifo(filepath.Join(dir, "token_key"), 0o600))
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	spec := to(server.URL)
	spec.Push.Headers = []coordination.PushHeader{{Name: "Authorization", File: "token_key"}}
	o := subscribe(t, s, spec)
	o.give("a")
	testutil.EventuallyTrue(t, "the pipe is reported", func() bool {
		i := o.endpoint.Info()
		return i.Reason == reasonMissing && strings.Contains(i.Trouble, "is a pipe: give a regular file")
	})
}
