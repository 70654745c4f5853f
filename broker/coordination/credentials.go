package coordination

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	grpccredentials "google.golang.org/grpc/credentials"

	"github.com/carillon-mq/carillon/broker/env"
)

// credentials creates the TLS configuration of each connection when it is dialled, so that the next
// connection uses a renewed certificate or CA. A *tls.Config given to the etcd client would keep
// the CA of its creation.
type credentials struct{ tls *env.TLS }

func (c credentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, grpccredentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	return grpccredentials.NewTLS(c.tls.Client(host)).ClientHandshake(ctx, authority, conn)
}

func (c credentials) ServerHandshake(net.Conn) (net.Conn, grpccredentials.AuthInfo, error) {
	return nil, nil, errors.New("coordination: these credentials are for clients only")
}

func (c credentials) Info() grpccredentials.ProtocolInfo {
	return grpccredentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}).Info()
}

func (c credentials) Clone() grpccredentials.TransportCredentials { return c }

// OverrideServerName is a deprecated part of the interface, which nothing calls.
func (c credentials) OverrideServerName(string) error {
	return errors.New("coordination: the server's name is the endpoint's")
}
