package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchNoisyCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Noisy{}
	cmd := &cobra.Command{
		Use:   "noisy",
		Short: "Latency of a bystander, alone and beside a noise",
		Long: `Latency of a bystander, alone and beside a noise.

flood: requests at --rate, beside one publisher and one subscriber at the highest rate.
fanout: publishes to a stream at --rate, each with its ack, beside one publisher and --subscribers
subscribers at the highest rate. The stream, in files on one replica, is deleted at the end.

Requests and publishes are due at times fixed beforehand, and latency counts from then. A server
that lets the noise be louder has more to do beside it: compare noise/s, too.`,
		Example: `  carillon bench noisy --server nats://127.0.0.1:4222
  carillon bench noisy --noise flood --rate 1000 --against nats-server=nats://127.0.0.1:4223 --repeat 5 --report noisy.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Warmup, c.Duration, c.Seed = f.warmup, f.duration, f.seed
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&c.Noises, "noise", []string{bench.NoiseFlood, bench.NoiseFanout}, "what to measure: flood (beside requests) or fanout (beside a stream)")
	_ = cmd.RegisterFlagCompletionFunc("noise", cobra.FixedCompletions([]string{bench.NoiseFlood, bench.NoiseFanout}, cobra.ShellCompDirectiveNoFileComp))
	flags.IntVar(&c.Subscribers, "subscribers", 100, "subscribers of the fan-out")
	flags.Float64Var(&c.Rate, "rate", 500, "requests, or publishes, a second of the bystander")
	flags.IntVar(&c.PayloadBytes, "size", 128, "payload `bytes` of bystander and noise, at least 32")
	flags.DurationVar(&f.warmup, "warmup", time.Second, "load before each measurement")
	flags.DurationVar(&f.duration, "duration", 5*time.Second, "how long to measure without the noise, and again with it")
	_ = flags.MarkHidden("published")
	return cmd
}
