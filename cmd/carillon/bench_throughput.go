package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchThroughputCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Throughput{}
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Messages a second of publishers and subscribers at the highest rate",
		Long: `Messages a second of publishers and subscribers at the highest rate.

Publishers send on one subject as fast as the server takes it, and every subscriber receives all of
it: with 4:4, four messages are delivered for each one published. 1:0 publishes only. A run ends
when the subscribers have everything; messages that did not come, and subscribers that the server
cut off, are faults.

The client is the program's own and takes little CPU time; compare "bench CPU" in the table with
the number of cores.`,
		Example: `  carillon bench throughput --server nats://127.0.0.1:4222
  carillon bench throughput --clients 1:1,1:0 --size 16,128 --server-pid $(pidof carillon) --repeat 5
  carillon bench throughput --name carillon --against nats-server=nats://127.0.0.1:4223 --repeat 5`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Warmup, c.Duration = f.warmup, f.duration
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&c.Shapes, "clients", []string{"1:1", "4:4", "1:0"}, "`publishers:subscribers` to measure with")
	flags.IntSliceVar(&c.PayloadBytes, "size", []int{16, 128, 1024, 65536}, "payload `bytes` to measure with, at least 16")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "load before each measurement")
	flags.DurationVar(&f.duration, "duration", 2*time.Second, "how long to measure each load")
	hideUnused(cmd)
	return cmd
}
