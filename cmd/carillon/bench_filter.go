package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchFilterCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Filter{}
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "What Subscriptions with conditions on content cost, by their number",
		Long: `What Subscriptions with conditions on content cost, by their number.

It makes a stream over the JetStream API and, for each of --filters, so many durable consumers with
the conditions json.k == 0, json.k == 1 and so on. Messages of JSON come at --rate, and each matches
one of the consumers, whatever their number. So what differs is what the conditions cost: the table
has the server's CPU time over that of the first number. It needs --server-pid.

Latency counts from when a message was due. A message that its consumer doesn't get, or that another
one gets, is a fault. The stream is deleted at the end, and its consumers with it.`,
		Example: `  carillon bench filter --server-pid $(pidof -s carillon)
  carillon bench filter --filters 1,10000 --rate 5000 --durability memory --server-pid 12+34+56`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Warmup, c.Duration = f.warmup, f.duration
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&c.Filters, "filters", []int{1, 10, 100, 1000, 10_000},
		"numbers of Subscriptions, each with another condition")
	flags.Float64Var(&c.Rate, "rate", 20_000, "messages a second")
	flags.IntVar(&c.PayloadBytes, "size", 200, "`bytes` of a message of JSON, at least 128")
	flags.IntVar(&c.Replicas, "replicas", 1, "replicas of the stream, 1 to 5")
	durabilityFlag(cmd, &c.Durability, bench.DurabilitySynced)
	flags.DurationVar(&f.warmup, "warmup", 2*time.Second, "load before the measurement")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure each number")
	for _, without := range []string{"seed", "published"} {
		_ = flags.MarkHidden(without)
	}
	return cmd
}

// durabilityFlag adds what an ack of a stream promises.
func durabilityFlag(cmd *cobra.Command, to *string, usual string) {
	all := []string{bench.DurabilitySynced, bench.DurabilityReplicated, bench.DurabilityMemory}
	cmd.Flags().StringVar(to, "durability", usual,
		"what an ack promises: synced, replicated or memory")
	complete(cmd, "durability", all...)
}
