package push

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func secretService(t *testing.T) (*Service, string) {
	dir := t.TempDir()
	s := New(Config{Cluster: "shop/main", Allowed: loopback, Secrets: dir})
	t.Cleanup(s.Close)
	return s, dir
}

// keep writes a file as a kubelet does: the name is exchanged.
func keep(t *testing.T, dir, name, value string, changed time.Time) {
	t.Helper()
	file := filepath.Join(dir, name)
	testutil.Must(t, os.WriteFile(file+".new", []byte(value), 0o600))
	testutil.Must(t, os.Chtimes(file+".new", changed, changed))
	testutil.Must(t, os.Rename(file+".new", file))
}

func TestHeadersFromSecretsAreReadAgainWhenTheyChange(t *testing.T) {
	s, dir := secretService(t)
	var mu sync.Mutex
	var got []string
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("Authorization"))
	})
	spec := to(server.URL)
	spec.Push.Headers = []coordination.PushHeader{{Name: "Authorization", File: "token_key"}, {Name: "X-Tenant", Value: "9"}}
	now := time.Now()
	keep(t, dir, "token_key", "Bearer a\n", now)
	o := subscribe(t, s, spec)
	o.give("a")
	o.awaitAcks(1)
	keep(t, dir, "token_key", "Bearer b\n", now.Add(time.Second))
	o.give("a")
	o.awaitAcks(2)
	if len(got) != 2 || got[0] != "Bearer a" || got[1] != "Bearer b" || spec.Push.Headers[0].Value != "" {
		t.Errorf("the endpoint got %q", got)
	}
}

func TestAMissingValueWaitsAndCountsNothing(t *testing.T) {
	s, dir := secretService(t)
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	for text, prepare := range map[string]func(file string){
		"Secret token needs the key key and the label": func(string) {},
		"is not a line of 1 to":                        func(file string) { keep(t, dir, file, "a\nb", time.Now()) },
	} {
		testutil.Must(t, os.RemoveAll(filepath.Join(dir, "token_key")))
		spec := to(server.URL)
		spec.Ack.MaxDeliver = 1
		spec.Push.Headers = []coordination.PushHeader{{Name: "Authorization", File: "token_key"}}
		prepare("token_key")
		o := subscribe(t, s, spec)
		o.give("a")
		testutil.EventuallyTrue(t, "the value is missing", func() bool {
			i := o.endpoint.Info()
			return i.Reason == reasonMissing && strings.Contains(i.Trouble, text)
		})
		if o.attempts[1] != 0 {
			t.Error("it counted as an attempt")
		}
	}
	spec := to(server.URL)
	spec.Push.Headers = []coordination.PushHeader{{Name: "Authorization", File: "late_key"}}
	o := subscribe(t, s, spec)
	o.give("a")
	testutil.EventuallyTrue(t, "the value is missing", func() bool { return o.endpoint.Info().Reason == reasonMissing })
	keep(t, dir, "late_key", "Bearer a", time.Now())
	o.awaitAcks(1)
	testutil.EventuallyTrue(t, "nothing is missing", func() bool { return o.endpoint.Info().Reason == "" })
}

func TestAnEndpointIsKnownByItsOwnCA(t *testing.T) {
	s, dir := secretService(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = quiet
	t.Cleanup(server.Close)
	server.TLS.MinVersion = tls.VersionTLS12
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	keep(t, dir, "ca_crt", string(ca), time.Now())
	keep(t, dir, "ca_bad", "nothing", time.Now())
	for what, c := range map[string]struct {
		tls  *coordination.PushTLS
		want string // of the trouble; empty: it is acknowledged
	}{
		"the system's CAs": {nil, "certificate"},
		"its own":          {&coordination.PushTLS{CA: "ca_crt"}, ""},
		"its own name":     {&coordination.PushTLS{CA: "ca_crt", ServerName: "example.com"}, ""},
		"another name":     {&coordination.PushTLS{CA: "ca_crt", ServerName: "other.org"}, "other.org"},
		"no certificate":   {&coordination.PushTLS{CA: "ca_bad"}, "is no certificate in PEM"},
	} {
		spec := to(server.URL)
		spec.Push.TLS = c.tls
		o := subscribe(t, s, spec)
		o.give("a")
		if c.want == "" {
			o.awaitAcks(1)
			continue
		}
		testutil.EventuallyTrue(t, "an endpoint is not known by "+what, func() bool { return strings.Contains(o.endpoint.Info().Trouble, c.want) })
		if len(o.acked) > 0 {
			t.Errorf("%s: it was acknowledged", what)
		}
	}
}
