package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/bench"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestCommandsBeginWithTheHandshake: with --tls-first they reach a server that says nothing in
// plaintext, and without it they don't.
func TestCommandsBeginWithTheHandshake(t *testing.T) {
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	files, err := env.LoadServerTLS(dir, false)
	testutil.Must(t, err)
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{
		ServerID: "S", ServerName: "test", Version: "2.12.0", Profile: profile,
		TLS: &session.TLS{Config: files.Server(), First: session.FirstYes},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- hub.Serve(listener) }()
	t.Cleanup(func() {
		hub.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	ca := filepath.Join(dir, "ca.crt")
	to := " --server tls://" + listener.Addr().String()
	if _, errs, code := command(t, "", strings.Fields("pub a b --tls-ca "+ca+to)...); code != 1 || !strings.Contains(errs, "connect") {
		t.Errorf("without --tls-first: %d %s", code, errs)
	}
	if _, errs, code := command(t, "", strings.Fields("pub a b --tls-first --tls-ca "+ca+to)...); code != 0 {
		t.Errorf("pub: %d %s", code, errs)
	}
	// The sample Job trusts the CAs of a file that need not be there.
	t.Setenv("SSL_CERT_FILE", ca)
	if out, errs, code := command(t, "", strings.Fields("bench fanout --subscribers 3 --rounds 1 --warmup 0s --duration 100ms --tls-first"+to)...); code != 0 {
		t.Errorf("bench: %d %s %s", code, out, errs)
	}
}

// TestBenchMeasuresTLSWithAClientThatHasIt: the light client has none, so it is the default without
// TLS only. Whoever asks for it gets it.
func TestBenchMeasuresTLSWithAClientThatHasIt(t *testing.T) {
	for what, c := range map[string]struct {
		flags benchFlags
		want  string
	}{
		"plaintext":             {benchFlags{server: "nats://a"}, bench.ClientLight},
		"TLS":                   {benchFlags{server: "tls://a"}, bench.ClientNATS},
		"TLS of another server": {benchFlags{server: "nats://a", against: []string{"b=nats://b,c=tls://c"}}, bench.ClientNATS},
		"a CA":                  {benchFlags{server: "nats://a", tls: tlsFlags{ca: "ca.crt"}}, bench.ClientNATS},
		"the handshake first":   {benchFlags{server: "nats://a", tls: tlsFlags{first: true}}, bench.ClientNATS},
		"the light one":         {benchFlags{server: "tls://a", client: bench.ClientLight}, bench.ClientLight},
	} {
		if got := c.flags.clientOr(bench.ClientLight); got != c.want {
			t.Errorf("%s is measured with %s, want %s", what, got, c.want)
		}
	}
}
