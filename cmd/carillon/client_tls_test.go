package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// serveTLS serves clients with a certificate that a new CA signed, and returns the folder with its
// files and a server's address. With verify clients need a certificate of the same CA.
func serveTLS(t *testing.T, first session.First, verify bool) (dir, server string) {
	t.Helper()
	dir = t.TempDir()
	testca.New(t).Issue(t, dir)
	files, err := env.LoadServerTLS(dir, verify)
	testutil.Must(t, err)
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	hub := session.NewHub(session.Config{
		ServerID: "S", ServerName: "test", Version: "2.12.0", Profile: profile,
		TLS: &session.TLS{Config: files.Server(), First: first},
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
	return dir, listener.Addr().String()
}

// TestCommandsBeginWithTheHandshake: with --tls-first they reach a server that says nothing in
// plaintext, and without it they don't.
func TestCommandsBeginWithTheHandshake(t *testing.T) {
	dir, server := serveTLS(t, session.FirstYes, false)
	ca := filepath.Join(dir, "ca.crt")
	to := " --server tls://" + server
	if _, errs, code := command(t, "", strings.Fields("pub a b --tls-ca "+ca+to)...); code != 1 || !strings.Contains(errs, "connect") {
		t.Errorf("without --tls-first: %d %s", code, errs)
	}
	if _, errs, code := command(t, "", strings.Fields("pub a b --tls-first --tls-ca "+ca+to)...); code != 0 {
		t.Errorf("pub: %d %s", code, errs)
	}
	// The sample Job trusts the CAs of a file that need not be there.
	t.Setenv("SSL_CERT_FILE", ca)
	if out, errs, code := command(t, "", strings.Fields("bench fanout --subscribers 3 --rounds 1 --warmup 0s --duration 100ms --drain-timeout 60s --tls-first"+to)...); code != 0 {
		t.Errorf("bench: %d %s %s", code, out, errs)
	}
}

// TestTheLightClientHasACertificate: where clients need one, the benchmark measures with it, and
// fails without.
func TestTheLightClientHasACertificate(t *testing.T) {
	dir, server := serveTLS(t, session.FirstNo, true)
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, certificate := " --tls-ca "+file("ca.crt"), " --tls-cert "+file("tls.crt")+" --tls-key "+file("tls.key")
	for _, line := range []string{
		"bench forward --client light --groups 2 --publishers 2 --rate 20 --warmup 0s --duration 500ms",
		"bench fanout --client light --subscribers 5 --messages 2 --rounds 2 --warmup 0s --duration 100ms",
	} {
		for _, scheme := range []string{"tls://", "nats://"} { // the server asks for TLS, too
			to := " --server " + scheme + server
			_, found := runBench(t, line+ca+certificate+to)
			if m := found.Results[0].Measured[0]; m.Deliveries.Received == 0 || m.Deliveries.Received != m.Deliveries.Expected {
				t.Errorf("%s%s: %+v", line, to, m.Deliveries)
			}
		}
		if out, errs, code := command(t, "", strings.Fields(line+" --wait 100ms"+ca+" --server tls://"+server)...); code == 0 {
			t.Errorf("%s: without a certificate: %s %s", line, out, errs)
		}
	}
}
