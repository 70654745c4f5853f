package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

// failoverFlags are the flags of failover only.
type failoverFlags struct {
	publishers, replicas, size, tries int
	fault, command                    string
	patterns, pids                    []string
	lasts, steady, timeout, interval  time.Duration
	within                            time.Duration
}

func newBenchFailoverCommand() *cobra.Command {
	f, o := &benchFlags{}, &failoverFlags{}
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "For how long nothing is acknowledged when the leader's broker is gone",
		Long: `For how long nothing is acknowledged when the leader's broker is gone.

It makes a replicated stream over the JetStream API. Publishers, each on a connection of its own
to one of the brokers, wait for every ack; try after try the broker that leads the stream is
killed, paused or cut off. Shown are the longest times between two acks of a publisher, of those
on the other brokers and of all. In the end the stream is read back: what was acknowledged must be
there, once, and in order. Then it is deleted.

--server names every broker of the cluster, with commas between. Which process a broker is says
--pid-file-pattern: %d stands for the number at the end of its name, %s for the name. Who is killed
must be started again by somebody else: carillon dev does that. What signals can't do, or not on
this machine, a command can: it is run by sh with the fault and the broker's name, and later with
heal and the name, unless the fault is kill. With --fault other the command does something that is no fault of that broker,
and all publishers count as others.`,
		Example: `  carillon bench failover --server nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224 --pid-file-pattern ./d/broker-%d/pid
  carillon bench failover --fault pause --fault-for 10s --pids a=12,b=34,c=56 --server nats://h:1,nats://h:2,nats://h:3
  carillon bench failover --fault cut --fault-command ./cut-off --server nats://h:1,nats://h:2,nats://h:3`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.prepare = o.processes
			return f.run(cmd, o.load().Workloads)
		},
	}
	f.common(cmd)
	o.flags(cmd)
	// Tries replace repeats, and nothing in its load is random.
	for _, without := range []string{"seed", "published", "drain-timeout"} {
		_ = cmd.Flags().MarkHidden(without)
	}
	return cmd
}

func (o *failoverFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&o.publishers, "publishers", 3, "publishers, in turn on the addresses of --server")
	flags.IntVar(&o.replicas, "replicas", 3, "replicas of the stream, 1 to 5")
	flags.IntVar(&o.size, "size", 128, "payload `bytes`, at least 32")
	flags.IntVar(&o.tries, "tries", 20, "how often the leader is taken away")
	flags.StringVar(&o.fault, "fault", bench.FaultKill, "what happens to the broker that leads: kill (-9), pause, or cut (by --fault-command); other: what --fault-command does elsewhere")
	flags.StringVar(&o.command, "fault-command", "", "`command` that does it instead of a signal; given the fault and the broker's name, later heal and the name")
	flags.DurationVar(&o.lasts, "fault-for", 0, "how long a broker is paused or cut off (default 10s); after a kill, how long is watched at least (default 5s)")
	flags.StringArrayVar(&o.patterns, "pid-file-pattern", nil, "`path` of files with the brokers' process ids, with %d or %s; repeated: for --server, then for each --against")
	flags.StringArrayVar(&o.pids, "pids", nil, "`name=pid,...`: the brokers' process ids; repeated: for --server, then for each --against")
	flags.DurationVar(&o.steady, "steady", 2*time.Second, "undisturbed publishing before each try")
	flags.DurationVar(&o.timeout, "ack-timeout", 200*time.Millisecond, "after which a publisher goes on with its next message")
	flags.DurationVar(&o.interval, "interval", 5*time.Millisecond, "time between two messages of a publisher, at least")
	flags.DurationVar(&o.within, "within", 0, "fail if publishers on the other brokers of --server wait longer than this in any try (default as long as it takes)")
	complete := cobra.FixedCompletions([]string{bench.FaultKill, bench.FaultPause, bench.FaultCut, bench.FaultOther}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("fault", complete)
}

func (o *failoverFlags) load() bench.Failover {
	lasts := o.lasts
	if lasts == 0 {
		lasts = 10 * time.Second
		if o.fault == bench.FaultKill {
			lasts = 5 * time.Second
		}
	}
	return bench.Failover{
		Publishers: o.publishers, Replicas: o.replicas, PayloadBytes: o.size, Tries: o.tries,
		Fault:  bench.Fault{Kind: o.fault, For: lasts, Command: o.command},
		Steady: o.steady, AckTimeout: o.timeout, Interval: o.interval, Within: o.within,
	}
}

// processes sets the process ids of the brokers of each target.
func (o *failoverFlags) processes(c *bench.Campaign) error {
	targets := []*bench.Target{&c.Server}
	for i := range c.Against {
		targets = append(targets, &c.Against[i])
	}
	if len(o.patterns) > len(targets) || len(o.pids) > len(targets) {
		return fmt.Errorf("--pid-file-pattern is given %d times and --pids %d, and there are %d servers", len(o.patterns), len(o.pids), len(targets))
	}
	at := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return ""
	}
	for i, t := range targets {
		p, err := bench.ParseProcesses(at(o.patterns, i), at(o.pids, i))
		if err != nil {
			return fmt.Errorf("--pid-file-pattern, --pids: %w", err)
		}
		t.Processes = p
	}
	return nil
}
