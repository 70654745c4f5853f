package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchRequestCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Request{}
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Requests and replies between pairs of clients",
		Long: `Requests and replies between pairs of clients.

A requester and a responder, each on a connection of its own; the responder returns what it gets.
Without --rate the loop is closed: a requester sends its next request when it has the reply to the
one before. That finds how many requests a second a server carries, but a stall counts for one
request of each pair only. With --rate requests are due at times fixed beforehand, and latency
counts from then.

With several addresses, requester and responder of a pair are on different ones.`,
		Example: `  carillon bench request --server nats://127.0.0.1:4222 --pairs 1,16,64
  carillon bench request --rate 5000 --against nats-server=nats://127.0.0.1:4223 --repeat 5 --report request.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Warmup, c.Duration, c.Seed = f.warmup, f.duration, f.seed
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&c.Pairs, "pairs", []int{1, 16, 64}, "numbers of pairs to measure with")
	flags.Float64Var(&c.Rate, "rate", 0, "requests a second of all pairs together (default: each pair as fast as it gets replies)")
	flags.IntVar(&c.PayloadBytes, "size", 128, "payload `bytes` of a request and of its reply, at least 32")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "load before each measurement")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "how long to measure each number of pairs")
	_ = flags.MarkHidden("published")
	return cmd
}
