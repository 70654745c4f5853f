package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
)

// testClock is the environment variable with the path of a file by which the broker's wall clock is
// shifted, for test/chaos only.
const testClock = "CARILLON_TEST_CLOCK"

func newBrokerCommand() *cobra.Command {
	var (
		config  broker.Config
		who     credentials
		log     logging
		tlsDir  string
		etcdDir string
		secure  clientTLS
		web     webSocket
		profile string
		allowed pushAllow
	)
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run one broker of a cluster",
		Long: `Run one broker of a cluster. In Kubernetes the operator starts it in a pod of a StatefulSet.

It joins the membership in etcd, links to the other brokers, and takes NATS clients. SIGTERM makes it
ask its clients to go elsewhere and then stop.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := requireFlags(cmd, "name", "cluster", "data", "etcd-endpoints"); err != nil {
				return err
			}
			if ns, name, ok := strings.Cut(config.Cluster, "/"); !ok || ns == "" || name == "" || strings.Contains(name, "/") {
				return usageError{fmt.Errorf("--cluster %q is not namespace/name of a Broker", config.Cluster)}
			}
			if config.LameDuck < 0 {
				return usageError{fmt.Errorf("--lame-duck %s is negative", config.LameDuck)}
			}
			if config.StallLimit != 0 && config.StallLimit < limits.DiskStallWarn {
				return usageError{fmt.Errorf("--disk-stall-limit %s is too short: use 0, or at least %s", config.StallLimit, limits.DiskStallWarn)}
			}
			if config.Profile, err = limits.ForProfile(profile); err != nil {
				return usageError{fmt.Errorf("--profile: %w", err)}
			}
			if config.PushAllow, err = allowed.prefixes(); err != nil {
				return err
			}
			if config.Auth, config.Users, err = who.auth(); err != nil {
				return err
			}
			if config.UsersFromEtcd && (config.Users != "" || config.Auth.Given()) {
				return usageError{errors.New("--users-from-etcd was given, and also a file of users, a user or a token: choose one")}
			}
			if config.Logger, err = log.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			if tlsDir != "" {
				if config.TLS, err = env.LoadTLS(tlsDir); err != nil {
					return err
				}
			}
			if etcdDir != "" {
				if config.EtcdTLS, err = env.LoadTLS(etcdDir); err != nil {
					return err
				}
			}
			if config.ClientTLS, err = secure.load(); err != nil {
				return err
			}
			if err := web.load(&config.WebSocket, config.ClientTLS.Files != nil); err != nil {
				return err
			}
			if path := os.Getenv(testClock); path != "" {
				if config.Clock, err = env.NewShiftedClock(path, config.Logger); err != nil {
					return err
				}
			}
			config.Version, config.Sever = version, env.SeverSockets
			return broker.Run(cmd.Context(), config)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.Name, "name", "", "name of this broker, for people: its pod's")
	f.StringVar(&config.Cluster, "cluster", "", "namespace/name of the Broker that it belongs to")
	f.StringVar(&config.Zone, "zone", "", "zone of its node; may be empty")
	f.StringVar(&config.Data, "data", "", "folder of its volume")
	f.StringVar(&config.Client.Listen, "client-listen", ":4222", "where NATS clients connect")
	f.StringVar(&config.Client.Advertise, "client-advertise", "", "host:port under which clients reach that")
	f.StringVar(&config.WebSocket.Listen, "websocket-listen", "", "where NATS clients connect by WebSocket, with TLS if there is --client-tls-dir (default nowhere)")
	f.StringVar(&config.WebSocket.Advertise, "websocket-advertise", "", "host:port under which clients reach that")
	f.BoolVar(&web.plaintext, "websocket-no-tls", false, "serve WebSocket in plaintext although there is --client-tls-dir: behind a proxy that ends TLS")
	web.flags(f)
	f.StringVar(&config.Route.Listen, "route-listen", ":6222", "where other brokers connect")
	f.StringVar(&config.Route.Advertise, "route-advertise", "", "host:port under which other brokers reach that")
	f.StringVar(&config.HTTP.Listen, "http-listen", ":8222", "where probes, metrics, /varz and /connz are served")
	f.StringVar(&config.HTTP.Advertise, "http-advertise", "", "host:port under which others reach that")
	f.StringSliceVar(&config.Endpoints, "etcd-endpoints", nil, "URLs of the coordinators, separated by commas")
	f.StringVar(&tlsDir, "tls-dir", "", "folder with ca.crt, tls.crt and tls.key for routes; read again when they change. Empty: plaintext")
	f.StringVar(&etcdDir, "etcd-tls-dir", "", "the same for etcd (default that of --tls-dir)")
	secure.flags(f)
	f.StringVar(&profile, "profile", limits.DefaultProfile, "size of the node: small, medium, large or xlarge")
	f.DurationVar(&config.StallLimit, "disk-stall-limit", limits.DiskStallLimit, "how long the disk may not answer before this broker hands over leadership and ends; 0: it only reports that")
	f.DurationVar(&config.LameDuck, "lame-duck", 20*time.Second, "over how long clients are asked to leave at the end")
	allowed.flags(f)
	f.BoolVar(&config.PushByClients, "push-by-clients", false, "let clients declare Subscriptions that push, not only manifests: whoever may connect can have this broker send requests")
	f.StringVar(&config.PushSecrets, "push-secrets", "", "folder with the values that Subscriptions refer to in Secrets; read again when they change")
	who.flags(f)
	f.BoolVar(&config.UsersFromEtcd, "users-from-etcd", false, "take the users and their permissions from etcd, where the operator writes them; changes apply within a second. While there are none, nobody may connect")
	log.flags(f, "info")
	return cmd
}

// requireFlags returns an error if the command line lacks one of these flags.
func requireFlags(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s is required: %s", name, cmd.Flags().Lookup(name).Usage)}
		}
	}
	return nil
}

// noArguments returns an error if there are arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, but was given %q", cmd.CommandPath(), args)}
	}
	return nil
}
