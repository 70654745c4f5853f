package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchConsumeCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Consume{}
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Consumers that take and acknowledge the messages of a stream",
		Long: `Consumers that take and acknowledge the messages of a stream.

It makes a stream over the JetStream API (in files, on --replicas) and fills it with --messages,
which is not measured. Then consumers, each on a connection of its own, take all of them through
one durable consumer and acknowledge each one: how many a second, until the server reports all as
acknowledged, and at which CPU time. In a second phase messages are published at --rate, and their
latency counts from the time they were due until a consumer took them. At the end the stream is
deleted.

Consumers pull --batch messages at a time, and ask for more when half of them came. With --push the
server sends messages to a queue group.

A message that does not come, comes twice without the server's mark, or is delivered again before
--ack-wait is a fault.`,
		Example: `  carillon bench consume --server nats://127.0.0.1:4222 --consumers 1,16 --batch 1,500
  carillon bench consume --push --against nats://127.0.0.1:4223 --against-name nats-server --repeat 5
  carillon bench consume --replicas 1,3 --server nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Warmup, c.Duration, c.Client = f.warmup, f.duration, cmp.Or(f.client, bench.ClientLight)
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	f.times(cmd, time.Second, 5*time.Second, "light")
	flags := cmd.Flags()
	flags.Lookup("warmup").Usage = "load before the second phase is measured"
	flags.Lookup("duration").Usage = "how long to measure the second phase"
	flags.IntSliceVar(&c.Consumers, "consumers", []int{1, 16}, "numbers of consumers to measure with")
	flags.IntSliceVar(&c.Batches, "batch", []int{500}, "numbers of messages of a pull to measure with")
	flags.BoolVar(&c.Push, "push", false, "a push consumer with a queue group instead of pulls")
	flags.IntSliceVar(&c.Replicas, "replicas", []int{1}, "numbers of replicas of the stream to measure with, 1 to 5")
	flags.IntVar(&c.Messages, "messages", 500_000, "messages in the stream at the start of the first phase")
	flags.Float64Var(&c.Rate, "rate", 0, "messages a second of the second phase (default a tenth of the rate that the first run of a load took, for all servers)")
	flags.IntVar(&c.AckPending, "ack-pending", 0, "bound of unacknowledged messages of all consumers together (default twice what they ask for, with --push 1000 for each, at least 1000)")
	flags.DurationVar(&c.AckWait, "ack-wait", 30*time.Second, "time after which the server delivers an unacknowledged message again")
	flags.IntVar(&c.PayloadBytes, "size", 128, "payload `bytes`, at least 32")
	hideUnused(cmd)
	return cmd
}

// hideUnused hides the flags of forward and fanout in scenarios without anything random or
// published.
func hideUnused(cmd *cobra.Command) {
	for _, without := range []string{"seed", "published"} {
		_ = cmd.Flags().MarkHidden(without)
	}
}
