package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/coordinator"
)

func newDevCommand() *cobra.Command {
	var (
		listen, http, data, profile string
		who                         credentials
		log                         logging
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a coordinator and a broker in one process, for a laptop",
		Long: `Run a coordinator and a broker in one process, for a laptop.

When clients can connect it prints one line to standard output: ready: nats://HOST:PORT
Everything it keeps is below --data; the same folder makes it go on where it stopped.`,
		Example: `  carillon dev --data ./carillon-data
  carillon dev --listen 127.0.0.1:4333 --data ./d --user me --password secret`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireFlags(cmd, "data"); err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(listen); err != nil {
				return usageError{fmt.Errorf("--listen %q is not host:port: %w", listen, err)}
			}
			auth, err := who.auth()
			if err != nil {
				return err
			}
			limit, err := limits.ForProfile(profile)
			if err != nil {
				return usageError{fmt.Errorf("--profile: %w", err)}
			}
			logger, err := log.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			local, err := coordinator.StartLocal(cmd.Context(), filepath.Join(data, "etcd"), logger)
			if err != nil {
				return fmt.Errorf("start the coordinator: %w", err)
			}
			defer local.Close()
			ctx, cancel := context.WithCancelCause(cmd.Context())
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				select {
				case <-local.Done():
					cancel(errors.New("the coordinator stopped by itself; the log says why"))
				case <-ctx.Done():
				}
			}()
			err = broker.Run(ctx, broker.Config{
				Name: "dev", Cluster: "local/dev", Version: version, Data: filepath.Join(data, "broker"),
				Client: broker.Address{Listen: listen}, HTTP: broker.Address{Listen: http},
				Endpoints: local.Endpoints(), Profile: limit, Auth: auth, LameDuck: time.Second, Logger: logger,
				Ready: func(address string) { fmt.Fprintf(cmd.OutOrStdout(), "ready: nats://%s\n", address) },
			})
			cancel(nil)
			<-watched
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:4222", "where NATS clients connect")
	f.StringVar(&http, "http-listen", "", "where probes, metrics, /varz and /connz are served (default nowhere)")
	f.StringVar(&data, "data", "", "folder for everything that is kept; made if it is not there")
	f.StringVar(&profile, "profile", "small", "limits: small, medium, large or xlarge")
	who.flags(f)
	log.flags(f, "warn")
	return cmd
}
