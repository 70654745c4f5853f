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
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

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
}

func newQueryCommand() *cobra.Command {
	var q queryFlags
	cmd := &cobra.Command{
		Use:   "query TOPIC",
		Short: "Print the messages of a Topic whose content matches a condition",
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
The messages of a subject come in order, those of different shards may not.`,
		Example: `  carillon query orders --where 'json.total > 100.0 && json.region == "eu"'
  carillon query orders --where '"Priority" in headers' --from 2h --filter 'orders.eu.>' --follow
  carillon query orders --where 'json.items.exists(i, i.sku == "b-7")' --output json | jq .json.id`,
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
	complete(cmd, "from", "earliest", "latest")
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

	printing sync.Mutex
	print    func(w io.Writer, r *found) error
	out      *bufio.Writer
	read     int // records
	matched  int
	failed   int
	why      error // of the first one that failed
}

// found is a record of a shard.
type found struct {
	shard int
	client.Record
}

// run checks the flags, and runs the query.
func (q *queryFlags) run(cmd *cobra.Command, topic string) error {
	run := &query{topic: topic, follow: q.follow, count: q.count}
	from, err := parseFrom(q.from)
	if err != nil {
		return usageError{fmt.Errorf("--from %q: %w", q.from, err)}
	}
	var to *time.Time
	switch {
	case q.count < 0:
		return usageError{fmt.Errorf("--count %d: it can't be negative", q.count)}
	case q.to != "" && q.follow:
		return usageError{errors.New("--to and --follow: choose one")}
	case q.to != "":
		where, err := parseFrom(q.to)
		if err != nil || where.time == nil {
			return usageError{fmt.Errorf("--to %q: write a time like 2026-01-31T12:00:00Z, or how long ago, like 2h", q.to)}
		}
		to = where.time
	}
	if q.where != "" {
		if run.filter, err = filter.Compile(q.where); err != nil {
			return usageError{fmt.Errorf("--where: %w", err)}
		}
	}
	for _, s := range q.subjects {
		if !subject.ValidPattern([]byte(s)) {
			return usageError{fmt.Errorf("--filter %q: it is no subject", s)}
		}
		run.subjects = append(run.subjects, []byte(s))
	}
	if !cmd.Flags().Changed("output") && !isTerminal(cmd.OutOrStdout()) {
		q.output = "json"
	}
	if run.brokers, err = q.connect(cmd); err != nil {
		return err
	}
	defer run.close()
	run.print, run.out = foundPrinters[q.output], bufio.NewWriter(cmd.OutOrStdout())
	if q.output == "table" {
		fmt.Fprintf(run.out, foundLine, "TIME", "SHARD", "OFFSET", "SUBJECT", "MESSAGE")
	}
	err = run.all(cmd.Context(), from, to)
	if flushed := run.out.Flush(); err == nil {
		err = flushed
	}
	if err == nil || run.read > 0 {
		run.summary()
	}
	return err
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
	if outer.Err() != nil || q.full() {
		return nil // Ctrl-C is no error
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return q.notRead(err)
		}
	}
	return nil
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
	options := client.ReaderOptions{Full: true}
	if begin = max(begin, shard.Start); begin < end {
		r, err := snapshot.Reader(shard.Number, begin, options)
		if err != nil {
			return err
		}
		err = q.records(ctx, r, shard.Number, end, nil)
		r.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if !q.follow {
		return nil
	}
	r, err := client.NewReader(q.nc, q.topic, shard.Number, shard.High, options)
	if err != nil {
		return err
	}
	defer r.Close()
	// Where to begin may be in the future.
	return q.records(ctx, r, shard.Number, 0, func(r *client.Record) bool {
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

// records judges the records of a reader up to, not including, end; 0: without an end. It passes
// over those that are not in the range that is asked for; nil: all are.
func (q *query) records(ctx context.Context, r *client.Reader, shard int, end uint64, in func(*client.Record) bool) error {
	for end == 0 || r.Offset() < end {
		b, err := r.Batch(ctx)
		if next := passedOver(r, err); next > 0 {
			q.note("shard %d: messages from %d to %d can't be read: %v", shard, r.Offset(), next-1, err)
			r.Seek(next)
			continue
		}
		if err != nil {
			return err
		}
		if err := q.batch(b, shard, end, in); err != nil {
			return err
		}
	}
	return nil
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

func (q *query) batch(b *client.Batch, shard int, end uint64, in func(*client.Record) bool) error {
	read, failed := 0, 0
	var why error
	var matching []found
	for record := range b.Records() {
		if end > 0 && record.Offset >= end {
			break
		}
		if in != nil && !in(&record) {
			continue
		}
		read++
		if !q.selects(record.Subject) {
			continue
		}
		if q.filter != nil {
			judged := filter.Record{Subject: []byte(record.Subject), Header: record.Header, Data: record.Data, Time: record.Time.UnixNano()}
			switch q.filter.Judge(&judged) {
			case filter.No:
				continue
			case filter.Failed:
				if failed++; why == nil {
					why = q.filter.Why(&judged)
				}
				continue
			}
		}
		matching = append(matching, found{shard, record})
	}
	return q.printAll(matching, read, failed, why)
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

// printAll prints records of one shard, and counts them.
func (q *query) printAll(all []found, read, failed int, why error) error {
	q.printing.Lock()
	defer q.printing.Unlock()
	if q.read, q.failed = q.read+read, q.failed+failed; q.why == nil {
		q.why = why
	}
	for i := range all {
		if q.count > 0 && q.matched == q.count {
			break
		}
		if err := q.print(q.out, &all[i]); err != nil {
			return fmt.Errorf("print a message: %w", err)
		}
		if q.matched++; q.matched == q.count {
			q.enough()
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
}

// foundLine is a line of the table: time, shard, offset, subject, message.
const foundLine = "%-24s  %5s  %9s  %-30s  %s\n"

var foundPrinters = map[string]func(w io.Writer, r *found) error{
	"table": func(w io.Writer, r *found) error {
		message := strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return ' '
			}
			return c
		}, strings.ToValidUTF8(string(r.Data), "�"))
		_, err := fmt.Fprintf(w, foundLine, r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(r.shard), strconv.FormatUint(r.Offset, 10), r.Subject, message)
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
