package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A Target is a server, or several addresses of one cluster over which the connections are
// spread in turn.
type Target struct {
	Name      string // in the report
	Addresses []Address
	// PIDs are the server's processes on this machine, if known: their CPU and memory are read.
	PIDs      []int
	Processes Processes // of each broker, for what takes brokers away
	memory    int64     // of the processes at the start of the campaign; 0 is unknown
}

// An Address is one place to connect to, and as whom.
type Address struct {
	HostPort              string
	TLS                   bool
	Secure                *tls.Config // nil: the machine's CAs
	HandshakeFirst        bool        // the server says nothing in plaintext
	User, Password, Token string
	from                  *net.TCPAddr // where it connects from; nil: anywhere
}

const defaultPort = "4222"

// ParseTarget reads a comma-separated list of nats:// URLs. Credentials inside a URL win
// over those given beside it. No error repeats what might be a secret.
func ParseTarget(name, list, user, password, token string, pids ...int) (Target, error) {
	t := Target{Name: name, PIDs: pids}
	for _, text := range strings.Split(list, ",") {
		a, err := parseAddress(strings.TrimSpace(text))
		if err != nil {
			return Target{}, err
		}
		if a.User == "" && a.Token == "" {
			a.User, a.Password, a.Token = user, password, token
		}
		t.Addresses = append(t.Addresses, a)
	}
	if t.Name == "" {
		t.Name = t.Addresses[0].HostPort
	}
	return t, nil
}

// UseTLS has every connection to t use TLS with config; nil: the machine's CAs. With first, each
// begins with the handshake.
func (t *Target) UseTLS(config *tls.Config, first bool) {
	for i := range t.Addresses {
		a := &t.Addresses[i]
		a.TLS, a.Secure, a.HandshakeFirst = true, config, first
	}
}

// ParseTargets reads what a server is compared with: in each text one server or several,
// with commas between them. NAME=URL begins a server; a URL without a name is one more address
// of the server before it, or at the beginning of a text a server that is called by its address.
func ParseTargets(texts []string) ([]Target, error) {
	var targets []Target
	for _, text := range texts {
		var name string
		var urls []string
		finish := func() error {
			if urls == nil {
				return nil
			}
			t, err := ParseTarget(name, strings.Join(urls, ","), "", "", "")
			targets, urls = append(targets, t), nil
			return err
		}
		for _, part := range strings.Split(text, ",") {
			called, url, named := cutName(strings.TrimSpace(part))
			if named {
				if err := finish(); err != nil {
					return nil, err
				}
				name = called
			} else if urls == nil {
				name = ""
			}
			urls = append(urls, url)
		}
		if err := finish(); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// cutName takes NAME= off a URL. A token may hold an equals sign as well: what could be one
// is never taken for a name, since names are printed.
func cutName(text string) (name, url string, named bool) {
	name, url, found := strings.Cut(text, "=")
	if !found || name == "" || strings.ContainsAny(name, ":/@") || strings.Contains(url, "@") && !strings.Contains(url, "://") {
		return "", text, false
	}
	return name, url, true
}

func parseAddress(text string) (Address, error) {
	if text == "" {
		return Address{}, errors.New("a server URL is empty; give nats://host:port")
	}
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return Address{}, errors.New("a server URL can't be read; give nats://[user:password@]host[:port]")
	}
	if u.Scheme != "nats" && u.Scheme != "tls" {
		return Address{}, fmt.Errorf("server URL of %s has scheme %q; give nats:// or tls://", u.Host, u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	a := Address{HostPort: net.JoinHostPort(u.Hostname(), port), TLS: u.Scheme == "tls"}
	if u.User != nil {
		if password, both := u.User.Password(); both {
			a.User, a.Password = u.User.Username(), password
		} else {
			a.Token = u.User.Username()
		}
	}
	return a, nil
}

func (a Address) scheme() string {
	if a.TLS {
		return "tls://"
	}
	return "nats://"
}

// URLs is the list without credentials.
func (t Target) URLs() string {
	list := make([]string, len(t.Addresses))
	for i, a := range t.Addresses {
		list[i] = a.scheme() + a.HostPort
	}
	return strings.Join(list, ",")
}

// address spreads connections over the addresses.
func (t Target) address(i int) Address { return t.Addresses[i%len(t.Addresses)] }

// A Server is what a target said of itself.
type Server struct {
	Name    string `json:"name"` // the name in the report
	URL     string `json:"url"`
	Server  string `json:"server_name"`
	Version string `json:"server_version"`
	ID      string `json:"server_id"`
	Cluster string `json:"cluster,omitempty"`
	Payload int64  `json:"max_payload_bytes"`
}

const probeRetry = 500 * time.Millisecond

// Reach waits until every address of the target answers, for as long as wait, and returns
// what the first of them says of itself.
func (t Target) Reach(ctx context.Context, wait time.Duration) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var first Server
	for i, a := range t.Addresses {
		for {
			s, err := a.identify(ctx)
			if err == nil {
				if i == 0 {
					first = s
				}
				break
			}
			if errors.Is(err, nats.ErrAuthorization) {
				return Server{}, fmt.Errorf("connect to %s: %w; check --user, --password and --token", a.HostPort, err)
			}
			select {
			case <-ctx.Done():
				return Server{}, fmt.Errorf("connect to %s: %w (tried for %v; is the server running?)", a.HostPort, err, wait)
			case <-time.After(probeRetry):
			}
		}
	}
	first.Name, first.URL = t.Name, t.URLs()
	return first, nil
}

func (a Address) identify(ctx context.Context) (Server, error) {
	nc, err := a.connect(ctx, "carillon-bench", nil)
	if err != nil {
		return Server{}, err
	}
	defer nc.Close()
	return Server{
		Server: nc.ConnectedServerName(), Version: nc.ConnectedServerVersion(), ID: nc.ConnectedServerId(),
		Cluster: nc.ConnectedClusterName(), Payload: nc.MaxPayload(),
	}, nil
}
