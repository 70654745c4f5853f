package route

import (
	"context"
	"fmt"
	"net"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// DialReplication connects to another broker to fetch shards that it leads. The caller owns the
// connection.
func (m *Mesh) DialReplication(ctx context.Context, brokerID string) (net.Conn, error) {
	m.mu.Lock()
	target := Member{ID: brokerID}
	if n := m.neighbours[brokerID]; n != nil {
		target.Name, target.Route, target.Incarnation = n.name, n.address, n.incarnation
	}
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return nil, errClosing
	}
	if target.Route == "" {
		return nil, fmt.Errorf("dial broker %s: it is no member of the cluster", brokerID)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	raw, err := m.open(ctx, target)
	if err != nil {
		return nil, err
	}
	own := m.own
	own.Kind = kindReplication
	conn, in, peer, err := m.handshake(ctx, raw, target, own)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return &replication{Conn: conn, raw: raw, rest: in.buf[in.start:in.end], version: min(own.Newest, peer.Newest), features: peer.Features}, nil
}

// serveReplication serves a connection on which another broker fetches shards, until it ends.
func (m *Mesh) serveReplication(raw, conn net.Conn, in *reader, peer hello) {
	defer context.AfterFunc(m.ctx, func() { raw.Close() })()
	m.config.Replication(&replication{Conn: conn, raw: raw, rest: in.buf[in.start:in.end], version: min(m.own.Newest, peer.Newest), features: peer.Features}, peer.ID)
}

// replication is a connection after its hellos. rest is what was read behind the peer's hello.
type replication struct {
	net.Conn
	raw      net.Conn
	rest     []byte
	version  int                     // of the link protocol
	features coordination.FeatureSet // of the peer
}

// Announces reports whether the peer understands a feature.
func (r *replication) Announces(f coordination.Feature) bool { return r.features.Has(f) }

// SendsSegments reports whether the peer understands requests for a single segment of a shard.
func (r *replication) SendsSegments() bool { return r.version >= segmentsSince }

func (r *replication) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.rest = nil
	}
	return n, nil
}

// NetConn returns the connection under TLS. Closing it never blocks.
func (r *replication) NetConn() net.Conn { return r.raw }
