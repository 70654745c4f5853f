package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

// benchClusterOptions are the flags of cluster only.
type benchClusterOptions struct {
	load     bench.Cluster
	own      ownCluster
	interval string
}

func newBenchClusterCommand() *cobra.Command {
	f, o := &benchFlags{}, &benchClusterOptions{}
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Forwarding by attributes that change, over three brokers and three coordinators",
		Long: `Forwarding by attributes that change, over three brokers and three coordinators.

It starts the brokers and coordinators, each a process of this program on loopback, and stops them
and deletes their data at the end. With --server it measures those of that cluster instead: name all
of its brokers.

Each subscriber has a live query for its bucket and four of twelve rooms. Its bucket has twelve
publishers, in turn at the brokers, each with --rate messages a second, which change to the next
room in each --interval, by a header of a message. All begin at once. Latency counts from when a
message was due; what the start takes, and changes, are part of it. A message that a subscriber
doesn't get, or that it must not get, is a fault.

It is the complete system of the CQBS paper (Fierro and Krogen, 2016), with its parameters; the
table has their figures, too.`,
		Example: `  carillon bench cluster
  carillon bench cluster --duration 1m --interval 5s,10s --report cluster.html
  carillon bench cluster --server nats://h:4222,nats://h:4223,nats://h:4224 --server-pid 12+34+56`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, f) },
	}
	f.common(cmd)
	f.showOriginals(cmd)
	flags := cmd.Flags()
	flags.Lookup("server").DefValue = "" // else it would be said to be that of others
	o.own.flags(cmd, "if there is no --server")
	flags.IntVar(&o.load.Subscribers, "subscribers", 10,
		"subscribers at each broker, with twelve publishers each")
	flags.Float64Var(&o.load.Rate, "rate", 5, "messages per second of each publisher")
	flags.StringVar(&o.interval, "interval", "30s,60s",
		"`LEAST,MOST` time between two changes of a publisher; or one time")
	flags.IntVar(&o.load.PayloadBytes, "size", 32, "payload `bytes`, at least 32")
	flags.DurationVar(&f.duration, "duration", 5*time.Minute,
		"how long to measure, the start included")
	complete(cmd, "interval", "30s,60s", "5s,10s")
	return cmd
}

// run measures the cluster that is named, or one of its own.
func (o *benchClusterOptions) run(cmd *cobra.Command, f *benchFlags) (err error) {
	if o.load.Least, o.load.Most, err = parseInterval(o.interval); err != nil {
		return usageError{fmt.Errorf("--interval %q: %w", o.interval, err)}
	}
	o.load.Duration, o.load.Seed = f.duration, f.seed
	if cmd.Flags().Changed("server") || os.Getenv("NATS_URL") != "" {
		o.load.Brokers = len(strings.Split(f.server, ","))
		return f.run(cmd, o.load.Workloads)
	}
	o.load.Brokers = o.own.brokers
	return o.own.run(cmd, f, o.load.Workloads, func(*benchCluster) {})
}

// ownCluster is what a scenario starts if it measures brokers of its own.
type ownCluster struct {
	brokers, coordinators int
	data                  string
}

func (o *ownCluster) flags(cmd *cobra.Command, when string) {
	flags := cmd.Flags()
	flags.IntVar(&o.brokers, "brokers", 3, "brokers to start, "+when)
	flags.IntVar(&o.coordinators, "coordinators", 3, "coordinators to start, "+when+": 1, 3 or 5")
	flags.StringVar(&o.data, "data", "",
		"`folder` in which the processes keep their data while they run (default that for temporary files)")
	_ = cmd.MarkFlagDirname("data")
	complete(cmd, "coordinators", "1", "3", "5")
}

// run starts a cluster, measures it, and stops it. What is wrong on the command line is said before
// anything is started.
func (o *ownCluster) run(
	cmd *cobra.Command, f *benchFlags, workloads func() ([]bench.Workload,
		error), started func(*benchCluster),
) (err error) {
	if o.brokers < 1 || o.brokers > maxDevBrokers {
		return usageError{fmt.Errorf("--brokers %d: choose 1 to %d", o.brokers, maxDevBrokers)}
	}
	if o.coordinators != 1 && o.coordinators != 3 && o.coordinators != 5 {
		return usageError{fmt.Errorf("--coordinators %d: choose 1, 3 or 5", o.coordinators)}
	}
	if f.user+f.password+f.token+f.serverPID != "" {
		return usageError{errors.New("--user, --password, --token and --server-pid are for --server: name its brokers")}
	}
	if _, err := workloads(); err != nil {
		return usageError{err}
	}
	if _, err := f.campaign(cmd); err != nil {
		return usageError{err}
	}
	cluster, err := startBenchCluster(cmd.Context(), o.data, o.brokers, o.coordinators)
	if err != nil {
		return err
	}
	defer func() { err = joinStopped(err, cluster.stop()) }()
	started(cluster)
	f.server = strings.Join(cluster.urls(), ",")
	f.name = cmp.Or(f.name, "carillon")
	var pids []string
	for _, pid := range cluster.pids() {
		pids = append(pids, strconv.Itoa(pid))
	}
	f.serverPID = strings.Join(pids, "+")
	return f.run(cmd, workloads)
}
