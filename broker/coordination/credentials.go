package coordination

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	grpccredentials "google.golang.org/grpc/credentials"

	"github.com/carillon-mq/carillon/broker/env"
)

// credentials makes the TLS configuration of each connection when it is dialled, so that a
// renewed certificate or CA is used from the next connection on. (A *tls.Config given to
// the etcd client would keep the CA of the day it was made.)
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

// OverrideServerName is part of the interface, deprecated, and used by nobody here.
func (c credentials) OverrideServerName(string) error {
	return errors.New("coordination: the server's name is the endpoint's")
}
