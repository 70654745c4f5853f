package route

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// testNode is one broker: a mesh and a hub.
type testNode struct {
	*Mesh
	hub     *testHub
	address string
	logs    *logBuffer
	changed chan struct{}
}

func (n *testNode) member() Member {
	return Member{ID: n.config.ID, Name: n.config.Name, Route: n.address, Incarnation: 1}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns the log lines that contain all of the given parts.
func (l *logBuffer) lines(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// startNode starts a broker on a loopback port with TLS of the given authority; nil is plaintext.
func startNode(t testing.TB, id string, ca *authority, change ...func(*Config)) *testNode {
	t.Helper()
	n := &testNode{hub: newTestHub(), logs: &logBuffer{}, changed: make(chan struct{}, 1)}
	config := Config{
		ID: id, Name: "main-" + id, Cluster: "default/main", Hub: n.hub, MaxPayload: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(n.logs, nil)),
		Changed: func() {
			select {
			case n.changed <- struct{}{}:
			default:
			}
		},
	}
	if ca != nil {
		config.ServerTLS, config.ClientTLS = ca.server, ca.client
	}
	for _, f := range change {
		f(&config)
	}
	if config.Listener == nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		config.Listener = listener
	}
	n.address = config.Listener.Addr().String()
	mesh, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	n.Mesh = mesh
	t.Cleanup(n.Close)
	t.Cleanup(func() {
		if t.Failed() {
			n.logs.mu.Lock()
			t.Logf("log of %s:\n%s", id, n.logs.b.String())
			n.logs.mu.Unlock()
		}
	})
	return n
}

// introduceAll tells each of the nodes about all of them.
func introduceAll(nodes ...*testNode) {
	var members []Member
	for _, n := range nodes {
		members = append(members, n.member())
	}
	for _, n := range nodes {
		n.SetMembers(members)
	}
}

func waitUp(t testing.TB, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		testutil.EventuallyTrue(t, n.config.Name+" is linked with all", func() bool {
			up, members := n.Linked()
			return up == members && up == len(nodes)-1
		})
	}
}

// linkAll tells each of the nodes about all of them, those with the smaller ids first, and waits
// until they are linked. So each link is dialled once: on a busy machine the broker that dials
// second would dial too, and its connection would take the place of the first one, with what is on
// it.
func linkAll(t testing.TB, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		var greater []Member
		for _, other := range nodes {
			if other.config.ID > n.config.ID {
				greater = append(greater, other.member())
			}
		}
		n.SetMembers(greater)
	}
	for _, n := range nodes {
		testutil.EventuallyTrue(t, n.config.Name+" is linked with those of greater ids", func() bool {
			up, members := n.Linked()
			return up == members
		})
	}
	introduceAll(nodes...)
	waitUp(t, nodes...)
}

// peerOf returns n's statistics of another broker.
func (n *testNode) peerOf(id string) PeerStats {
	for _, p := range n.Stats().Peers {
		if p.ID == id {
			return p
		}
	}
	return PeerStats{}
}

// authority is a certificate authority with one certificate that all brokers share.
type authority struct {
	pool *x509.CertPool
	cert tls.Certificate

	root *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = x509.ParseCertificate(rootDER); err != nil {
		t.Fatal(err)
	}
	a := &authority{pool: x509.NewCertPool(), root: root, key: key}
	a.pool.AddCert(root)
	return a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// issue returns the authority with another certificate.
func (a *authority) issue(t testing.TB, leaf *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf.SerialNumber, leaf.NotAfter = big.NewInt(2), time.Now().Add(time.Hour)
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.root, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	issued := *a
	issued.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &issued
}

func (a *authority) server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.cert}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

func (a *authority) client(serverName string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.cert}, RootCAs: a.pool, ServerName: serverName}
}
