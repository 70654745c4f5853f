package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

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

  subject   the subject, a string
  headers   the headers, a map; of several values of a name the first one
  time      when the message was stored, a timestamp
  json      the payload as JSON; its numbers are doubles

A message that can't be judged, because it has no such field, or no JSON, does not match; how many these are is said at the end.
has(json.field) asks whether there is one.

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
	f.StringVar(&q.file, "output-file", "", "write a table into this `FILE` instead, which replaces one of that name: .parquet or .arrow")
	_ = cmd.MarkFlagFilename("output-file", "parquet", "arrow")
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
	follow   bool
	count    int
	enough   context.CancelFunc

	aggregation *aggregation // nil: the messages are printed

	printing sync.Mutex
	print    func(w io.Writer, r *found) error
	out      *bufio.Writer
	read     int // records
	matched  int
	failed   int
	why      error             // of the first one that failed
	taken    atomic.Int64      // of count
	finish   func(error) error // of the file that is written; nil: there is none
}

// found is a record of a shard.
type found struct {
	shard int
	client.Record
}

// run checks the flags, and runs the query.
func (q *queryFlags) run(cmd *cobra.Command, topic string) error {
	run := &query{topic: topic, follow: q.follow, count: q.count}
	from, to, err := q.compile(cmd, run)
	if err != nil {
		return usageError{err}
	}
	if run.brokers, err = q.connect(cmd); err != nil {
		return err
	}
	defer run.close()
	run.out = bufio.NewWriter(cmd.OutOrStdout())
	if err := run.printTo(q.output, q.file); err != nil {
		return err
	}
	err = run.all(cmd.Context(), from, to)
	if run.finish != nil {
		err = run.finish(run.interrupted(cmd.Context(), err))
	}
	if flushed := run.out.Flush(); err == nil {
		err = flushed
	}
	if err == nil || run.read > 0 {
		run.summary()
	}
	return err
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
		to = where.time
	}
	if q.where != "" {
		if run.filter, err = filter.Compile(q.where); err != nil {
			return from, nil, fmt.Errorf("--where: %w", err)
		}
	}
	for _, s := range q.subjects {
		if !subject.ValidPattern([]byte(s)) {
			return from, nil, fmt.Errorf("--filter %q: it is no subject", s)
		}
		run.subjects = append(run.subjects, []byte(s))
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
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) && outer.Err() == nil && !q.full() {
			return q.notRead(err)
		}
	}
	return q.rest(outer.Err() != nil) // Ctrl-C is no error
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
	part := q.newPart(shard.Number)
	options := client.ReaderOptions{Full: true}
	if begin = max(begin, shard.Start); begin < end {
		r, err := snapshot.Reader(shard.Number, begin, options)
		if err != nil {
			return err
		}
		err = q.records(ctx, r, part, end, nil)
		r.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if !q.follow {
		return q.ended(shard.Number)
	}
	r, err := client.NewReader(q.nc, q.topic, shard.Number, shard.High, options)
	if err != nil {
		return err
	}
	defer r.Close()
	// Where to begin may be in the future.
	return q.records(ctx, r, part, 0, func(r *client.Record) bool {
		return r.Offset >= from.sequence && (from.time == nil || !r.Time.Before(*from.time))
	})
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

// part is what one shard's messages are judged with.
type part struct {
	shard   int
	partial *shardPartial // nil: the messages are printed
	name    string        // the subject of record
	wanted  bool          // it is asked for
	record  filter.Record
}

// judge returns the record to judge, and whether its subject is asked for. It allocates nothing if
// the record before had the same subject.
func (q *query) judge(p *part, r *client.Record) (*filter.Record, bool) {
	if r.Subject != p.name || p.record.Subject == nil {
		p.name, p.wanted = r.Subject, q.selects(r.Subject)
		p.record.Subject = append(p.record.Subject[:0], r.Subject...)
	}
	p.record.Header, p.record.Data, p.record.Time = r.Header, r.Data, r.Time.UnixNano()
	return &p.record, p.wanted
}

func (q *query) newPart(shard int) *part {
	p := &part{shard: shard}
	if q.aggregation != nil {
		p.partial = q.aggregation.newShard()
	}
	return p
}

// records judges the records of a reader up to, not including, end; 0: without an end. It passes
// over those that are not in the range that is asked for; nil: all are.
func (q *query) records(ctx context.Context, r *client.Reader, p *part, end uint64, in func(*client.Record) bool) error {
	for end == 0 || r.Offset() < end {
		b, err := q.next(ctx, r, p, end == 0)
		if next := passedOver(r, err); next > 0 {
			q.note("shard %d: messages from %d to %d can't be read: %v", p.shard, r.Offset(), next-1, err)
			r.Seek(next)
			continue
		}
		if err != nil {
			return err
		}
		if err := q.batch(b, p, end, in); err != nil {
			return err
		}
	}
	return nil
}

// idlePoll is how often a shard without new messages is asked how late it is there.
const idlePoll = time.Second

// next returns the next records. While there are none, time goes on for the results' windows.
func (q *query) next(ctx context.Context, r *client.Reader, p *part, follows bool) (*client.Batch, error) {
	for {
		if p.partial == nil || !follows {
			return r.Batch(ctx)
		}
		waiting, cancel := context.WithTimeout(ctx, idlePoll)
		b, err := r.Batch(waiting)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return b, err
		}
		if at, ok := r.CaughtUp(); ok {
			if err := q.idle(p.shard, at.Add(-idleLateness)); err != nil {
				return nil, err
			}
		}
	}
}

// idle notes that all messages of a shard that were stored before a time were read.
func (q *query) idle(shard int, at time.Time) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if err := q.aggregation.reached(shard, at.UnixNano()); err != nil {
		return err
	}
	return q.out.Flush()
}

// ended notes that nothing more comes of a shard.
func (q *query) ended(shard int) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.aggregation == nil {
		return nil
	}
	if err := q.aggregation.ended(shard); err != nil {
		return err
	}
	return q.out.Flush()
}

// passedOver returns the offset behind records that no reader gets, or 0 if an error is about
// something else.
func passedOver(r *client.Reader, err error) (next uint64) {
	e, ok := errors.AsType[*client.ReadError](err)
	switch {
	case ok && e.Code == client.Damaged && e.Next > r.Offset():
		return e.Next
	case ok && e.Code == client.TooLarge && e.Offset >= r.Offset():
		return e.Offset + 1
	}
	return 0
}

// batch judges the records of a batch.
func (q *query) batch(b *client.Batch, p *part, end uint64, in func(*client.Record) bool) error {
	var is judged
	for record := range b.Records() {
		if end > 0 && record.Offset >= end {
			break
		}
		if p.partial != nil {
			p.partial.greatest = max(p.partial.greatest, record.Time.UnixNano())
		}
		if in != nil && !in(&record) {
			continue
		}
		is.read++
		r, wanted := q.judge(p, &record)
		if !wanted {
			continue
		}
		if q.filter != nil {
			switch q.filter.Judge(r) {
			case filter.No:
				continue
			case filter.Failed:
				if is.failed++; is.why == nil {
					is.why = q.filter.Why(r)
				}
				continue
			}
		}
		if !q.take() {
			break
		}
		is.matched++
		if p.partial == nil {
			is.matching = append(is.matching, found{p.shard, record})
		} else if err := p.partial.add(r); err != nil {
			return err
		}
	}
	return q.took(p, &is)
}

// selects reports whether a subject is asked for.
func (q *query) selects(name string) bool {
	for _, pattern := range q.subjects {
		if subject.Matches(pattern, []byte(name)) {
			return true
		}
	}
	return len(q.subjects) == 0
}

// take reports whether one more message is wanted.
func (q *query) take() bool {
	return q.count == 0 || q.taken.Add(1) <= int64(q.count)
}

// judged is what a batch was found to have.
type judged struct {
	read, matched, failed int
	why                   error // of the first one that failed
	matching              []found
}

// took prints what a batch of one shard has, and counts it.
func (q *query) took(p *part, j *judged) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.read, q.matched, q.failed = q.read+j.read, q.matched+j.matched, q.failed+j.failed; q.why == nil {
		q.why = j.why
	}
	if q.count > 0 && q.matched >= q.count {
		q.enough()
	}
	for i := range j.matching {
		if err := q.print(q.out, &j.matching[i]); err != nil {
			return fmt.Errorf("print a message: %w", err)
		}
	}
	if p.partial != nil {
		if err := q.aggregation.merge(p.shard, p.partial); err != nil {
			return err
		}
	}
	return q.out.Flush()
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

var foundPrinters = map[string]func(w io.Writer, r *found) error{
	"table": func(w io.Writer, r *found) error {
		_, err := fmt.Fprintf(w, foundLine, r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(r.shard), strconv.FormatUint(r.Offset, 10), r.Subject, printable(string(r.Data)))
		return err
	},
	"json": func(w io.Writer, r *found) error {
		line := struct {
			Shard   int             `json:"shard"`
			Offset  uint64          `json:"offset"`
			Time    time.Time       `json:"time"`
			Subject string          `json:"subject"`
			Header  nats.Header     `json:"header,omitempty"`
			Block   []byte          `json:"header_data,omitempty"` // a block that is none of NATS
			JSON    json.RawMessage `json:"json,omitempty"`
			Data    []byte          `json:"data,omitempty"`
		}{Shard: r.shard, Offset: r.Offset, Time: r.Time.UTC(), Subject: r.Subject}
		if len(r.Header) > 0 {
			var err error
			if line.Header, err = nats.DecodeHeadersMsg(r.Header); err != nil {
				line.Block = r.Header
			}
		}
		if json.Valid(r.Data) {
			line.JSON = r.Data
		} else {
			line.Data = r.Data
		}
		return json.NewEncoder(w).Encode(line)
	},
	"raw": func(w io.Writer, r *found) error {
		_, err := w.Write(append(r.Data[:len(r.Data):len(r.Data)], '\n'))
		return err
	},
}
