package coordinator

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// clients are the servers of etcd's clients. As a handler of gRPC's statistics it learns of the
// HTTP servers behind which etcd has gRPC where clients use TLS.
//
// gRPC's own Stop does not close connections of such a server. It closes the requests that are
// under way, and waits until there are none. Clients go on to send requests meanwhile, which end
// late or never: a read without a quorum, or a watch. So Stop alone may wait forever, as it does
// for a client that does not read its answers.
type clients struct {
	mu     sync.Mutex
	grpc   []*grpc.Server
	http   []*http.Server
	closed bool
}

// register adds a server. It is etcd's hook for more services.
func (c *clients) register(server *grpc.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grpc = append(c.grpc, server)
}

// close closes the servers and all their connections.
func (c *clients) close() {
	c.mu.Lock()
	c.closed = true
	behind, servers := c.http, c.grpc
	c.mu.Unlock()
	for _, server := range behind {
		_ = server.Close()
	}
	for _, server := range servers {
		server.Stop()
	}
}

// TagConn is called for each request of a client with TLS, after Stop knows of it. A server whose
// first request comes after close is closed here.
func (c *clients) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	server, ok := ctx.Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return ctx // gRPC's own connection, which Stop closes
	}
	c.mu.Lock()
	if !slices.Contains(c.http, server) {
		c.http = append(c.http, server)
	}
	closed := c.closed
	c.mu.Unlock()
	if closed {
		_ = server.Close()
	}
	return ctx
}

func (c *clients) HandleConn(context.Context, stats.ConnStats) {}

func (c *clients) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *clients) HandleRPC(context.Context, stats.RPCStats) {}
