package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/coordinator"
)

const (
	// devCluster is the name of the Broker to which the data in --data belong, with any number of
	// brokers.
	devCluster = "local/dev"
	// devLameDuck is how long clients are asked to leave. It is short, since Ctrl-C waits for it.
	devLameDuck = time.Second
	// maxDevBrokers bounds a cluster on a laptop; more show nothing that these don't.
	maxDevBrokers = 9
)

// devOptions are the flags of dev.
type devOptions struct {
	listen, web, http, data, profile string
	brokers                          int
	tls                              bool
	logging                          logging
	pushAllow                        pushAllow
	webSocket                        webSocket

	limits  limits.Profile
	allowed []netip.Prefix // pushAllow
	auth    login.Single
	users   string
	webPort broker.WebSocket
	tlsDir  string    // folder with the certificate
	out     io.Writer // receives the line that says that it is ready
	errors  io.Writer
	log     *slog.Logger
}

func newDevCommand() *cobra.Command {
	var (
		o   devOptions
		who credentials
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a coordinator and one or more brokers, for a laptop",
		Long: `Run a coordinator and one or more brokers, for a laptop.

When clients can connect it prints one line to standard output: ready: nats://HOST:PORT
Everything it keeps is below --data; the same folder makes it go on where it stopped.

With --brokers it is a cluster. Each broker is a process of its own, on consecutive ports from that of
--listen, with its data in DATA/broker-N and its pid in DATA/broker-N/pid; kill one, and it is started
again. The line then has the URLs of all, with commas between them. --http-listen is the first of as
many consecutive ports, too.

With --tls, clients have to use TLS. The CA and the certificate are in DATA/tls and are kept; they
are for localhost, its addresses and this machine's name. The line then has tls:// URLs, and the
next ones say how to connect with DATA/tls/ca.crt.

With --websocket-listen, clients connect by WebSocket, too, such as nats.js in a browser. After the
ready line there is one with its URL: websocket: ws://HOST:PORT, or wss:// with --tls. It is the first
of as many consecutive ports. Programs of all web pages that the browser shows may connect there,
unless --websocket-origins says which.

With --push-allow, clients may declare Subscriptions that push records to HTTP endpoints in these
networks, as carillon subscription create --push does. In Kubernetes only manifests may.`,
		Example: `  carillon dev --data ./carillon-data
  carillon dev --listen 127.0.0.1:4333 --data ./d --user me --password secret
  carillon dev --brokers 3 --data ./carillon-data
  carillon dev --data ./carillon-data --tls
  carillon dev --data ./carillon-data --push-allow 127.0.0.0/8`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := requireFlags(cmd, "data"); err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(o.listen); err != nil {
				return usageError{fmt.Errorf("--listen %q is not host:port: %w", o.listen, err)}
			}
			if o.brokers < 1 || o.brokers > maxDevBrokers {
				return usageError{fmt.Errorf("--brokers %d: choose 1 to %d", o.brokers, maxDevBrokers)}
			}
			if err := o.checkCluster(); err != nil {
				return err
			}
			o.webPort.Listen = o.web
			if err := o.webSocket.load(&o.webPort, o.tls); err != nil {
				return err
			}
			if o.allowed, err = o.pushAllow.prefixes(); err != nil {
				return err
			}
			if o.auth, o.users, err = who.auth(); err != nil {
				return err
			}
			if o.limits, err = limits.ForProfile(o.profile); err != nil {
				return usageError{fmt.Errorf("--profile: %w", err)}
			}
			o.out, o.errors = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if o.log, err = o.logging.logger(o.errors); err != nil {
				return err
			}
			if err := checkDevData(o.data, o.brokers); err != nil {
				return err
			}
			if o.brokers > 1 {
				return o.runCluster(cmd.Context())
			}
			return o.runOne(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:4222", "where NATS clients connect")
	f.StringVar(&o.web, "websocket-listen", "", "where NATS clients connect by WebSocket (default nowhere)")
	o.webSocket.flags(f)
	f.StringVar(&o.http, "http-listen", "", "where probes, metrics, /varz and /connz are served (default nowhere; with --brokers on free ports)")
	f.StringVar(&o.data, "data", "", "folder for everything that is kept; made if it is not there")
	f.IntVar(&o.brokers, "brokers", 1, fmt.Sprintf("number of brokers, 1 to %d", maxDevBrokers))
	f.StringVar(&o.profile, "profile", "small", "limits: small, medium, large or xlarge")
	f.BoolVar(&o.tls, "tls", false, "require TLS of clients, with a CA and a certificate made in DATA/tls")
	o.pushAllow.flags(f)
	who.flags(f)
	o.logging.flags(f, "warn")
	return cmd
}

// checkCluster returns what is wrong with the flags for several brokers.
func (o *devOptions) checkCluster() error {
	if o.brokers == 1 {
		return nil
	}
	for flag, from := range map[string]string{"listen": o.listen, "websocket-listen": o.web, "http-listen": o.http} {
		if from == "" && flag != "listen" {
			continue
		}
		if _, _, err := checkPorts(flag, from, o.brokers); err != nil {
			return err
		}
	}
	return nil
}

// runOne runs a broker and its coordinator in this process.
func (o *devOptions) runOne(ctx context.Context) error {
	local, err := o.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer local.Close()
	if err := o.makeTLS(); err != nil {
		return err
	}
	secure, err := o.clientTLS()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watchEtcd(ctx, local, cancel)
	}()
	err = broker.Run(ctx, broker.Config{
		Name: "dev", Cluster: devCluster, Version: version, Data: filepath.Join(o.data, devBrokerDir),
		Client: broker.Address{Listen: o.listen}, WebSocket: o.webPort, HTTP: broker.Address{Listen: o.http},
		Endpoints: local.Endpoints(), Profile: o.limits, Auth: o.auth, Users: o.users, ClientTLS: secure, PushAllow: o.allowed, PushByClients: len(o.allowed) > 0, LameDuck: devLameDuck, Logger: o.log,
		Ready: func(address, web string) {
			fmt.Fprintf(o.out, "ready: %s\n", o.url(address))
			o.announceWebSocket(web)
			if o.tls {
				fmt.Fprintf(o.out, "Try, with any NATS client or in another terminal:\n  carillon pub greet.world hello --server %s%s\n", o.url(address), o.trust())
			}
		},
	})
	cancel(nil)
	<-watched
	return err
}

// startEtcd starts etcd, and locks the data: a second process is refused.
func (o *devOptions) startEtcd(ctx context.Context) (*coordinator.Local, error) {
	local, err := coordinator.StartLocal(ctx, filepath.Join(o.data, "etcd"), o.log)
	if err != nil {
		return nil, fmt.Errorf("start the coordinator: %w", err)
	}
	return local, nil
}

// watchEtcd ends the command when etcd ends.
func watchEtcd(ctx context.Context, local *coordinator.Local, failed context.CancelCauseFunc) {
	select {
	case <-local.Done():
		failed(errors.New("the coordinator stopped by itself; the log says why"))
	case <-ctx.Done():
	}
}
