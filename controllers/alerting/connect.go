package alerting

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
)

// access is how the operator connects to a Broker.
type access struct {
	servers []string
	auth    nats.Option // nil: none is asked for
	tls     *tls.Config // nil: none
	first   bool        // the handshake comes before INFO
}

// servers returns the addresses for clients. A broker writes its own: a scheme in it could choose
// another protocol.
func servers(state *coordination.State) (all []string) {
	for _, b := range state.Brokers {
		host, port, err := net.SplitHostPort(b.Client)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			all = append(all, "nats://"+net.JoinHostPort(host, strconv.FormatUint(n, 10)))
		}
	}
	return all
}

// accessTo returns how the operator connects to a Broker, as spec.auth and spec.tls want it. What
// Secrets have is read from the API server.
func accessTo(ctx context.Context, live client.Reader, broker *v1alpha1.Broker, key nkeys.KeyPair) (a access, err error) {
	if spec := broker.Spec.TLS; spec != nil {
		if spec.ClientCertificates != nil {
			return a, errors.New("the Broker asks clients for certificates (spec.tls.clientCertificates), and the operator has none")
		}
		if a.tls, err = tlsOf(ctx, live, broker); err != nil {
			return a, err
		}
		a.first = spec.Handshake == v1alpha1.HandshakeFirst
	}
	auth := broker.Spec.Auth
	switch {
	case auth == nil:
	case auth.Users != nil:
		public, err := key.PublicKey()
		if err != nil {
			return a, err
		}
		a.auth = nats.Nkey(public, key.Sign)
	case auth.SecretRef != nil:
		secret := &corev1.Secret{}
		name := types.NamespacedName{Namespace: broker.Namespace, Name: auth.SecretRef.Name}
		if err := live.Get(ctx, name, secret); err != nil {
			return a, fmt.Errorf("getting Secret %s of spec.auth: %w", name.Name, err)
		}
		if token := secret.Data["token"]; len(token) > 0 {
			a.auth = nats.Token(string(token))
		} else {
			a.auth = nats.UserInfo(string(secret.Data["username"]), string(secret.Data["password"]))
		}
	}
	return a, nil
}

// tlsOf returns what brokers are verified by: the CAs that the operator publishes for clients, or
// those of the system.
func tlsOf(ctx context.Context, live client.Reader, broker *v1alpha1.Broker) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	published, name := &corev1.ConfigMap{}, build.NamesOf(broker).ClientCA()
	if err := live.Get(ctx, types.NamespacedName{Namespace: broker.Namespace, Name: name}, published); err != nil {
		return nil, fmt.Errorf("getting ConfigMap %s: %w", name, err)
	}
	if bundle := published.Data[build.KeyCA]; bundle != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(bundle)) {
			return nil, fmt.Errorf("ConfigMap %s has no certificate in %s", name, build.KeyCA)
		}
	}
	return config, nil
}

// connection is one to a broker, for one turn.
type connection struct {
	*nats.Conn
	ctx    context.Context // ends with the connection
	dialer *dialer
}

// broken returns why the connection was ended on this side, or nil.
func (c *connection) broken() error { return c.dialer.wrong() }

// connect opens a connection that ends with ctx at the latest. It is not opened again.
func (a access) connect(ctx context.Context) (*connection, error) {
	if len(a.servers) == 0 {
		return nil, errors.New("no broker is there")
	}
	c := &connection{dialer: &dialer{ctx: ctx, access: a}}
	var end context.CancelFunc
	c.ctx, end = context.WithCancel(ctx)
	options := nats.GetDefaultOptions()
	options.Servers = slices.Clone(a.servers)
	rand.Shuffle(len(options.Servers), func(i, j int) { options.Servers[i], options.Servers[j] = options.Servers[j], options.Servers[i] })
	options.Servers = options.Servers[:min(len(options.Servers), maxDials)]
	for _, set := range []nats.Option{
		nats.Name("carillon operator: events of alerts"), nats.CustomInboxPrefix(inboxes), nats.Timeout(dialWithin),
		nats.NoReconnect(), nats.ReconnectBufSize(-1), nats.IgnoreDiscoveredServers(), nats.SkipHostLookup(), nats.SetCustomDialer(c.dialer),
		nats.ClosedHandler(func(*nats.Conn) { end() }),
		// A Reader returns what is refused. Without this, nats.go writes to stderr what brokers say.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		a.auth,
	} {
		if set == nil {
			continue
		}
		if err := set(&options); err != nil {
			end()
			return nil, err
		}
	}
	var err error
	if c.Conn, err = options.Connect(); err != nil {
		end()
		return nil, cmp.Or(c.broken(), err)
	}
	return c, nil
}

// dialer dials, does TLS, and checks what comes, for one connection of nats.go.
type dialer struct {
	ctx    context.Context
	access access
	fault  atomic.Pointer[error]
}

// SkipTLSHandshake keeps nats.go from TLS: what it reads must have been scanned.
func (d *dialer) SkipTLSHandshake() bool { return true }

func (d *dialer) wrong() error {
	if fault := d.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

func (d *dialer) fail(err error) error {
	d.fault.CompareAndSwap(nil, &err)
	return err
}

// Dial connects to an address. The connection is closed when the dialer's context ends.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.fault.Store(nil) // it was another broker's
	ctx, cancel := context.WithTimeout(d.ctx, dialWithin)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &guarded{Conn: raw, raw: raw, dialer: d}
	c.unwatch = context.AfterFunc(d.ctx, func() { _ = raw.Close() })
	if d.access.tls == nil {
		return c, nil
	}
	if err := c.secure(ctx, address); err != nil {
		_ = c.Close()
		return nil, d.fail(err)
	}
	return c, nil
}

// guarded is a connection whose input is scanned.
type guarded struct {
	net.Conn // raw, or TLS over it
	raw      net.Conn
	dialer   *dialer
	unwatch  func() bool
	before   []byte // what came before TLS, and was not read yet
	scanner  scanner
}

// secure begins TLS, after INFO unless the handshake comes first.
func (c *guarded) secure(ctx context.Context, address string) error {
	if !c.dialer.access.first {
		if err := c.raw.SetReadDeadline(time.Now().Add(dialWithin)); err != nil {
			return err
		}
		line := make([]byte, 0, maxInfo)
		end := -1
		for end < 0 && len(line) < cap(line) {
			n, err := c.raw.Read(line[len(line):cap(line)])
			if line = line[:len(line)+n]; err != nil {
				return fmt.Errorf("reading INFO: %w", err)
			}
			end = bytes.IndexByte(line, '\n')
		}
		if end != len(line)-1 {
			return errors.New("the broker sent more than INFO before TLS")
		}
		c.before = bytes.Clone(line)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	config := c.dialer.access.tls.Clone()
	config.ServerName = host
	secured := tls.Client(c.raw, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	c.Conn = secured
	return nil
}

func (c *guarded) Read(p []byte) (n int, err error) {
	if len(c.before) > 0 {
		n = copy(p, c.before)
		c.before = c.before[n:]
	} else {
		n, err = c.Conn.Read(p)
	}
	if wrong := c.scanner.scan(p[:n]); wrong != nil {
		_ = c.Close()
		return 0, c.dialer.fail(wrong)
	}
	return n, err
}

// Close closes the connection at once: TLS would wait until its last record is sent.
func (c *guarded) Close() error {
	c.unwatch()
	return c.raw.Close()
}
