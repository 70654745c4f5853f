package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestDevWithTLS keeps its CA and its certificate, serves clients that trust it, and its commands
// say what to do otherwise.
func TestDevWithTLS(t *testing.T) {
	data := t.TempDir()
	ca := filepath.Join(data, "tls", "ca.crt")
	pages := testutil.FreeAddress(t)
	var files [2]string
	for life := range files {
		dev := startDev(t, "--data", data, "--tls", "--http-listen", pages)
		for _, url := range []string{dev.url, strings.Replace(dev.url, "tls://127.0.0.1", "nats://localhost", 1)} {
			nc, err := nats.Connect(url, nats.RootCAs(ca), nats.Timeout(testutil.Patience))
			if err != nil {
				t.Fatalf("life %d: %s: %v", life, url, err)
			}
			defer nc.Close()
		}
		if _, errs, code := command(t, "", "pub", "a", "b", "--server", dev.url, "--tls-ca", ca); code != 0 {
			t.Errorf("pub: %d %s", code, errs)
		}
		other := t.TempDir()
		testca.New(t).Issue(t, other)
		strange := filepath.Join(other, "ca.crt")
		for _, tc := range []struct{ args, want string }{
			{"pub a b --server " + dev.url, "give its file with --tls-ca"},
			{"pub a b --server " + strings.Replace(dev.url, "tls:", "nats:", 1), "give its file with --tls-ca"},
			{"pub a b --tls-ca " + strange + " --server " + dev.url, "did not sign the server's certificate"},
			{"pub a b --tls-ca " + filepath.Join(data, "nothing") + " --server " + dev.url, "--tls-ca: open"},
			{"pub a b --tls-cert " + strange + " --server " + dev.url, "give --tls-cert and --tls-key"},
			{"bench forward --groups 1 --wait 2s --server " + dev.url, "give its file with --tls-ca"},
		} {
			if _, errs, code := command(t, "", strings.Fields(tc.args)...); code == 0 || !strings.Contains(errs, tc.want) {
				t.Errorf("carillon %s: %d %s, want %q", tc.args, code, errs, tc.want)
			}
		}
		if out, errs, code := command(t, "", strings.Fields("bench forward --groups 1 --warmup 100ms --duration 200ms --drain-timeout 60s --tls-ca "+ca+" --server "+dev.url)...); code != 0 {
			t.Errorf("bench: %d %s %s", code, out, errs)
		}
		var connz struct {
			Connections []struct {
				Version string `json:"tls_version"`
				Cipher  string `json:"tls_cipher_suite"`
			} `json:"connections"`
		}
		answer, err := http.Get("http://" + pages + "/connz")
		testutil.Must(t, err)
		testutil.Must(t, json.NewDecoder(answer.Body).Decode(&connz))
		testutil.Must(t, answer.Body.Close())
		if len(connz.Connections) == 0 || connz.Connections[0].Version != "1.3" || !strings.HasPrefix(connz.Connections[0].Cipher, "TLS_") {
			t.Errorf("/connz shows %+v", connz)
		}
		if rest := dev.end(); !strings.Contains(rest, "--tls-ca "+ca) {
			t.Errorf("it does not say how to connect: %s", rest)
		}
		for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
			text, err := os.ReadFile(filepath.Join(data, "tls", name))
			testutil.Must(t, err)
			files[life] += string(text)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(data, "tls", "tls.crt"), filepath.Join(data, "tls", "tls.key"))
	testutil.Must(t, err)
	if bytes.Equal(pair.Leaf.RawSubject, pair.Leaf.RawIssuer) {
		t.Error("the certificate seems to have signed itself")
	}
	if files[0] != files[1] {
		t.Error("the second life has other certificates")
	}
}

// TestDevClustersWithTLS: all brokers share the certificate, and any of them takes a client that
// knows one.
func TestDevClustersWithTLS(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dev := startDev(t, "--data", data, "--tls", "--brokers", "2")
	for _, url := range strings.Split(dev.url, ",") {
		nc, err := nats.Connect(url, nats.RootCAs(filepath.Join(data, "tls", "ca.crt")), nats.Timeout(testutil.Patience))
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		soon(t, "the client of "+url+" knows both", func() bool { return len(nc.Servers()) == 2 })
		nc.Close()
	}
	if rest := dev.end(); strings.Count(rest, "--tls-ca") != 2 {
		t.Errorf("it does not say how to connect: %s", rest)
	}
}

// TestWrongNamesAreExplained: the certificate is for another host.
func TestWrongNamesAreExplained(t *testing.T) {
	wrong := &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"here"}}, Host: "there"}}
	if err := new(tlsFlags).explain(wrong); err == nil || !strings.Contains(err.Error(), "valid for here, not there") || !strings.Contains(err.Error(), "give --server a name") {
		t.Errorf("it says %v", err)
	}
}

// TestWrongAuthoritiesAreExplained: who gave one is told that it is another, others to give one.
func TestWrongAuthoritiesAreExplained(t *testing.T) {
	unknown := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for ca, want := range map[string]string{"": "give its file with --tls-ca", "our.crt": "the CA in our.crt did not sign"} {
		if err := (&tlsFlags{ca: ca}).explain(unknown); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the CA %q it says %v", ca, err)
		}
	}
}

// TestDevKeepsNoHalfAuthority: dev writes the CA's folder completely or not at all. If a file is
// missing, the error names the folder and says how to get a new CA.
func TestDevKeepsNoHalfAuthority(t *testing.T) {
	o := &devOptions{tls: true, data: t.TempDir(), listen: "127.0.0.1:0"}
	testutil.Must(t, o.makeTLS())
	authority := filepath.Join(o.tlsDir, devAuthorityDir)
	if left, err := filepath.Glob(filepath.Join(o.data, "*", ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	before, err := readFiles(authority)
	testutil.Must(t, err)
	testutil.Must(t, os.Remove(filepath.Join(authority, "tls.key")))
	if err := o.makeTLS(); err == nil || !strings.Contains(err.Error(), authority) || !strings.Contains(err.Error(), "delete that folder") || strings.Contains(err.Error(), "Secret") {
		t.Errorf("it says %v", err)
	}
	testutil.Must(t, os.RemoveAll(authority))
	testutil.Must(t, o.makeTLS())
	if after, err := readFiles(authority); err != nil || len(after) != len(before) {
		t.Errorf("the new one has %d files, %v", len(after), err)
	}
}

// TestCommandsExplainTheLackOfTLS: a plaintext server is not taken for one that uses TLS.
func TestCommandsExplainTheLackOfTLS(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	t.Setenv("CARILLON_TLS_CA", filepath.Join(dir, "ca.crt"))
	if _, errs, code := command(t, "", "pub", "a", "b", "--server", dev.url); code == 0 || !strings.Contains(errs, "the server has no TLS") {
		t.Errorf("%d %s", code, errs)
	}
}
