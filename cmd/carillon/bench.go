package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/carillon-mq/carillon/bench"
)

const defaultServer = "nats://127.0.0.1:4222"

// benchFlags are the flags of all scenarios.
type benchFlags struct {
	server                  string
	against                 []string
	name, againstName       string
	user, password, token   string
	tls                     tlsFlags
	serverPID               string
	againstPID              []string
	repeat                  int
	wait, connect, drain    time.Duration
	seed                    uint64
	output, jsonFile        string
	pageFile                string
	originals               bool
	client                  string
	warmup, duration        time.Duration
	groups, subscribers     []int
	queries                 []int // beside those of forward
	publishers, perTopic    int
	waiting                 []int // publishers of durable
	window                  int
	replicas                []int
	connectTo               string
	rate                    float64
	forwardSize, fanoutSize int
	durableSize             int
	durableFor              time.Duration
	pace                    time.Duration
	rounds                  int
	short                   bool
	prepare                 func(*bench.Campaign) error // the part of one scenario only
}

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a server: latency percentiles, losses and duplicates, rates",
		Long: `Measure a server that speaks the NATS protocol.

In forward, fanout, connections, noisy, filter, requery, cluster, request with --rate, and the
second phase of consume the load is open loop: every message is due at a time fixed beforehand, and
latency counts from then, so a server that stalls can't hide it.
Lost, duplicated and reordered messages are counted exactly. The table goes to standard output; on
a terminal, progress goes to standard error. Ctrl-C prints what was measured until then.

The exit code is 0 if every message arrived once and in order (in failover: every acknowledged
one; in consume: again only after the ack wait; in kv: every key has its last value; in requery:
every notice came; in query: every scan found what matches), 1 if not, or if a server could not be
reached, or after an interrupt; 2 for a wrong command line.`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchForwardCommand(), newBenchFanoutCommand(), newBenchDurableCommand(), newBenchFailoverCommand(), newBenchLogCommand(), newBenchConsumeCommand(),
		newBenchKVCommand(), newBenchThroughputCommand(), newBenchRequestCommand(), newBenchConnectionsCommand(), newBenchNoisyCommand(),
		newBenchRequeryCommand(), newBenchFilterCommand(), newBenchQueryCommand(), newBenchClusterCommand(),
		newBenchAllCommand())
	return cmd
}

func newBenchForwardCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "forward",
		Short: "Groups of publishers with one subscriber each, at a steady rate",
		Long: `Groups of publishers with one subscriber each, at a steady rate.

A subscriber has a wildcard for the subjects of its group. With --queries it has a live query over
the publishers' attributes instead, and so many other queries are open that no publisher matches:
with --queries 10,10000 the table has the server's CPU time per message with 10,000 queries over
that with ten. It needs --server-pid. The attributes are deleted at the end.

A broker accepts 1,000 queries of a user, or of an address where there are no users. From the
broker's own machine under Linux, other queries come from several addresses of 127.0.0.0/8; else
name several users in --server.`,
		Example: `  carillon bench forward --server nats://127.0.0.1:4222
  carillon bench forward --against nats://127.0.0.1:4223 --against-name nats-server --repeat 5
  carillon bench forward --queries 10,10000 --groups 100 --rate 20 --server-pid $(pidof -s carillon)`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func() ([]bench.Workload, error) { return f.forward(bench.ClientNATS).Workloads() })
		},
	}
	f.common(cmd)
	f.forwardFlags(cmd)
	f.times(cmd, 5*time.Second, 30*time.Second, "nats")
	cmd.Flags().IntVar(&f.forwardSize, "size", 32, "payload `bytes`, at least 32")
	cmd.Flags().IntSliceVar(&f.queries, "queries", nil, "subscribers choose publishers by attributes, with live queries; so many other queries are open (default subscribers use wildcards)")
	return cmd
}

func newBenchFanoutCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Many subscribers over three topics",
		Example: `  carillon bench fanout --subscribers 10,100,1000
  carillon bench fanout --subscribers 10000 --pace 200ms --rounds 5 --server-pid $(pidof carillon)`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func() ([]bench.Workload, error) { return f.fanout(bench.ClientLight).Workloads() })
		},
	}
	f.common(cmd)
	f.fanoutFlags(cmd)
	f.times(cmd, 2*time.Second, 20*time.Second, "light")
	cmd.Flags().IntVar(&f.fanoutSize, "size", 50, "payload `bytes`, at least 32")
	return cmd
}

func newBenchDurableCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "durable",
		Short: "Publishers that wait until each message is stored",
		Long: `Publishers that wait until each message is stored.

It makes a stream over the JetStream API (in files, on --replicas), publishes to it on one
connection to each address given, checks every ack, reads the stream back, and deletes it. The
loop is closed: it finds how many acks a second a server gives, and how long a publisher waits
for one.

What an ack is worth is up to the server. nats-server syncs to the disk some time after it,
unless its configuration has sync_interval: always; compare what keeps the same promise.`,
		Example: `  carillon bench durable --server nats://127.0.0.1:4222
  carillon bench durable --name carillon --against default=nats://127.0.0.1:4223,synced=nats://127.0.0.1:4224
  carillon bench durable --replicas 1,3 --server nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func() ([]bench.Workload, error) { return f.durable(bench.ClientLight).Workloads() })
		},
	}
	f.common(cmd)
	f.durableFlags(cmd, "publishers")
	f.times(cmd, time.Second, 3*time.Second, "light")
	// Single runs vary too much where a disk takes part.
	cmd.Flags().IntVar(&f.durableSize, "size", 128, "payload `bytes`, at least 32")
	repeat := cmd.Flags().Lookup("repeat")
	repeat.DefValue = "5"
	f.repeat = 5
	return cmd
}

func newBenchAllCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "all",
		Short: "forward, fanout and durable in one report",
		Long: `forward, fanout and durable in one report.

durable is left out, with a line that says so, if a server does not speak JetStream.`,
		Example: `  carillon bench all --short --server nats://main.default.svc:4222`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, func() ([]bench.Workload, error) {
				f.shorten(cmd.Flags())
				forward, err := f.forward(bench.ClientNATS).Workloads()
				if err != nil {
					return nil, fmt.Errorf("forward: %w", err)
				}
				fanout, err := f.fanout(bench.ClientLight).Workloads()
				if err != nil {
					return nil, fmt.Errorf("fanout: %w", err)
				}
				durable := f.durable(bench.ClientLight)
				durable.Warmup, durable.Duration, durable.Optional = min(f.warmup, time.Second), f.durableFor, true
				waiting, err := durable.Workloads()
				if err != nil {
					return nil, fmt.Errorf("durable: %w", err)
				}
				return slices.Concat(forward, fanout, waiting), nil
			})
		},
	}
	f.common(cmd)
	f.forwardFlags(cmd)
	f.fanoutFlags(cmd)
	f.durableFlags(cmd, "durable-publishers")
	f.times(cmd, 3*time.Second, 20*time.Second, "nats for forward, light for fanout and durable")
	cmd.Flags().IntVar(&f.forwardSize, "forward-size", 32, "payload `bytes` of forward, at least 32")
	cmd.Flags().IntVar(&f.fanoutSize, "fanout-size", 50, "payload `bytes` of fanout, at least 32")
	cmd.Flags().IntVar(&f.durableSize, "durable-size", 128, "payload `bytes` of durable, at least 32")
	cmd.Flags().DurationVar(&f.durableFor, "durable-duration", 3*time.Second, "how long to measure each size of durable, which stores all that it publishes")
	cmd.Flags().BoolVar(&f.short, "short", false, "about 95 seconds: 2s of warm-up, 9s measured, at most 1000 subscribers")
	return cmd
}

func (f *benchFlags) common(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", cmp.Or(os.Getenv("NATS_URL"), defaultServer), "server `URL`, or several of one cluster with commas between them (env NATS_URL)")
	// Help must not show the environment's value, which may hold a password.
	flags.Lookup("server").DefValue = defaultServer
	flags.StringVar(&f.name, "name", "", "what to call the server in the report (default its address)")
	flags.StringArrayVar(&f.against, "against", nil, "`[NAME=]URL` of another server, measured in turn; may be repeated, or hold several with commas between them; credentials go into the URL")
	flags.StringVar(&f.againstName, "against-name", "", "what to call the other server in the report, if there is one (default its address)")
	flags.IntVar(&f.repeat, "repeat", 1, "runs of each size on each server, in the order A B B A; medians are shown")
	flags.StringVar(&f.user, "user", "", "user for --server (env CARILLON_USER)")
	flags.StringVar(&f.password, "password", "", "password for --server (env CARILLON_PASSWORD, which other users of the machine can't see)")
	flags.StringVar(&f.token, "token", "", "token for --server (env CARILLON_TOKEN)")
	f.tls.flags(flags)
	flags.StringVar(&f.serverPID, "server-pid", "", "`process` of the server on this machine, or those of a cluster with + between them: shows CPU and memory (Linux)")
	flags.StringSliceVar(&f.againstPID, "against-pid", nil, "`processes` of the other servers on this machine, in the order of --against")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait for a server to answer at the start")
	flags.DurationVar(&f.connect, "connect-timeout", bench.DefaultLimits.Connect, "limit for making all connections, and again for all subscribers to hear a first message")
	flags.DurationVar(&f.drain, "drain-timeout", bench.DefaultLimits.Drain, "how long after the last message one that has not come counts as lost")
	flags.Uint64Var(&f.seed, "seed", 1, "chooses the publishers' phases; the same seed gives the same schedule")
	flags.StringVarP(&f.output, "output", "o", "table", "what to print: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&f.jsonFile, "json", "", "also write the JSON report to this `file`")
	flags.StringVar(&f.pageFile, "report", "", "also write one self-contained HTML page to this `file`: tables, percentile curves, and latency over time")
	flags.BoolVar(&f.originals, "published", false, "show what the systems that the workloads come from reported, beside ours")
}

func (f *benchFlags) forwardFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.groups, "groups", []int{1, 10, 100}, "numbers of groups to measure with")
	flags.IntVar(&f.publishers, "publishers", 10, "publishers of each group")
	flags.Float64Var(&f.rate, "rate", 5, "messages per second of each publisher")
}

func (f *benchFlags) fanoutFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.subscribers, "subscribers", []int{10, 100, 1000, 10_000}, "numbers of subscribers to measure with")
	flags.IntVar(&f.perTopic, "messages", 10, "messages on each topic per round")
	flags.DurationVar(&f.pace, "pace", 0, "time between messages (default 20µs per subscriber, at least 10ms)")
	flags.IntVar(&f.rounds, "rounds", 0, "rounds to measure (default as many as --duration holds)")
}

func (f *benchFlags) durableFlags(cmd *cobra.Command, publishers string) {
	flags := cmd.Flags()
	flags.IntSliceVar(&f.waiting, publishers, []int{1, 32, 256}, "numbers of publishers to measure with, each of which waits for its ack")
	flags.IntVar(&f.window, "window", 4096, "messages in flight of one more publisher, which does not wait; 0 leaves it out")
	flags.IntSliceVar(&f.replicas, "replicas", []int{1}, "numbers of replicas of the stream to measure with, 1 to 5")
	flags.StringVar(&f.connectTo, "connect-to", bench.ConnectSpread, "to whom of several addresses the publishers connect: spread, leader (of the stream) or follower")
	_ = cmd.RegisterFlagCompletionFunc("connect-to", cobra.FixedCompletions([]string{bench.ConnectSpread, bench.ConnectLeader, bench.ConnectFollower}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *benchFlags) times(cmd *cobra.Command, warmup, duration time.Duration, client string) {
	flags := cmd.Flags()
	flags.DurationVar(&f.warmup, "warmup", warmup, "load before the measurement, left out of the latencies")
	flags.DurationVar(&f.duration, "duration", duration, "how long to measure each size")
	flags.StringVar(&f.client, "client", "", "nats (nats.go) or light (made for thousands of subscribers) (default "+client+")")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions([]string{bench.ClientNATS, bench.ClientLight}, cobra.ShellCompDirectiveNoFileComp))
}

// shorten applies --short to the flags that the command line does not set.
func (f *benchFlags) shorten(flags *pflag.FlagSet) {
	if !f.short {
		return
	}
	if !flags.Changed("warmup") {
		f.warmup = 2 * time.Second
	}
	if !flags.Changed("duration") {
		f.duration = 9 * time.Second
	}
	if !flags.Changed("subscribers") {
		f.subscribers = []int{10, 100, 1000}
	}
}

func (f *benchFlags) forward(client string) bench.Forward {
	return bench.Forward{
		Groups: f.groups, PublishersPerGroup: f.publishers, Rate: f.rate, PayloadBytes: f.forwardSize,
		Warmup: f.warmup, Duration: f.duration, Client: cmp.Or(f.client, client), Seed: f.seed, Queries: f.queries,
	}
}

func (f *benchFlags) fanout(client string) bench.Fanout {
	return bench.Fanout{
		Subscribers: f.subscribers, MessagesPerTopic: f.perTopic, Pace: f.pace, Rounds: f.rounds,
		PayloadBytes: f.fanoutSize, Warmup: f.warmup, Duration: f.duration, Client: cmp.Or(f.client, client),
	}
}

func (f *benchFlags) durable(client string) bench.Durable {
	return bench.Durable{
		Publishers: f.waiting, Window: f.window, Replicas: f.replicas, Connect: f.connectTo, PayloadBytes: f.durableSize,
		Warmup: f.warmup, Duration: f.duration, Client: cmp.Or(f.client, client),
	}
}

func (f *benchFlags) run(cmd *cobra.Command, workloads func() ([]bench.Workload, error)) error {
	made, err := workloads()
	if err != nil {
		return usageError{err}
	}
	c, err := f.campaign(cmd)
	if err != nil {
		return usageError{err}
	}
	if f.prepare != nil {
		if err := f.prepare(&c); err != nil {
			return usageError{err}
		}
	}
	c.Workloads = made
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	// The file is opened first, so that a path that can't be written costs no measurement.
	var file *os.File
	if f.jsonFile != "" {
		if file, err = os.Create(f.jsonFile); err != nil {
			return usageError{fmt.Errorf("--json: %w", err)}
		}
	}
	var page *pendingFile
	if f.pageFile != "" {
		if page, err = beginFile(f.pageFile); err != nil {
			return usageError{fmt.Errorf("--report: %w", err)}
		}
		defer page.abandon()
	}
	report, err := runWithProgress(cmd.Context(), c, cmd.ErrOrStderr())
	if err != nil {
		return cmp.Or(f.tls.explain(err), err)
	}
	err = f.print(cmd.OutOrStdout(), file, report)
	if page != nil {
		err = errors.Join(err, page.finish(report.WritePage))
	}
	return errors.Join(err, report.Err())
}

func (f *benchFlags) campaign(cmd *cobra.Command) (bench.Campaign, error) {
	if f.output != "table" && f.output != "json" {
		return bench.Campaign{}, fmt.Errorf("--output is %q; give table or json", f.output)
	}
	user, password, token := cmp.Or(f.user, os.Getenv("CARILLON_USER")), cmp.Or(f.password, os.Getenv("CARILLON_PASSWORD")), cmp.Or(f.token, os.Getenv("CARILLON_TOKEN"))
	if user != "" && token != "" {
		return bench.Campaign{}, errors.New("a user and a token were given for the server: choose one")
	}
	pids, err := parsePIDs(f.serverPID)
	if err != nil {
		return bench.Campaign{}, fmt.Errorf("--server-pid: %w", err)
	}
	server, err := bench.ParseTarget(f.name, f.server, user, password, token, pids...)
	if err != nil {
		return bench.Campaign{}, fmt.Errorf("--server: %w", err)
	}
	secure, err := f.tls.config()
	if err != nil {
		return bench.Campaign{}, err
	}
	if secure != nil || f.tls.first {
		server.UseTLS(secure, f.tls.first)
	}
	c := bench.Campaign{
		Server: server, Repeat: f.repeat, Wait: f.wait, Seed: f.seed, Version: version,
		Limits: bench.Limits{Connect: f.connect, Drain: f.drain, Grace: bench.DefaultLimits.Grace},
	}
	if c.Against, err = f.others(); err != nil {
		return bench.Campaign{}, err
	}
	c.Command = commandLine(cmd, c)
	return c, nil
}

// others returns the servers to compare with.
func (f *benchFlags) others() ([]bench.Target, error) {
	others, err := bench.ParseTargets(f.against)
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	if f.againstName != "" {
		if len(others) != 1 {
			return nil, fmt.Errorf("--against-name is for one other server, and --against names %d; give --against NAME=URL", len(others))
		}
		others[0].Name = f.againstName
	}
	if len(f.againstPID) > len(others) {
		return nil, fmt.Errorf("--against-pid has %d processes, and --against %d servers", len(f.againstPID), len(others))
	}
	for i, text := range f.againstPID {
		if others[i].PIDs, err = parsePIDs(text); err != nil {
			return nil, fmt.Errorf("--against-pid: %w", err)
		}
	}
	return others, nil
}

// parsePIDs parses the process ids of one server: 12, or 12+34+56.
func parsePIDs(text string) (pids []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, "+") {
		pid, err := strconv.Atoi(part)
		if err != nil || pid < 1 {
			return nil, fmt.Errorf("%q is no process id; give a number, or several with + between them", part)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// commandLine returns the given flags, without secrets.
func commandLine(cmd *cobra.Command, c bench.Campaign) []string {
	line := strings.Fields(cmd.CommandPath())
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		value := strings.Trim(flag.Value.String(), "[]") // lists as on the command line
		switch flag.Name {
		case "server":
			value = c.Server.URLs()
		case "against":
			for _, t := range c.Against {
				name := t.Name + "="
				if t.Name == t.Addresses[0].HostPort {
					name = ""
				}
				line = append(line, "--against="+name+t.URLs())
			}
			return
		case "password", "token":
			value = "(hidden)"
		}
		line = append(line, "--"+flag.Name+"="+value)
	})
	return line
}

// runWithProgress shows progress if standard error is a terminal.
func runWithProgress(ctx context.Context, c bench.Campaign, stderr io.Writer) (*bench.Report, error) {
	c.Status = func(string) {}
	if file, ok := stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		progress := bench.StartProgress(file)
		defer progress.Stop()
		c.Status = progress.Set
	}
	return c.Run(ctx)
}

func (f *benchFlags) print(out io.Writer, file *os.File, report *bench.Report) error {
	var errs []error
	if file != nil {
		errs = append(errs, report.WriteJSON(file), file.Close())
	}
	if f.output == "json" {
		return errors.Join(append(errs, report.WriteJSON(out))...)
	}
	return errors.Join(append(errs, report.WriteTable(out, f.originals))...)
}
