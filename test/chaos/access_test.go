//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/testca"
)

// clusterName is the cluster of the brokers in etcd.
const clusterName = "chaos/main"

// The users of etcd, by their certificates.
const (
	brokerUser      = "main-broker"
	coordinatorUser = "main-coordinator"
)

// access is what the operator would give these users.
var access = coordination.Access{Cluster: []string{brokerUser}, Root: []string{coordinatorUser}}

// asRoot calls do with a client of etcd that may do everything, until it succeeds.
func (c *cluster) asRoot(what string, do func(context.Context, *coordination.Client) error) error {
	dir := c.tls(coordination.RootUser)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	c.ca.Issue(c.t, dir, testca.Options{Subject: coordination.RootUser})
	var files [][]byte
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		file, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	tls, err := coordination.ParseTLS(files[0], files[1], files[2])
	if err != nil {
		return err
	}
	etcd, err := coordination.Open(coordination.Config{Endpoints: c.endpoints, TLS: tls, Cluster: clusterName})
	if err != nil {
		return err
	}
	return errors.Join(within(patience, what, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		return do(ctx, etcd)
	}), etcd.Close())
}

// restrict makes the users of etcd and has it ask for them, as the operator does.
func (c *cluster) restrict() error {
	return c.asRoot("etcd asks for users", func(ctx context.Context, etcd *coordination.Client) error {
		return errors.Join(etcd.GrantAccess(ctx, access), etcd.EnableAccess(ctx, access))
	})
}

// restricted returns an error unless etcd asks for users, and has them as restrict made them.
func (c *cluster) restricted() error {
	return c.asRoot("etcd has its users", func(ctx context.Context, etcd *coordination.Client) error {
		state, err := etcd.Access(ctx, access)
		switch {
		case err != nil:
			return err
		case !state.Enabled:
			return errors.New("etcd asks for no users")
		case len(state.Lacks) > 0:
			return errors.New("the users of etcd lack " + strings.Join(state.Lacks, ", "))
		}
		return nil
	})
}
