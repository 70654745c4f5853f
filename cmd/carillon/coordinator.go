package main

import (
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/coordinator"
)

func newCoordinatorCommand() *cobra.Command {
	var (
		config coordinator.Config
		log    logging
	)
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run one etcd member, which brokers coordinate through",
		Long: `Run one etcd member, which brokers coordinate through. In Kubernetes the operator starts
it in a pod of a StatefulSet, one, three or five of them.

All members get the same --initial-cluster. The first time they form a cluster. Later a member
goes on with what is on its volume; one whose volume is empty has its old self removed, joins
again as a learner, copies everything and is promoted to vote. That a cluster has existed it
learns from --bootstrapped-file or from the other members; until it has found them it waits.

Everything but --http-listen is served with mutual TLS. The files of --tls-dir and --peer-tls-dir
are read again when they change; a change of the CA itself takes a restart.

SIGTERM hands the leadership over and stops.`,
		Example: `  carillon coordinator --name main-coordinator-0 --data /data --tls-dir /etc/carillon/tls \
    --advertise-host main-coordinator-0.main-coordinators.default.svc --cluster-token 7d1c \
    --initial-cluster main-coordinator-0=https://main-coordinator-0.main-coordinators.default.svc:2380`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := requireFlags(cmd, "name", "data", "tls-dir", "advertise-host", "initial-cluster", "cluster-token"); err != nil {
				return err
			}
			if err := config.Validate(); err != nil {
				return usageError{err}
			}
			if config.Logger, err = log.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			return coordinator.Run(cmd.Context(), config)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.Name, "name", "", "name of this member: its pod's")
	f.StringVar(&config.DataDir, "data", "", "folder of its volume")
	f.StringVar(&config.TLSDir, "tls-dir", "", "folder with ca.crt, tls.crt and tls.key for brokers and the operator; without --peer-tls-dir for the other members, too")
	f.StringVar(&config.PeerTLSDir, "peer-tls-dir", "", "the same for the other members, which may have a CA of their own (default that of --tls-dir)")
	f.StringVar(&config.ClientListen, "client-listen", ":2379", "where brokers and the operator connect")
	f.StringVar(&config.PeerListen, "peer-listen", ":2380", "where the other members connect")
	f.StringVar(&config.HTTPListen, "http-listen", ":8223", "where /healthz/startup, /healthz/ready, /healthz/live and /metrics are served, without TLS")
	f.StringVar(&config.AdvertiseHost, "advertise-host", "", "DNS name under which all of them reach this member")
	f.StringVar(&config.InitialCluster, "initial-cluster", "", "all members: NAME=https://HOST:PORT,... with their peer ports")
	f.StringVar(&config.ClusterToken, "cluster-token", "", "what tells this cluster from an earlier one of the same name: the Broker's uid")
	f.StringVar(&config.BootstrappedFile, "bootstrapped-file", "", "if this file is there and not empty, the cluster has existed and is never formed anew")
	log.flags(f, "info")
	return cmd
}
