package route

import (
	"context"
	"crypto/tls"
	"net"
)

// verifyMember returns why an accepted peer is not the broker that its hello names, or nil:
//
//  1. A broker of that id is registered, or was since this process started: links outlive a lost
//     registration. The State may lack a new one for a moment, so it is waited for.
//  2. The peer's certificate is for the host at which that broker is registered. So a coordinator's
//     certificate opens no link, even where one CA signs for both.
//
// The brokers of an operator share a certificate for all of their hosts, so one of them could still
// take the id of another. A broker that dials checks both, too: the certificate is for the host
// that it dials, and the id is the one of the member.
func (m *Mesh) verifyMember(ctx context.Context, conn net.Conn, peer hello) *Refusal {
	if m.config.RouteOf == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, memberWait)
	defer cancel()
	address, ok := m.config.RouteOf(ctx, peer.ID)
	if !ok {
		return refuse(CauseMember, "broker %q (%.64q) is not registered in cluster %q", peer.Name, peer.ID, m.config.Cluster)
	}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil // within one machine
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return refuse(CauseIdentity, "broker %q is registered at %q, which is not host:port", peer.Name, address)
	}
	shown := secure.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return refuse(CauseTLS, "broker %q shows no certificate", peer.Name)
	}
	if err := shown[0].VerifyHostname(host); err != nil {
		return refuse(CauseIdentity, "the certificate of broker %q is not for %q, where it is registered: %v (give brokers a certificate for the host of --route-advertise)", peer.Name, host, err)
	}
	return nil
}
