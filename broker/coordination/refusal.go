package coordination

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/carillon-mq/carillon/broker/env"
)

// RefusedError reports that etcd refuses what this process asks for, since its user may not do it.
type RefusedError struct {
	User  string // the common name of this process's certificate; empty: it has none
	Cause error
}

func (e *RefusedError) Error() string {
	if e.User == "" {
		return fmt.Sprintf("%v: this process has no certificate with a common name, which would be its user of etcd; give it one (docs/operations.md, Users of etcd)", e.Cause)
	}
	return fmt.Sprintf("%v: this process's certificate makes it user %q of etcd, which may not do this; the operator gives its users their roles within a minute, and others need a certificate of theirs (docs/operations.md, Users of etcd)", e.Cause, e.User)
}

func (e *RefusedError) Unwrap() error { return e.Cause }

// refusal returns a *RefusedError if err is etcd's refusal of a user, and otherwise err.
func refusal(tls *env.TLS, err error) error {
	cause := rpctypes.Error(err)
	if !errors.Is(cause, rpctypes.ErrPermissionDenied) && !errors.Is(cause, rpctypes.ErrUserEmpty) {
		return err
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return err
	}
	user := ""
	if tls != nil {
		user = tls.Name()
	}
	return &RefusedError{user, cause}
}

// refusals are options of a connection to etcd whose calls return refusals.
//
// A change of users that comes between etcd's acceptance and execution of a request fails it with
// ErrAuthOldRevision, without effect. clientv3 repeats such calls, up to its hundred attempts and
// the end of their context; who renews a lease or opens a watch, which are streams, tries again in
// any case.
func refusals(tls *env.TLS) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return refusal(tls, invoke(ctx, method, request, reply, conn, options...))
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, conn, method, options...)
			if err != nil {
				return nil, refusal(tls, err)
			}
			return refusedStream{stream, tls}, nil
		}),
	}
}

// refusedStream is a stream that returns refusals.
type refusedStream struct {
	grpc.ClientStream
	tls *env.TLS
}

func (s refusedStream) RecvMsg(m any) error { return refusal(s.tls, s.ClientStream.RecvMsg(m)) }
