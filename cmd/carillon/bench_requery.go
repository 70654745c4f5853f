package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchRequeryCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Requery{}
	var interval string
	var own ownCluster
	var start, kill bool
	cmd := &cobra.Command{
		Use:   "requery",
		Short: "How soon live queries are told that publishers' attributes have changed",
		Long: `How soon live queries are told that publishers' attributes have changed.

--queries live queries, no two alike, are open on --sessions connections, and each matches --share
of all publishers. Publishers arrive one after another, and then all attributes of one publisher
change at a time. Latency counts from when a change was due until the client of a query has the
notice, that the publisher is a member or no member any more. All notices are counted.

It is the coordinator's workload of the CQBS paper (Fierro and Krogen, 2016), with its parameters,
which take 9 minutes; the table has their figures, too. --start starts three brokers and three
coordinators on loopback, and stops them at the end. In the paper the leader of the coordinators is
killed halfway: --kill-leader does that, and --midway is any other command. The attributes are those
of subjects of this run only. They are deleted at the end, and 10 s after the connections if the
program is killed.`,
		Example: `  carillon bench requery --server nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224
  carillon bench requery --start --kill-leader
  carillon bench requery --publishers 200 --changes 200 --interval 10ms,30ms
  carillon bench requery --midway 'kubectl delete pod carillon-coordinator-0 --grace-period 0 --force'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Least, c.Most, err = parseInterval(interval); err != nil {
				return usageError{fmt.Errorf("--interval %q: %w", interval, err)}
			}
			c.Seed = f.seed
			switch {
			case start && cmd.Flags().Changed("server"):
				return usageError{errors.New("--start and --server: choose one")}
			case kill && (!start || c.Midway != ""):
				return usageError{errors.New("--kill-leader needs --start, and no --midway")}
			case !start:
				return f.run(cmd, c.Workloads)
			}
			// What is done halfway is known when the cluster has started.
			workloads := func() ([]bench.Workload, error) { return c.Workloads() }
			return own.run(cmd, f, workloads, func(cluster *benchCluster) {
				if kill {
					c.Strike = cluster.killLeader
				}
			})
		},
	}
	f.common(cmd)
	f.showOriginals(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&c.Publishers, "publishers", []int{1000},
		"numbers of publishers to measure with")
	flags.IntVar(&c.Sessions, "sessions", 10,
		"connections that share the queries; as many others make the changes")
	flags.IntVar(&c.Queries, "queries", 500, "live queries, no two alike")
	flags.Float64Var(&c.Share, "share", 0.1,
		"of the publishers, that each query matches: 0.1 is a tenth")
	flags.IntVar(&c.Changes, "changes", 1000, "changes after all publishers have arrived")
	flags.StringVar(&interval, "interval", "50ms,500ms",
		"`LEAST,MOST` time between two arrivals, or changes; or one time")
	flags.StringVar(&c.Midway, "midway", "",
		"`command` that sh runs when half of the events are over")
	flags.BoolVar(&start, "start", false,
		"start brokers and coordinators, and measure these instead of --server")
	flags.BoolVar(&kill, "kill-leader", false,
		"kill the coordinator that leads when half of the events are over; with --start")
	own.flags(cmd, "with --start")
	complete(cmd, "interval", "50ms,500ms", "30ms,300ms", "10ms")
	return cmd
}

// showOriginals has the figures of the papers printed by default.
func (f *benchFlags) showOriginals(cmd *cobra.Command) {
	f.originals = true
	cmd.Flags().Lookup("published").DefValue = "true"
}

// parseInterval parses a time, or two of them.
func parseInterval(text string) (least, most time.Duration, err error) {
	first, second, both := strings.Cut(text, ",")
	if least, err = time.ParseDuration(strings.TrimSpace(first)); err == nil && both {
		most, err = time.ParseDuration(strings.TrimSpace(second))
	} else {
		most = least
	}
	if err != nil {
		return 0, 0, errors.New("write LEAST,MOST like 50ms,500ms, or one time")
	}
	return least, most, nil
}
