package env_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func load(t *testing.T, dir string) *env.TLS {
	t.Helper()
	got, err := env.LoadTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// handshake connects the two configurations over loopback and returns the result of each side.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
		tlsConn := tls.Server(conn, server)
		err = tlsConn.Handshake()
		if err == nil {
			_, err = tlsConn.Write([]byte("x"))
		}
		done <- err
	}()
	conn, err := net.DialTimeout("tcp", listener.Addr().String(), testutil.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testutil.Patience))
	tlsConn := tls.Client(conn, client)
	clientErr = tlsConn.Handshake()
	if clientErr == nil {
		// With TLS 1.3 the client sees a server's refusal at its first read.
		_, clientErr = tlsConn.Read(make([]byte, 1))
	}
	conn.Close()
	return <-done, clientErr
}

func mustConnect(t *testing.T, server, client *tls.Config) {
	t.Helper()
	if s, c := handshake(t, server, client); s != nil || c != nil {
		t.Fatalf("the handshake failed: server %v, client %v", s, c)
	}
}

func TestBothSidesProveThemselves(t *testing.T) {
	ca, stranger := testca.New(t), testca.New(t)
	dir, strange := t.TempDir(), t.TempDir()
	ca.Issue(t, dir)
	// The stranger trusts our CA, but our CA did not sign its certificate.
	stranger.Issue(t, strange, testca.Options{Trust: []*testca.CA{ca, stranger}})
	ours, theirs := load(t, dir), load(t, strange)

	mustConnect(t, ours.Server(), ours.Client("localhost"))
	mustConnect(t, ours.Server(), ours.Client("127.0.0.1"))
	if s, c := handshake(t, ours.Server(), theirs.Client("localhost")); s == nil || c == nil {
		t.Errorf("a stranger's certificate was accepted: server %v, client %v", s, c)
	}
	if _, c := handshake(t, theirs.Server(), ours.Client("localhost")); c == nil {
		t.Error("a client believed a stranger")
	}
	if _, c := handshake(t, ours.Server(), ours.Client("elsewhere.example")); c == nil {
		t.Error("a client believed a server of another name")
	}
	anonymous := ours.Client("localhost")
	anonymous.Certificates = nil
	if s, _ := handshake(t, ours.Server(), anonymous); s == nil {
		t.Error("a client without certificate was accepted")
	}
	old := ours.Client("localhost")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if s, _ := handshake(t, ours.Server(), old); s == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// TestRenewalNeedsNoRestart replaces a CA in three steps under load: trust both, sign with the new
// one, remove the old one. The listener's configuration is created once, before.
func TestRenewalNeedsNoRestart(t *testing.T) {
	before, after := testca.New(t), testca.New(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	before.Issue(t, serverDir, testca.Options{NotAfter: end})
	before.Issue(t, clientDir, testca.Options{NotAfter: end})
	server, client := load(t, serverDir), load(t, clientDir)
	listener := server.Server()
	mustConnect(t, listener, client.Client("localhost"))

	before.Issue(t, serverDir, testca.Options{NotAfter: end, Trust: []*testca.CA{before, after}})
	before.Issue(t, clientDir, testca.Options{NotAfter: end, Trust: []*testca.CA{before, after}})
	mustConnect(t, listener, client.Client("localhost"))

	later := end.Add(time.Hour)
	after.Issue(t, serverDir, testca.Options{NotAfter: later, Trust: []*testca.CA{before, after}})
	mustConnect(t, listener, client.Client("localhost"))
	if got := server.NotAfter(); !got.Equal(later) {
		t.Errorf("NotAfter is %v, want the new certificate's %v", got, later)
	}
	after.Issue(t, clientDir, testca.Options{NotAfter: later})
	mustConnect(t, listener, client.Client("localhost"))

	after.Issue(t, serverDir, testca.Options{NotAfter: later})
	before.Issue(t, clientDir, testca.Options{NotAfter: later, Trust: []*testca.CA{after}})
	if s, _ := handshake(t, listener, client.Client("localhost")); s == nil {
		t.Error("a certificate of the forgotten CA was accepted")
	}
}

func TestABrokenRenewalIsCountedAndTheLastGoodOneStays(t *testing.T) {
	ca := testca.New(t)
	dir := t.TempDir()
	ca.Issue(t, dir)
	node := load(t, dir)
	listener := node.Server()
	good, err := os.ReadFile(filepath.Join(dir, env.KeyFile))
	if err != nil {
		t.Fatal(err)
	}

	testca.Replace(t, dir, env.KeyFile, []byte("half a k"))
	mustConnect(t, listener, node.Client("localhost"))
	mustConnect(t, listener, node.Client("localhost"))
	count, last := node.ReloadFailures()
	if count != 1 || last == nil || !strings.Contains(last.Error(), filepath.Join(dir, env.KeyFile)) {
		t.Fatalf("after one broken renewal: %d failures, last %v; want one that names the key file", count, last)
	}

	if err := os.Remove(filepath.Join(dir, env.CAFile)); err != nil {
		t.Fatal(err)
	}
	mustConnect(t, listener, node.Client("localhost"))
	if count, _ := node.ReloadFailures(); count != 2 {
		t.Fatalf("a vanished CA makes %d failures, want 2", count)
	}

	testca.Replace(t, dir, env.KeyFile, good)
	testca.Replace(t, dir, env.CAFile, ca.PEM)
	mustConnect(t, listener, node.Client("localhost"))
	if count, last := node.ReloadFailures(); count != 2 || last != nil {
		t.Fatalf("after the repair: %d failures, last %v; want 2 and nil", count, last)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	ca := testca.New(t)
	for name, test := range map[string]struct {
		spoil func(dir string)
		want  []string
	}{
		"missing": {func(dir string) { os.Remove(filepath.Join(dir, env.CertFile)) }, []string{env.CertFile, "Secret"}},
		"no CA":   {func(dir string) { testca.Replace(t, dir, env.CAFile, []byte("hello")) }, []string{env.CAFile, "PEM"}},
		"foreign key": {func(dir string) {
			other := t.TempDir()
			ca.Issue(t, other)
			os.Rename(filepath.Join(other, env.KeyFile), filepath.Join(dir, env.KeyFile))
		}, []string{env.KeyFile, "made for"}},
		"huge": {func(dir string) { testca.Replace(t, dir, env.CAFile, make([]byte, 2<<20)) }, []string{env.CAFile, "larger"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ca.Issue(t, dir)
			test.spoil(dir)
			_, err := env.LoadTLS(dir)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// TestAnIdentityFromTextEqualsOneFromFiles: an identity from text works like one from files, and an
// invalid one is refused at once.
func TestAnIdentityFromTextEqualsOneFromFiles(t *testing.T) {
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	text, err := env.ParseTLS(read(env.CAFile), read(env.CertFile), read(env.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	mustConnect(t, load(t, dir).Server(), text.Client("localhost"))
	mustConnect(t, text.Server(), load(t, dir).Client("localhost"))
	if _, err := env.ParseTLS(read(env.CAFile), read(env.CertFile), []byte("garbage")); err == nil || !strings.Contains(err.Error(), env.KeyFile) {
		t.Errorf("a spoilt key: %v, want an error that names %s", err, env.KeyFile)
	}
}

// TestAServerOfAnyClients needs no CA, and accepts clients without a certificate and TLS 1.2. With
// verify it needs one, and a certificate of each client.
func TestAServerOfAnyClients(t *testing.T) {
	ca := testca.New(t)
	dir, own := t.TempDir(), t.TempDir()
	ca.Issue(t, dir)
	ca.Issue(t, own)
	bundle := filepath.Join(dir, env.CAFile)
	testutil.Must(t, os.Rename(bundle, bundle+".away"))
	if _, err := env.LoadServerTLS(dir, true); err == nil || !strings.Contains(err.Error(), env.CAFile) {
		t.Errorf("verification without a CA: %v", err)
	}
	open, err := env.LoadServerTLS(dir, false)
	testutil.Must(t, err)
	client := load(t, own).Client("localhost")
	mustConnect(t, open.Server(), client)
	client.Certificates = nil
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	mustConnect(t, open.Server(), client)

	renewed := ca.Issue(t, dir, testca.Options{NotAfter: time.Now().Add(2 * time.Hour)})
	if got := open.NotAfter(); !got.Equal(renewed.NotAfter) {
		t.Errorf("NotAfter is %v, want the new certificate's %v", got, renewed.NotAfter)
	}
	strict, err := env.LoadServerTLS(dir, true)
	testutil.Must(t, err)
	if s, _ := handshake(t, strict.Server(), client); s == nil {
		t.Error("a client without a certificate was accepted")
	}
	mustConnect(t, strict.Server(), load(t, own).Client("localhost"))

	testutil.Must(t, os.Remove(filepath.Join(dir, env.KeyFile)))
	if _, err := env.LoadServerTLS(dir, false); err == nil || !strings.Contains(err.Error(), env.KeyFile) || strings.Contains(err.Error(), env.CAFile) {
		t.Errorf("without a key: %v", err)
	}
}
