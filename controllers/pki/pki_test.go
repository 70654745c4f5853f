package pki

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ensure(t *testing.T, data map[string][]byte, now time.Time) (*Authority, map[string][]byte) {
	t.Helper()
	authority, data, err := EnsureAuthority("main-ca", data, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return authority, data
}

func leafOf(t *testing.T, a *Authority, data map[string][]byte, now time.Time, names ...string) map[string][]byte {
	t.Helper()
	data, err := a.EnsureLeaf(Leaf{Name: "main-broker", DNSNames: names}, data, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func equal(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

// meet does a mutual TLS handshake between two processes, at a given time.
func meet(t *testing.T, server, client map[string][]byte, host string, now time.Time) error {
	t.Helper()
	config := func(data map[string][]byte) *tls.Config {
		cert, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data["ca.crt"]) {
			t.Fatal("no CA in ca.crt")
		}
		return &tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ServerName: host,
			ClientAuth: tls.RequireAndVerifyClientCert, Time: func() time.Time { return now }, MinVersion: tls.VersionTLS13,
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() {
		conn := tls.Server(a, config(server))
		err := conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		a.Close()
		served <- err
	}()
	conn := tls.Client(b, config(client))
	_, err := io.ReadFull(conn, make([]byte, 1))
	b.Close()
	if serverErr := <-served; err == nil {
		err = serverErr
	}
	return err
}

func TestValidCertificatesAreKept(t *testing.T) {
	authority, data := ensure(t, nil, start)
	leaf := leafOf(t, authority, nil, start, "*.main-brokers.default.svc")
	for _, later := range []time.Duration{0, time.Hour, 50 * 24 * time.Hour} {
		again, kept := ensure(t, data, start.Add(later))
		if !equal(kept, data) {
			t.Fatalf("the CA changed after %v", later)
		}
		if !equal(leafOf(t, again, leaf, start.Add(later), "*.main-brokers.default.svc"), leaf) {
			t.Fatalf("the leaf changed after %v", later)
		}
	}
	if err := meet(t, leaf, leaf, "main-0.main-brokers.default.svc", start); err != nil {
		t.Error(err)
	}
	if err := meet(t, leaf, leaf, "main-0.other-brokers.default.svc", start); err == nil {
		t.Error("a certificate was taken for another Broker's name")
	}
}

func TestLeafIsRenewedAtTwoThirdsAndWhenNamesChange(t *testing.T) {
	authority, _ := ensure(t, nil, start)
	leaf := leafOf(t, authority, nil, start, "a")
	if due := LeafDue(leaf); due.Sub(start) < 59*24*time.Hour || due.Sub(start) > 61*24*time.Hour {
		t.Errorf("due %v after issue, want about 60 days", due.Sub(start))
	}
	before, after := LeafDue(leaf).Add(-time.Second), LeafDue(leaf).Add(time.Second)
	if !equal(leafOf(t, authority, leaf, before, "a"), leaf) {
		t.Error("renewed too early")
	}
	if equal(leafOf(t, authority, leaf, after, "a"), leaf) {
		t.Error("not renewed at two thirds of its life")
	}
	if equal(leafOf(t, authority, leaf, start, "a", "b"), leaf) {
		t.Error("not renewed when a name was added")
	}
}

// TestLeafIsForAddressesToo: clients may connect to an address, and further ones renew the leaf.
func TestLeafIsForAddressesToo(t *testing.T) {
	authority, _ := ensure(t, nil, start)
	of := func(data map[string][]byte, ips ...net.IP) map[string][]byte {
		data, err := authority.EnsureLeaf(Leaf{Name: "main-client-tls", DNSNames: []string{"main"}, IPs: ips}, data, start, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	local, added := net.IPv4(127, 0, 0, 1), net.ParseIP("192.0.2.7")
	leaf := of(nil, local)
	if !equal(of(leaf, local), leaf) {
		t.Error("renewed for the address that it is for")
	}
	if err := meet(t, leaf, leaf, "192.0.2.7", start); err == nil {
		t.Error("it is for an address that it was not made for")
	}
	further := of(leaf, local, added)
	for _, host := range []string{"main", "127.0.0.1", "192.0.2.7"} {
		if err := meet(t, further, further, host, start); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestTwoAuthoritiesOfABrokerRefuseEachOther: what clients trust opens no link, and the reverse.
func TestTwoAuthoritiesOfABrokerRefuseEachOther(t *testing.T) {
	links, _ := ensure(t, nil, start)
	clients, _ := ensure(t, nil, start)
	a, b := leafOf(t, links, nil, start, "a"), leafOf(t, clients, nil, start, "a")
	for _, pair := range [][2]map[string][]byte{{a, b}, {b, a}} {
		if err := meet(t, pair[0], pair[1], "a", start); err == nil {
			t.Error("certificates of two CAs were taken for each other's")
		}
	}
}

// TestOldAndNewPartsTrustEachOtherDuringACARenewal: at no time of a CA renewal do processes with
// old and new files refuse each other.
func TestOldAndNewPartsTrustEachOtherDuringACARenewal(t *testing.T) {
	old, data := ensure(t, nil, start)
	now := nextChange(old)
	stale := leafOf(t, old, nil, now, "a") // a process that has not seen any change yet

	announced, data := ensure(t, data, now)
	if n := strings.Count(string(announced.Bundle()), "BEGIN"); n != 2 {
		t.Fatalf("the bundle has %d CAs, want the old and the next", n)
	}
	informed := leafOf(t, announced, stale, now, "a")
	if string(informed["tls.crt"]) != string(stale["tls.crt"]) {
		t.Error("the next CA signs before it is trusted everywhere")
	}
	for _, pair := range [][2]map[string][]byte{{stale, informed}, {informed, stale}} {
		if err := meet(t, pair[0], pair[1], "a", now); err != nil {
			t.Error("while the next CA is announced:", err)
		}
	}

	now = nextChange(announced)
	signing, data := ensure(t, data, now)
	renewed := leafOf(t, signing, informed, now, "a")
	if string(renewed["tls.crt"]) == string(informed["tls.crt"]) {
		t.Error("the leaf was not signed again by the new CA")
	}
	for _, pair := range [][2]map[string][]byte{{renewed, informed}, {informed, renewed}} {
		if err := meet(t, pair[0], pair[1], "a", now); err != nil {
			t.Error("once the new CA signs:", err)
		}
	}

	now = start.Add(authorityLife + time.Hour)
	after, _ := ensure(t, data, now)
	if n := strings.Count(string(after.Bundle()), "BEGIN"); n != 1 {
		t.Errorf("the bundle has %d CAs after the old one ended, want 1", n)
	}
}

func TestLeafNeverOutlivesItsCA(t *testing.T) {
	authority, _ := ensure(t, nil, start)
	end := authority.signer.cert.NotAfter
	leaf := leafOf(t, authority, nil, end.Add(-24*time.Hour), "a")
	certs, err := decodeCerts(leaf["tls.crt"])
	if err != nil {
		t.Fatal(err)
	}
	if certs[0].NotAfter.After(end) {
		t.Errorf("the leaf ends %v, after its CA %v", certs[0].NotAfter, end)
	}
}

func TestSpoiltCAIsAnErrorAndNotReplaced(t *testing.T) {
	_, data := ensure(t, nil, start)
	_, other := ensure(t, nil, start)
	for what, spoil := range map[string]func(map[string][]byte){
		"no certificate":  func(d map[string][]byte) { delete(d, "tls.crt") },
		"garbage":         func(d map[string][]byte) { d["tls.key"] = []byte("garbage") },
		"another's key":   func(d map[string][]byte) { d["tls.key"] = other["tls.key"] },
		"no trust bundle": func(d map[string][]byte) { d["ca.crt"] = nil },
	} {
		spoilt := maps.Clone(data)
		spoil(spoilt)
		if _, _, err := EnsureAuthority("main-ca", spoilt, start, rand.Reader); err == nil || !strings.Contains(err.Error(), "restore the Secret") {
			t.Errorf("%s: %v, want an error that says what to do", what, err)
		}
	}
}

// nextChange returns when EnsureAuthority will next change the data.
func nextChange(a *Authority) time.Time {
	if a.next != nil {
		return a.next.cert.NotBefore.Add(backdate + overlap)
	}
	return renewal(a.signer.cert)
}
