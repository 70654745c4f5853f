package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchLogCommand() *cobra.Command {
	f, l := &benchFlags{}, bench.Log{}
	cmd := &cobra.Command{
		Use:   "log",
		Short: "How many small records a second are written and read, in batches and one by one",
		Long: `How many small records a second are written and read, in batches and one by one.

It makes a stream of one shard over the JetStream API. Publishers, each on a connection of its
own, write records as fast as they are let, with a few messages under way; what counts is what was
acknowledged. Then readers, each on a connection of its own, go through all of it, again and
again; of every record they add up all bytes and compare them with what was written. In the end
the stream is deleted.

A message, and an answer, carries --batch records. With 1 they are ordinary messages. It needs a
server that knows batches of records.

Everything that is written is kept until the end, 64 MB for a million records: --records bounds it.`,
		Example: `  carillon bench log --server nats://127.0.0.1:4222 --durability memory
  carillon bench log --publishers 1,2,4,8,16 --readers 1,2,4,8,16 --batch 16384 --repeat 5`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.Warmup, l.Duration = f.warmup, f.duration
			return f.run(cmd, l.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&l.Publishers, "publishers", []int{1, 16}, "numbers of publishers to measure with")
	flags.IntSliceVar(&l.Readers, "readers", []int{1, 16}, "numbers of readers: as many as --publishers, or one for all")
	flags.IntSliceVar(&l.Batches, "batch", []int{1, 16384}, "numbers of records in a message to measure with")
	flags.IntVar(&l.PayloadBytes, "size", 64, "`bytes` of a record, a multiple of 8")
	flags.IntVar(&l.Window, "window", 0, "messages, or answers, under way of each client (default 4; with small batches 1024 messages and 32 answers)")
	durabilityFlag(cmd, &l.Durability, bench.DurabilitySynced)
	flags.IntVar(&l.Replicas, "replicas", 1, "replicas of the stream, 1 to 5")
	flags.Int64Var(&l.MostRecords, "records", 50_000_000, "records in all, after which writing ends; they are kept until the end")
	flags.DurationVar(&f.warmup, "warmup", 500*time.Millisecond, "load before each measurement")
	flags.DurationVar(&f.duration, "duration", 3*time.Second, "how long to measure writing, and again reading")
	// Its load runs at the highest rate: nothing in it is random, and no paper reports it.
	hideUnused(cmd)
	return cmd
}
