package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// connectTimeout bounds the first connection of a command.
const connectTimeout = 5 * time.Second

// clientFlags are the address of a server and the credentials for it.
type clientFlags struct {
	server, user, password, token, nkey string
	tls                                 tlsFlags
}

func (c *clientFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&c.server, "server", cmp.Or(os.Getenv("NATS_URL"), defaultServer), "server `URL`, or several of one cluster with commas between them (env NATS_URL)")
	f.Lookup("server").DefValue = defaultServer // the environment's may hold a password
	f.StringVar(&c.user, "user", "", "user (env CARILLON_USER)")
	f.StringVar(&c.password, "password", "", "password (env CARILLON_PASSWORD, which other users of the machine can't see)")
	f.StringVar(&c.token, "token", "", "token (env CARILLON_TOKEN)")
	f.StringVar(&c.nkey, "nkey", "", "file with the seed of an nkey, which signs the server's nonce (env CARILLON_NKEY)")
	c.tls.flags(f)
}

// connect connects within connectTimeout. Later the client follows the addresses that the cluster
// announces.
func (c *clientFlags) connect(ctx context.Context, name string, more ...nats.Option) (*nats.Conn, error) {
	options := append([]nats.Option{nats.Name(name), nats.Timeout(connectTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond)}, more...)
	user, password := cmp.Or(c.user, os.Getenv("CARILLON_USER")), cmp.Or(c.password, os.Getenv("CARILLON_PASSWORD"))
	if user != "" {
		options = append(options, nats.UserInfo(user, password))
	}
	if token := cmp.Or(c.token, os.Getenv("CARILLON_TOKEN")); token != "" {
		options = append(options, nats.Token(token))
	}
	if path := cmp.Or(c.nkey, os.Getenv("CARILLON_NKEY")); path != "" {
		key, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			return nil, fmt.Errorf("--nkey %s: %w (the file has one seed, which begins with SU; make one with: carillon user nkey)", path, err)
		}
		options = append(options, key)
	}
	secure, err := c.tls.config()
	if err != nil {
		return nil, err
	}
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	if c.tls.first {
		options = append(options, nats.TLSHandshakeFirst())
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.server, options...)
	switch {
	case err == nil:
		return nc, nil
	case errors.Is(err, nats.ErrAuthorization):
		return nil, fmt.Errorf("connect: the server refuses these credentials; give --user and --password, --token or --nkey")
	}
	if why := c.tls.explain(err); why != nil {
		return nil, why
	}
	return nil, fmt.Errorf("connect: %w (is the server running, and is --server right?)", err)
}
