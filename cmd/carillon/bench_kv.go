package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchKVCommand() *cobra.Command {
	f, k := &benchFlags{}, bench.KV{}
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Puts, gets and watches of a key-value bucket",
		Long: `Puts, gets and watches of a key-value bucket.

It makes a bucket (in files, on --replicas, with a history of 1) and puts every key once, which is
not measured. Then --writers put, --readers get, one writer puts, each as fast as it gets answers,
and watchers receive the values of all keys, one watcher after another. At the end the bucket is
deleted. The client is nats.go; all writers and readers share one connection to each address given.

A value that is read and is not the last one that was put for its key is a fault. Of a bucket on
several replicas a get may return an earlier value: those are counted as stale, and the watchers
must find the last ones.

What a put promises is up to the server. nats-server syncs to the disk some time after it, unless
its configuration has sync_interval: always; compare what keeps the same promise.`,
		Example: `  carillon bench kv --server nats://127.0.0.1:4222 --keys 10000 --writers 1,64
  carillon bench kv --name carillon --against default=nats://127.0.0.1:4223,synced=nats://127.0.0.1:4224 --repeat 5
  carillon bench kv --replicas 1,3 --server nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k.Warmup, k.Duration = f.warmup, f.duration
			return f.run(cmd, k.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntVar(&k.Keys, "keys", 10_000, "keys of the bucket")
	flags.IntSliceVar(&k.Writers, "writers", []int{64}, "numbers of writers to measure with, each with keys of its own")
	flags.IntVar(&k.Readers, "readers", 64, "number of readers")
	flags.IntSliceVar(&k.Replicas, "replicas", []int{1}, "numbers of replicas of the bucket to measure with, 1 to 5")
	flags.IntVar(&k.PayloadBytes, "size", 128, "`bytes` of a value, at least 32")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "load before each of the first three measurements")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "how long to measure writers, readers, and one writer, each")
	hideUnused(cmd)
	return cmd
}
