package roots

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/coordinator"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
)

// The folders of certificates, as pods mount them.
const (
	coordinatorTLS = "coordinator-tls"
	peerTLS        = "coordinator-peer-tls"
	brokerTLS      = "broker-tls"
	brokerEtcdTLS  = "broker-etcd-tls"
)

// clusterToken distinguishes the coordinators' cluster from others.
const clusterToken = "roots"

// kinds are the kinds of connections for which the folders are.
var kinds = map[string]pki.Kind{coordinatorTLS: pki.Etcd, peerTLS: pki.Peer, brokerTLS: pki.Link, brokerEtcdTLS: pki.Etcd}

// main is the Broker, for the names in its certificates.
var main = &v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: "default"}}

// names are those in the certificates of the folders.
var names = map[string]string{
	coordinatorTLS: build.CoordinatorLeaf(main).Name, peerTLS: build.CoordinatorLeaf(main).Name,
	brokerTLS: build.BrokerLeaf(main).Name, brokerEtcdTLS: build.BrokerEtcdLeaf(main).Name,
}

// cluster is three coordinators and two brokers, and the CAs as the operator keeps them.
type cluster struct {
	t      *testing.T
	secret map[string][]byte
	roots  *pki.Roots
	leaves map[string]map[string][]byte // by folder, as the operator wrote them
	dirs   map[string]string            // of the folders, by name

	program      string // carillon, for coordinators as processes
	ports        []int
	coordinators [3]*process
	brokers      [2]*process
	data         []string
	acks         func(what string) // waits for acknowledged publishes, see load
}

type process struct {
	address string // of a broker, for clients; of a coordinator, for health
	stop    func()
}

// newCluster makes the CAs and certificates. Nothing runs yet.
func newCluster(t *testing.T, separate bool) *cluster {
	t.Helper()
	c := &cluster{t: t, leaves: map[string]map[string][]byte{}, dirs: map[string]string{}, ports: testutil.FreePorts(t, 3*3+2)}
	for folder := range kinds {
		c.dirs[folder] = t.TempDir()
	}
	for range 3 + 2 {
		c.data = append(c.data, filepath.Join(t.TempDir(), "data"))
	}
	c.sign(separate)
	c.mount(coordinatorTLS, peerTLS, brokerTLS, brokerEtcdTLS)
	return c
}

// sign computes the certificates of the present step.
func (c *cluster) sign(separate bool) {
	c.t.Helper()
	var err error
	c.roots, c.secret, err = pki.EnsureRoots("main-ca", c.secret, separate, time.Now(), rand.Reader)
	testutil.Must(c.t, err)
	for folder, kind := range kinds {
		leaf := pki.Leaf{Name: names[folder], DNSNames: []string{"localhost"}}
		if folder == brokerEtcdTLS {
			leaf.DNSNames = nil
		}
		c.leaves[folder], err = c.roots.Of(kind).EnsureLeaf(leaf, c.leaves[folder], time.Now(), rand.Reader)
		testutil.Must(c.t, err)
	}
}

// mount brings certificates into the pods, as a kubelet does.
func (c *cluster) mount(folders ...string) {
	c.t.Helper()
	for _, folder := range folders {
		for name, content := range c.leaves[folder] {
			testca.Replace(c.t, c.dirs[folder], name, content)
		}
	}
}

// step takes the next step of the change.
func (c *cluster) step(want pki.Phase) {
	c.t.Helper()
	c.secret = pki.Advance(c.secret)
	if c.sign(true); c.roots.Phase() != want {
		c.t.Fatalf("the phase is %s, want %s", c.roots.Phase(), want)
	}
}

func (c *cluster) peerPort(n int) int   { return c.ports[3*n] }
func (c *cluster) clientPort(n int) int { return c.ports[3*n+1] }
func (c *cluster) routePort(n int) int  { return c.ports[9+n] }

func (c *cluster) initialCluster() string {
	var initial []string
	for i := range c.coordinators {
		initial = append(initial, fmt.Sprintf("c-%d=https://localhost:%d", i, c.peerPort(i)))
	}
	return strings.Join(initial, ",")
}

// coordinator starts a coordinator anew. An earlier version knows one folder.
func (c *cluster) coordinator(n int, earlier bool) {
	c.t.Helper()
	if p := c.coordinators[n]; p != nil {
		p.stop()
	}
	health := fmt.Sprintf("127.0.0.1:%d", c.ports[3*n+2])
	config := coordinator.Config{
		Name: fmt.Sprintf("c-%d", n), DataDir: c.data[n], TLSDir: c.dirs[coordinatorTLS], PeerTLSDir: c.dirs[peerTLS],
		ClientListen: fmt.Sprintf("127.0.0.1:%d", c.clientPort(n)), PeerListen: fmt.Sprintf("127.0.0.1:%d", c.peerPort(n)), HTTPListen: health,
		AdvertiseHost: "localhost", InitialCluster: c.initialCluster(), ClusterToken: clusterToken, Logger: slog.New(slog.DiscardHandler),
	}
	if earlier {
		config.PeerTLSDir = ""
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- coordinator.Run(ctx, config) }()
	p := &process{address: health, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("coordinator %d: %v", n, err)
		}
	})}
	c.coordinators[n] = p
	c.t.Cleanup(p.stop)
}

// broker starts a broker anew, and waits until it is ready. An earlier version knows one folder.
func (c *cluster) broker(n int, earlier bool) {
	c.t.Helper()
	if p := c.brokers[n]; p != nil {
		p.stop()
	}
	links, err := env.LoadTLS(c.dirs[brokerTLS])
	testutil.Must(c.t, err)
	config := broker.Config{Name: fmt.Sprintf("main-%d", n), Cluster: "default/main", Data: c.data[3+n], TLS: links}
	for i := range c.coordinators {
		config.Endpoints = append(config.Endpoints, fmt.Sprintf("https://localhost:%d", c.clientPort(i)))
	}
	config.Route.Listen = fmt.Sprintf("127.0.0.1:%d", c.routePort(n))
	config.Route.Advertise = fmt.Sprintf("localhost:%d", c.routePort(n))
	if !earlier {
		config.EtcdTLS, err = env.LoadTLS(c.dirs[brokerEtcdTLS])
		testutil.Must(c.t, err)
	}
	p := &process{}
	p.address, p.stop = brokers.Run(c.t, "small", config)
	c.brokers[n] = p
}

// whole waits until every coordinator answers for the quorum.
func (c *cluster) whole() {
	c.t.Helper()
	for n, p := range c.coordinators {
		testutil.Eventually(c.t, fmt.Sprintf("coordinator %d answers for the quorum", n), func() error {
			answer, err := http.Get("http://" + p.address + "/healthz/ready")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return errors.New(answer.Status)
			}
			return nil
		})
	}
}

// linked waits until a message comes from each broker to the other one.
func (c *cluster) linked() {
	c.t.Helper()
	for from, to := range []int{1, 0} {
		publisher, err := nats.Connect("nats://"+c.brokers[from].address, nats.Timeout(testutil.Patience))
		testutil.Must(c.t, err)
		defer publisher.Close()
		receiver, err := nats.Connect("nats://"+c.brokers[to].address, nats.Timeout(testutil.Patience))
		testutil.Must(c.t, err)
		defer receiver.Close()
		sub, err := receiver.SubscribeSync("greet")
		testutil.Must(c.t, err)
		testutil.Eventually(c.t, fmt.Sprintf("a message from broker %d to %d", from, to), func() error {
			testutil.Must(c.t, publisher.Publish("greet", []byte("hello")))
			_, err := sub.NextMsg(100 * time.Millisecond)
			return err
		})
	}
}

// roll restarts the coordinators one by one, and then the brokers.
func (c *cluster) roll() {
	c.t.Helper()
	for n := range c.coordinators {
		c.coordinator(n, false)
		c.whole()
	}
	for n := range c.brokers {
		c.broker(n, false)
		c.linked()
	}
}

func (c *cluster) start(earlier bool) {
	c.t.Helper()
	for n := range c.coordinators {
		c.coordinator(n, earlier)
	}
	c.whole()
	for n := range c.brokers {
		c.broker(n, earlier)
	}
	c.linked()
}

// listener is a port for one kind of connections.
func (c *cluster) listener(kind pki.Kind) string {
	port := map[pki.Kind]int{pki.Peer: c.peerPort(0), pki.Etcd: c.clientPort(0), pki.Link: c.routePort(0)}[kind]
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// dial connects to the listener of a kind with a certificate. It trusts the listener's own CAs, so
// that only the listener may refuse.
func (c *cluster) dial(kind pki.Kind, leaf map[string][]byte) *tls.Conn {
	c.t.Helper()
	cert, err := tls.X509KeyPair(leaf["tls.crt"], leaf["tls.key"])
	testutil.Must(c.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.roots.Of(kind).Bundle())
	conn, err := tls.Dial("tcp", c.listener(kind), &tls.Config{
		RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13,
		// Also one that the server does not ask for.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	})
	testutil.Must(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	testutil.Must(c.t, conn.SetDeadline(time.Now().Add(testutil.Patience)))
	return conn
}

// refuses reports, as an error, that the listener of a kind takes a certificate. In TLS 1.3 the
// refusal comes with the first read.
func (c *cluster) refuses(kind pki.Kind, leaf map[string][]byte) error {
	_, err := c.dial(kind, leaf).Read(make([]byte, 1))
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		return nil
	}
	return fmt.Errorf("it is taken, and then: %v", err)
}

// accepts reports, as an error, that the listener of a kind refuses a certificate.
func (c *cluster) accepts(kind pki.Kind, leaf map[string][]byte) error {
	conn := c.dial(kind, leaf)
	if _, err := fmt.Fprintf(conn, "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Op == "remote error" {
		return err
	}
	return nil
}

// TestEachListenerTakesItsOwnKindOfCertificates: a broker's certificate for links or for etcd makes
// no member of etcd, a coordinator's opens no link, and so on for each pair.
func TestEachListenerTakesItsOwnKindOfCertificates(t *testing.T) {
	c := newCluster(t, true)
	c.start(false)
	for _, listener := range []pki.Kind{pki.Peer, pki.Etcd, pki.Link} {
		for folder, kind := range kinds {
			check := c.refuses
			if kind == listener {
				check = c.accepts
			}
			if err := check(listener, c.leaves[folder]); err != nil {
				t.Errorf("the listener of %s and the certificate of %s: %v", listener, folder, err)
			}
		}
	}
	// A coordinator that lost its volume asks the others as their member and as their client.
	c.coordinators[1].stop()
	testutil.Must(t, os.RemoveAll(c.data[1]))
	c.coordinator(1, false)
	c.whole()
}

// TestAClusterChangesToSeparateRoots: an installation by an earlier version changes to this one, as
// the operator does it. In each step some processes have the files of the step before.
func TestAClusterChangesToSeparateRoots(t *testing.T) {
	c := newCluster(t, false)
	c.start(true)
	former := map[string]map[string][]byte{}
	for folder, leaf := range c.leaves {
		former[folder] = leaf
	}

	c.sign(true) // announces the CAs
	c.mount(coordinatorTLS, peerTLS, brokerTLS, brokerEtcdTLS)
	c.roll()

	c.step(pki.Signing)
	c.mount(coordinatorTLS, brokerTLS)
	c.coordinator(0, false)
	c.broker(0, false)
	c.whole()
	c.linked()
	c.mount(peerTLS, brokerEtcdTLS)
	c.coordinator(1, false)
	c.broker(1, false)
	c.whole()
	c.linked()

	c.step(pki.Separate)
	c.mount(coordinatorTLS, peerTLS, brokerTLS, brokerEtcdTLS)
	c.broker(0, false) // while no coordinator has been restarted
	c.linked()
	c.roll()
	for folder, kind := range kinds {
		if err := c.refuses(kind, former[folder]); err != nil {
			t.Errorf("the certificate of %s that the former CA signed: %v", folder, err)
		}
	}
}
