package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/client"
)

// queryFlags are what is asked for, and how it is printed.
type queryFlags struct {
	manageFlags
	where    string
	subjects []string
	from, to string
	count    int
	follow   bool
	file     string
	results  aggregateFlags
}

func newQueryCommand() *cobra.Command {
	var q queryFlags
	cmd := &cobra.Command{
		Use:   "query TOPIC",
		Short: "Print the messages of a Topic whose content matches a condition, or results computed of them",
		Long: `Print the messages of a Topic whose content matches a condition. All that was acknowledged before is read, of all
shards, as it was at one moment: retention and compaction take nothing away meanwhile. Nothing is taken away from anybody.

--where is a CEL expression (https://cel.dev) over these variables:

  subject     the subject, a string
  headers     the headers, a map; of several values of a name the first one
  time        when the message was stored, a timestamp
  attributes  those of the subject when the message was stored, a map
  json        the payload as JSON; its numbers are doubles

A message that can't be judged, because it has no such field, or no JSON, does not match; how many these are is said at the end.
has(json.field) asks whether there is one.

If a message can't be read, because it is too large or damaged, the rest is printed, and the exit
code is 1.

A terminal gets a table, and a pipe a JSON object in each line: "json" is the payload if that is JSON, else "data" is its base64.
The messages of a subject come in order, those of different shards may not.

--aggregate prints results that are computed of the messages instead: count() and, of a CEL expression, count, sum, mean, min,
max, median, quantiles such as p99 or p99.9, and distinct, the number of different values. "as NAME" names a column. There is one
result for each key (--by), and for each --window or --session, which is printed when no more messages belong to it. Sums and
means are exact until they are rounded; quantiles have an error of 0.4 %, or more if the numbers differ very much; distinct is
exact up to 1,024 values, and has a standard error of 0.8 % beyond.`,
		Example: `  carillon query orders --where 'json.total > 100.0 && json.region == "eu"'
  carillon query orders --where '"Priority" in headers' --from 2h --filter 'orders.eu.>' --follow
  carillon query orders --where 'json.items.exists(i, i.sku == "b-7")' --output json | jq .json.id
  carillon query orders --aggregate 'count(), sum(json.total) as total, p99(json.latency)' --by json.region --window 1m
  carillon query orders --aggregate 'distinct(json.user)' --window 1h --slide 10m --follow
  carillon query orders --from 24h --output-file orders.parquet
  duckdb -c "SELECT subject, json->>'region' FROM 'orders.parquet'"`,
		Args:              takes(1, 1, "the name of a topic"),
		ValidArgsFunction: q.completeNames(1),
		RunE:              func(cmd *cobra.Command, args []string) error { return q.run(cmd, args[0]) },
	}
	q.flags(cmd, "table", "json", "raw")
	f := cmd.Flags()
	f.StringVarP(&q.where, "where", "w", "", "the condition, a CEL `EXPRESSION` (default all messages)")
	f.StringSliceVar(&q.subjects, "filter", nil, "only these subjects, with wildcards; several with commas, or repeat it")
	f.StringVar(&q.from, "from", "earliest", "`WHERE` to begin: earliest, latest, a sequence (of a Topic with one shard), a time (RFC 3339), or how long ago (2h)")
	f.StringVar(&q.to, "to", "", "`WHEN` to end: messages that are as old, or older, at a time (RFC 3339), or so long ago (1h)")
	f.IntVar(&q.count, "count", 0, "end after so many messages (default never)")
	f.BoolVarP(&q.follow, "follow", "f", false, "go on with new messages, until Ctrl-C")
	f.StringVar(&q.file, "output-file", "", "write a table into this `FILE` instead, as Parquet, which replaces one of that name")
	_ = cmd.MarkFlagFilename("output-file", "parquet")
	q.results.flags(cmd)
	complete(cmd, "from", "earliest", "latest")
	complete(cmd, "aggregate", "count()")
	complete(cmd, "by", "subject")
	complete(cmd, "time", "time")
	for _, name := range []string{"window", "slide", "session", "lateness"} {
		complete(cmd, name, "10s", "1m", "1h")
	}
	return cmd
}

// query is one that runs.
type query struct {
	*brokers
	topic    string
	filter   *filter.Filter // nil: all match
	subjects [][]byte
	patterns []string // the same
	follow   bool
	count    int
	enough   context.CancelFunc

	aggregation *aggregation // nil: the messages are printed

	free chan *judged // for batches; so it bounds what is judged at once

	printing sync.Mutex
	print    func(out *bytes.Buffer, r *found) error // several goroutines call it
	out      *bufio.Writer
	read     int // records
	matched  int
	failed   int
	why      error  // of the first one that failed
	unread   uint64 // offsets that were passed over, since they can't be read
	lost     error  // the first one of printing or storing what was found
	cut      bool   // it was ended from outside, before all was read

	store  func(r *found) error // adds to the file that is written; nil: there is none
	finish func(error) error    // of that file
}

// found is a record of a shard that matches.
type found struct {
	shard        int
	read, failed int // records of its batch, up to it
	client.View
}

func (r *found) stored() time.Time { return time.Unix(0, r.Time).UTC() }

// run checks the flags, and runs the query.
func (q *queryFlags) run(cmd *cobra.Command, topic string) error {
	run := &query{topic: topic, follow: q.follow, count: q.count}
	from, to, err := q.compile(cmd, run)
	if err != nil {
		return usageError{err}
	}
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	if run.brokers, err = q.connect(cmd, endsWhenDenied(stop, cmd.ErrOrStderr())); err != nil {
		return err
	}
	defer run.close()
	run.out = bufio.NewWriter(cmd.OutOrStdout())
	if err := run.printTo(q.output, q.file); err != nil {
		return err
	}
	if q.file == "" {
		go endsWithReader(ctx, cmd.OutOrStdout(), stop)
	}
	err = run.all(ctx, from, to)
	var why error // it ended before its end
	if err != nil || run.cut {
		why = context.Cause(ctx)
	}
	if denied, ok := errors.AsType[*deniedError](why); ok {
		err = fmt.Errorf("topic %s: the user may not read it: %w", topic, denied)
	}
	if run.finish != nil {
		err = run.finish(run.interrupted(cmd.Context(), err))
	}
	if flushed := run.out.Flush(); err == nil {
		err = flushed
	}
	if errors.Is(why, errReaderGone) {
		return writeToNobody(cmd.OutOrStdout())
	}
	if err == nil || run.read > 0 {
		run.summary()
	}
	if err == nil {
		err = run.incomplete()
	}
	return err
}

// deniedError is a request that the user may not make.
type deniedError struct{ error }

func (e *deniedError) Unwrap() error { return e.error }

// endsWhenDenied has the first refused request end what stop ends, such as a query. A broker sends
// such a refusal to the connection, and no answer to the request, which would be waited for, or
// made again, until its time is over.
func endsWhenDenied(stop context.CancelCauseFunc, notes io.Writer) nats.Option {
	return nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrPermissionViolation) {
			fmt.Fprintln(notes, "server:", err)
			return
		}
		stop(&deniedError{err})
		nc.Close() // ends requests that do not end with the query, such as a snapshot's release
	})
}

// incomplete returns an error if messages were passed over that can't be read.
func (q *query) incomplete() error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.unread == 0 {
		return nil
	}
	return fmt.Errorf("topic %s: the answer is incomplete: %d offsets can't be read (named above)",
		q.topic, q.unread)
}

// compile checks the flags, and what is asked for is made part of the query.
func (q *queryFlags) compile(cmd *cobra.Command, run *query) (from from, to *time.Time, err error) {
	if from, err = parseFrom(q.from); err != nil {
		return from, nil, fmt.Errorf("--from %q: %w", q.from, err)
	}
	switch {
	case q.count < 0:
		return from, nil, fmt.Errorf("--count %d: it can't be negative", q.count)
	case q.to != "" && q.follow:
		return from, nil, errors.New("--to and --follow: choose one")
	case q.to != "":
		where, err := parseFrom(q.to)
		if err != nil || where.time == nil {
			return from, nil, fmt.Errorf("--to %q: write a time like 2026-01-31T12:00:00Z, or how long ago, like 2h", q.to)
		}
		if to = where.time; from.time != nil && from.time.After(*to) {
			return from, nil, fmt.Errorf("--from %q is later than --to %q: exchange them", q.from, q.to)
		}
	}
	if q.where != "" {
		if run.filter, err = filter.CompileStored(q.where); err != nil {
			return from, nil, fmt.Errorf("--where: %w", err)
		}
	}
	for _, s := range q.subjects {
		if !subject.ValidPattern([]byte(s)) {
			return from, nil, fmt.Errorf("--filter %q: it is no subject", s)
		}
		run.subjects, run.patterns = append(run.subjects, []byte(s)), append(run.patterns, s)
	}
	if !cmd.Flags().Changed("output") && !isTerminal(cmd.OutOrStdout()) {
		q.output = "json"
	}
	if err := q.checkFile(); err != nil {
		return from, nil, err
	}
	run.aggregation, err = q.results.compile(cmd, q.follow)
	if err == nil && run.aggregation != nil && q.output == "raw" {
		err = errors.New("--output raw and --aggregate: choose table or json")
	}
	return from, to, err
}

// interrupted returns why a file is not complete. An interrupt also ends what the query waits for
// at the time, such as its look at the topic, with an error that says less.
func (q *query) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && !q.full() {
		return errors.New("interrupted: no file was written")
	}
	return err
}

// printTo prints the head, and decides how the rest is printed, or written into a file.
func (q *query) printTo(output, file string) (err error) {
	if file != "" {
		q.finish, err = q.exportTo(file)
		return err
	}
	q.print = foundPrinters[output]
	if q.aggregation != nil {
		var head func() error
		head, q.aggregation.print = q.aggregation.printers(output, q.out)
		return head()
	}
	if output == "table" {
		fmt.Fprintf(q.out, foundLine, "TIME", "SHARD", "OFFSET", "SUBJECT", "MESSAGE")
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// all reads all shards at once.
func (q *query) all(outer context.Context, from from, to *time.Time) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	q.enough = cancel
	opening, opened := context.WithTimeout(ctx, q.timeout)
	defer opened()
	snapshot, err := client.TakeSnapshot(opening, q.nc, q.topic, client.SnapshotOptions{})
	if err != nil {
		return q.notRead(err)
	}
	defer func() {
		closing, closed := context.WithTimeout(context.WithoutCancel(outer), min(q.timeout, time.Second))
		defer closed()
		_ = snapshot.Close(closing)
	}()
	shards := snapshot.Shards()
	if from.sequence > 0 && len(shards) > 1 {
		return usageError{fmt.Errorf("--from %d: topic %s has %d shards with sequences of their own; begin with a time", from.sequence, q.topic, len(shards))}
	}
	if q.aggregation != nil {
		q.aggregation.begin(len(shards))
	}
	q.prepare()
	errs := make([]error, len(shards))
	var reading sync.WaitGroup
	for n, shard := range shards {
		reading.Go(func() {
			if errs[n] = q.shard(ctx, snapshot, shard, len(shards), from, to); errs[n] != nil {
				cancel()
			}
		})
	}
	reading.Wait()
	q.cut = outer.Err() != nil && !q.full()
	if err := q.failure(errs, outer.Err() != nil); err != nil {
		return q.notRead(err)
	}
	return q.rest(outer.Err() != nil) // Ctrl-C is no error
}

// failure returns why a query is not complete, of what the shards say. Once it was ended from
// outside, or has all that is wanted, shards that can't be read do not matter. That what was found
// is lost does: a file lacks it.
func (q *query) failure(shards []error, ended bool) error {
	if q.lost != nil {
		return q.lost
	}
	for _, err := range shards {
		if err != nil && !errors.Is(err, context.Canceled) && !ended && !q.full() {
			return err
		}
	}
	return nil
}

// rest prints the results that are open at the end. If the query was ended from outside, windows
// are not complete, unless they are only one and new messages were followed.
func (q *query) rest(ended bool) error {
	if q.aggregation == nil || ended && (!q.follow || q.aggregation.query.Windowed()) {
		return nil
	}
	return q.aggregation.close(aggregate.Everything)
}

// notRead explains why a Topic can't be read.
func (q *query) notRead(err error) error {
	if refused, ok := errors.AsType[*client.ReadError](err); ok && refused.Code == client.NotFound {
		return q.found(q.topic, jetstream.ErrStreamNotFound)
	}
	return q.explain("topic "+q.topic, err)
}

// shard reads one shard of a snapshot, and what follows it.
func (q *query) shard(ctx context.Context, snapshot *client.Snapshot, shard client.Shard, of int, from from, to *time.Time) error {
	stream := q.topic
	if of > 1 {
		stream = shardStream(q.topic, shard.Number)
	}
	begin, end := max(shard.Start, from.sequence), shard.High
	var err error
	switch {
	case from.policy == jetstream.DeliverNewPolicy:
		begin = end
	case from.time != nil:
		begin, err = q.offsetAt(ctx, stream, *from.time, end)
	}
	if err == nil && to != nil {
		end, err = q.offsetAt(ctx, stream, to.Add(1), end)
	}
	if err != nil {
		return err
	}
	if begin = max(begin, shard.Start); begin < end {
		err := q.part(ctx, part{number: shard.Number, end: end}, begin, func(at uint64, options client.ReaderOptions) (*client.Reader, error) {
			return snapshot.Reader(shard.Number, at, options)
		})
		if err != nil {
			return err
		}
	}
	if !q.follow {
		return q.ended(shard.Number)
	}
	news := part{number: shard.Number}
	if from.time != nil || from.sequence > shard.High { // where to begin may be in the future
		earliest := int64(math.MinInt64)
		if from.time != nil {
			earliest = from.time.UnixNano()
		}
		news.in = func(offset uint64, time int64) bool {
			return offset >= from.sequence && time >= earliest
		}
		news.unjudged = begin >= end
	}
	return q.part(ctx, news, shard.High, func(at uint64, options client.ReaderOptions) (*client.Reader, error) {
		return client.NewReader(q.nc, q.topic, shard.Number, at, options)
	})
}

// part reads a part of a shard from an offset on. The broker judges, if its version does; otherwise
// this process does. open opens a reader.
func (q *query) part(ctx context.Context, p part, begin uint64, open func(uint64, client.ReaderOptions) (*client.Reader, error)) error {
	options := client.ReaderOptions{Full: true, Attributes: q.aggregation != nil && q.aggregation.query.NamesAttributes()}
	judged := options
	judged.Subjects, judged.End = q.patterns, p.end
	if p.in == nil {
		judged.Limit = q.count // what is printed is what the broker finds
	}
	if q.filter != nil {
		judged.Where = q.filter.String()
	}
	if !p.unjudged && (judged.Where != "" || len(judged.Subjects) > 0) {
		at, err := q.readBy(ctx, p, begin, judged, open)
		if refused, ok := errors.AsType[*client.ReadError](err); !ok || refused.Code != client.BadRequest {
			return err
		}
		begin = at // the shard may have been led by a newer version before
	}
	p.unjudged, options.Attributes = true, options.Attributes || q.filter != nil && q.filter.NamesAttributes()
	_, err := q.readBy(ctx, p, begin, options, open)
	if refused, ok := errors.AsType[*client.ReadError](err); ok && refused.Code == client.BadRequest && options.Attributes {
		return fmt.Errorf("%w (brokers of an earlier version know no attributes of messages; finish the update)", err)
	}
	return err
}

// readBy is part by one reader. It returns how far that came.
func (q *query) readBy(ctx context.Context, p part, begin uint64, options client.ReaderOptions, open func(uint64, client.ReaderOptions) (*client.Reader, error)) (uint64, error) {
	r, err := open(begin, options)
	if err != nil {
		return begin, err
	}
	defer r.Close()
	if err = q.records(ctx, r, p); errors.Is(err, io.EOF) {
		err = nil
	}
	return r.Offset(), err
}

// offsetAt returns the offset of the first message of a stream that was stored at a time or later,
// or end if there is none below it.
func (q *query) offsetAt(ctx context.Context, stream string, at time.Time, end uint64) (uint64, error) {
	request := struct {
		Time    time.Time `json:"start_time"`
		Subject string    `json:"next_by_subj"`
	}{at.UTC(), ">"}
	var answer struct {
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	err := q.ask(ctx, "$JS.API.STREAM.MSG.GET."+stream, request, &answer)
	switch {
	case err != nil:
		return 0, err
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return end, nil
	case answer.Error != nil:
		return 0, answer.Error
	}
	return min(answer.Message.Sequence, end), nil
}

func (q *query) full() bool {
	q.printing.Lock()
	defer q.printing.Unlock()
	return q.count > 0 && q.matched >= q.count
}

// summary says how many records were read and matched.
func (q *query) summary() {
	q.note("%d of %d messages match", q.matched, q.read)
	if q.failed > 0 {
		q.note("%d could not be judged; of the first one: %v", q.failed, q.why)
	}
	if q.aggregation != nil {
		q.aggregation.summary(q.note)
	}
}

// foundLine is a line of the table: time, shard, offset, subject, message.
const foundLine = "%-24s  %5s  %9s  %-30s  %s\n"

// printable returns a text without what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "�"))
}

// foundPrinters print a record behind what is in memory.
var foundPrinters = map[string]func(out *bytes.Buffer, r *found) error{
	"table": func(out *bytes.Buffer, r *found) error {
		_, err := fmt.Fprintf(out, foundLine, r.stored().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(r.shard), strconv.FormatUint(r.Offset, 10), r.Subject, printable(string(r.Data)))
		return err
	},
	"json": jsonFound,
	"raw": func(out *bytes.Buffer, r *found) error {
		out.Write(r.Data)
		return out.WriteByte('\n')
	},
}

// jsonFound prints a record as an object in a line, piece by piece: encoding/json would read the
// payload three times.
func jsonFound(out *bytes.Buffer, r *found) error {
	b := strconv.AppendInt(append(out.AvailableBuffer(), `{"shard":`...), int64(r.shard), 10)
	b = strconv.AppendUint(append(b, `,"offset":`...), r.Offset, 10)
	b = append(r.stored().AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano), `","subject":`...)
	out.Write(b)
	if err := jsonValue(out, string(r.Subject)); err != nil {
		return err
	}
	if len(r.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(r.Header)
		switch {
		case err != nil: // a block that is none of NATS
			out.WriteString(`,"header_data":`)
			err = jsonValue(out, r.Header)
		case len(header) > 0:
			out.WriteString(`,"header":`)
			err = jsonValue(out, header)
		}
		if err != nil {
			return err
		}
	}
	before := out.Len()
	out.WriteString(`,"json":`)
	// json.Compact lets bytes pass that are no UTF-8, for which readers refuse the line.
	if !utf8.Valid(r.Data) || json.Compact(out, r.Data) != nil {
		if out.Truncate(before); len(r.Data) > 0 {
			out.WriteString(`,"data":`)
			if err := jsonValue(out, r.Data); err != nil {
				return err
			}
		}
	}
	out.WriteString("}\n")
	return nil
}

func jsonValue(out *bytes.Buffer, v any) error {
	encoded, err := json.Marshal(v)
	if err == nil {
		out.Write(encoded)
	}
	return err
}
