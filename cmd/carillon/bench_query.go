package main

import (
	"bufio"
	"context"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchQueryCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Query{Scan: scanTopic}
	cmd := &cobra.Command{
		Use:   "query",
		Short: "How fast carillon query scans a Topic, with conditions and without",
		Long: `How fast carillon query scans a Topic, with conditions and without.

It makes a stream over the JetStream API, fills it with --records records of JSON, and scans it
--scans times in each of three ways: all records, those that match a condition, which are --share of
them, and those that match a condition that none does. They are counted and not printed. The rate
is of all records of the Topic. A scan that finds another number than there are is a fault. The
stream is deleted at the end.`,
		Example: `  carillon bench query --server-pid $(pidof -s carillon)
  carillon bench query --records 10000000 --share 0.01 --scans 3`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, c.Workloads)
		},
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&c.Records, "records", []int{2_000_000},
		"numbers of records to measure with; they are kept until the end")
	flags.IntVar(&c.PayloadBytes, "size", 200, "`bytes` of a record of JSON, at least 128")
	flags.Float64Var(&c.Share, "share", 0.001,
		"of the records, that the condition matches: 0.001 is one of a thousand")
	flags.IntVar(&c.Scans, "scans", 5, "scans of each kind, one after another")
	flags.IntVar(&c.Replicas, "replicas", 1, "replicas of the stream, 1 to 5")
	durabilityFlag(cmd, &c.Durability, bench.DurabilitySynced)
	for _, without := range []string{"seed", "published"} {
		_ = flags.MarkHidden(without)
	}
	return cmd
}

// scanTopic reads a Topic as carillon query does, and counts the messages that match.
func scanTopic(ctx context.Context, nc *nats.Conn, topic, where string) (matched int64, err error) {
	var q queryFlags
	cmd := &cobra.Command{}
	q.flags(cmd, "table", "json", "raw")
	q.results.flags(cmd)
	q.where, q.from, q.results.Functions = where, "earliest", "count()"
	cmd.SetOut(io.Discard)
	run := &query{topic: topic}
	from, to, err := q.compile(cmd, run)
	if err != nil {
		return 0, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(q.timeout))
	if err != nil {
		return 0, err
	}
	run.brokers = &brokers{nc, js, q.timeout, io.Discard}
	run.out = bufio.NewWriter(io.Discard)
	if err := run.printTo(q.output, ""); err != nil {
		return 0, err
	}
	err = run.all(ctx, from, to)
	return int64(run.matched), err
}
