package coordinator

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/carillon-mq/carillon/broker/env"
)

// The bounds of one member, with the reasons for their values.
const (
	// A lost leader is noticed after one to two times electionMillis, and leases of brokers can't
	// be shorter than 1.5 times that. Ten heartbeats per election timeout let a busy 2-core node
	// miss a few. With a longer timeout, a broker that is lost together with the leader of etcd
	// could not be replaced within 5 s.
	heartbeatMillis = 150
	electionMillis  = 1500

	// quotaBytes is the size at which etcd refuses writes. 10,000 shards and their history are
	// about 50 MB. The file is mapped, so a coordinator of 512 MiB can hold it in memory.
	quotaBytes = 512 << 20

	// The history is bounded by number and not by time, so that a burst of writes can't fill the
	// quota. A watch from an older revision reads again.
	keptRevisions = "10000"

	// Entries stay in memory from one snapshot to the next, and snapshotKept more for lagging
	// followers. etcd's defaults, 10,000 and 5,000, are for larger machines.
	snapshotEvery = 5000
	snapshotKept  = 2000

	// commitInterval is how often entries go from memory to the database file. They are durable
	// before, in etcd's log. With etcd's default, a tenth of this, a member at rest wakes for it
	// more often than for anything else.
	commitInterval = time.Second

	// streamWindow and connWindow, in bytes, bound what a client may send ahead. Windows that grpc
	// adapts by itself cost a ping and its answer with almost every request.
	streamWindow = 1 << 20
	connWindow   = 2 << 20

	// defragmentMiB is the least free space for which a start rewrites the file.
	defragmentMiB = 64
)

// Config configures one member of a cluster of coordinators. All addresses are https.
type Config struct {
	Name          string // the pod's name: main-coordinator-0
	DataDir       string
	TLSDir        string // ca.crt, tls.crt, tls.key for etcd's clients
	PeerTLSDir    string // the same for the other members; empty: TLSDir
	ClientListen  string // host:port; the host may be empty
	PeerListen    string
	HTTPListen    string // health and metrics, without TLS
	AdvertiseHost string // DNS name by which the others and the brokers reach this member

	InitialCluster   string // name=https://host:port,... of all members, this one included
	ClusterToken     string // distinguishes clusters of the same name: the Broker's uid
	BootstrappedFile string // empty: none; a file with content means that the cluster has existed

	Logger *slog.Logger // nil: no log
}

// Validate returns an error for an invalid configuration.
func (c Config) Validate() error {
	_, err := c.parse()
	return err
}

// parsed is a valid Config.
type parsed struct {
	Config
	peers     []peer   // all members, sorted by name
	peerURL   string   // of this one
	clientURL *url.URL // of this one
}

type peer struct{ name, url string }

func (c Config) parse() (*parsed, error) {
	for flag, value := range map[string]string{
		"name": c.Name, "data": c.DataDir, "tls-dir": c.TLSDir, "advertise-host": c.AdvertiseHost, "cluster-token": c.ClusterToken,
	} {
		if value == "" {
			return nil, fmt.Errorf("--%s must not be empty", flag)
		}
	}
	ports := map[string]string{}
	for flag, value := range map[string]string{"client-listen": c.ClientListen, "peer-listen": c.PeerListen, "http-listen": c.HTTPListen} {
		host, port, err := net.SplitHostPort(value)
		if err != nil || port == "" {
			return nil, fmt.Errorf("--%s %q: want host:port or :port", flag, value)
		}
		if host != "" && net.ParseIP(host) == nil {
			return nil, fmt.Errorf("--%s %q: the host must be an IP address, or empty for all", flag, value)
		}
		ports[flag] = port
	}
	p := &parsed{Config: c}
	p.PeerTLSDir = cmp.Or(c.PeerTLSDir, c.TLSDir)
	seen := map[string]string{}
	for item := range strings.SplitSeq(c.InitialCluster, ",") {
		name, address, ok := strings.Cut(item, "=")
		u, err := url.Parse(address)
		if !ok || name == "" || err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
			return nil, fmt.Errorf("--initial-cluster: %q: want name=https://host:port", item)
		}
		if seen[name] != "" || seen[address] != "" {
			return nil, fmt.Errorf("--initial-cluster: %q: the name or the address is there twice", item)
		}
		seen[name], seen[address] = item, item
		p.peers = append(p.peers, peer{name, address})
		if name == c.Name {
			p.peerURL = address
		}
	}
	slices.SortFunc(p.peers, func(a, b peer) int { return strings.Compare(a.name, b.name) })
	if p.peerURL == "" {
		return nil, fmt.Errorf("--initial-cluster %q must hold --name %q", c.InitialCluster, c.Name)
	}
	if u, err := url.Parse(p.peerURL); err != nil || u.Hostname() != c.AdvertiseHost {
		return nil, fmt.Errorf("--initial-cluster gives %s the address %s, which is not at --advertise-host %s", c.Name, p.peerURL, c.AdvertiseHost)
	}
	p.clientURL = &url.URL{Scheme: "https", Host: net.JoinHostPort(c.AdvertiseHost, ports["client-listen"])}
	return p, nil
}

// others returns the peer addresses of the other members.
func (p *parsed) others() []string {
	var urls []string
	for _, peer := range p.peers {
		if peer.name != p.Name {
			urls = append(urls, peer.url)
		}
	}
	return urls
}

// etcd returns the configuration of the embedded member. With existing it joins cluster. Otherwise
// it forms cluster, which matters only while its volume is empty.
func (p *parsed) etcd(cluster string, existing bool) (*embed.Config, error) {
	cfg := baseEtcd(p.Name, p.DataDir)
	cfg.TickMs, cfg.ElectionMs = heartbeatMillis, electionMillis

	peerURL, err := url.Parse(p.peerURL)
	if err != nil {
		return nil, fmt.Errorf("--initial-cluster: %w", err)
	}
	cfg.ListenPeerUrls = []url.URL{bindURL(p.PeerListen)}
	cfg.ListenClientUrls = []url.URL{bindURL(p.ClientListen)}
	cfg.AdvertisePeerUrls = []url.URL{*peerURL}
	cfg.AdvertiseClientUrls = []url.URL{*p.clientURL}
	cfg.InitialCluster, cfg.InitialClusterToken = cluster, p.ClusterToken
	cfg.ClusterState = embed.ClusterStateFlagNew
	if existing {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}

	cfg.TlsMinVersion = "TLS1.3"
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = tlsInfo(p.TLSDir), tlsInfo(p.PeerTLSDir)
	// etcd would resolve the connecting address by a reverse look-up and compare the name with the
	// certificate, which is unreliable for pods. Instead a peer's certificate must be one for
	// coordinators: with one CA for all, as in earlier versions, brokers have certificates of it.
	cfg.PeerTLSInfo.SkipClientSANVerify = true
	for _, peer := range p.peers {
		if u, err := url.Parse(peer.url); err == nil {
			cfg.PeerTLSInfo.AllowedHostnames = append(cfg.PeerTLSInfo.AllowedHostnames, u.Hostname())
		}
	}
	return cfg, nil
}

// tlsInfo returns mutual TLS with the files of a folder.
func tlsInfo(dir string) transport.TLSInfo {
	return transport.TLSInfo{
		CertFile:       filepath.Join(dir, env.CertFile),
		KeyFile:        filepath.Join(dir, env.KeyFile),
		TrustedCAFile:  filepath.Join(dir, env.CAFile),
		ClientCertAuth: true,
	}
}

// baseEtcd returns the configuration that members of a cluster and local ones share.
func baseEtcd(name, dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = name, filepath.Join(dir, etcdDir)
	cfg.QuotaBackendBytes = quotaBytes
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keptRevisions
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEvery, snapshotKept
	cfg.BackendBatchInterval = commitInterval
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow)}
	cfg.BootstrapDefragThresholdMegabytes = defragmentMiB
	return cfg
}

// bindURL returns the URL to listen on. For an empty host it has an address, which etcd requires.
func bindURL(listen string) url.URL {
	host, port, _ := net.SplitHostPort(listen) // already validated
	if host == "" {
		host = allAddresses()
	}
	return url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)}
}

// allAddresses returns [::], which includes IPv4, or 0.0.0.0 on a machine without IPv6.
func allAddresses() string {
	listener, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		return "0.0.0.0"
	}
	_ = listener.Close()
	return "::"
}
