package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/bench"
)

func newBenchConnectionsCommand() *cobra.Command {
	f, c := &benchFlags{}, bench.Connections{}
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Time to connect, and memory of idle connections",
		Long: `Time to connect, and memory of idle connections.

Connections are opened at --rate, each when it is due, or with --rate 0 all at once, without TLS or
with it. Latency counts from the due time until the connection's PONG. They are idle for --hold,
answer a PING each, and are closed.

With --server-pid the report has the server's memory for each idle connection: what it holds beyond
what it held before the first run. Start the servers afresh for it: memory that an earlier load
left behind would be taken for none.`,
		Example: `  carillon bench connections --server nats://127.0.0.1:4222 --server-pid $(pidof carillon)
  carillon bench connections --connections 1000,10000 --rate 0 --against nats-server=nats://127.0.0.1:4223
  carillon bench connections --server tls://main.default.svc:4222 --tls-ca ca.crt`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, c.Workloads) },
	}
	f.common(cmd)
	flags := cmd.Flags()
	flags.IntSliceVar(&c.Connections, "connections", []int{10_000}, "numbers of connections to measure with")
	flags.Float64Var(&c.Rate, "rate", 2000, "connections that are opened in a second; 0 opens all at once")
	flags.DurationVar(&c.Hold, "hold", 5*time.Second, "how long the connections are idle before the server's memory is read")
	hideUnused(cmd)
	return cmd
}
