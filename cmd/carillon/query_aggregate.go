package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
)

// aggregateFlags are what is computed of the messages that match.
type aggregateFlags struct {
	aggregate.Options
	lateness time.Duration
}

// fieldLateness is how late messages may be whose time is a field, with --follow.
const fieldLateness = time.Minute

// idleLateness is how far behind the clock of this machine a shard's time may be that has nothing
// new: clocks differ, and messages are under way.
const idleLateness = 5 * time.Second

func (a *aggregateFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&a.Functions, "aggregate", "a", "", "print these `FUNCTIONS` of the messages instead: count(), sum(json.total), p99(json.latency) as slow, …")
	f.StringVar(&a.By, "by", "", "of each group: CEL `EXPRESSIONS` for its key, with commas")
	f.DurationVar(&a.Window, "window", 0, "of each window of this length, such as 1m")
	f.DurationVar(&a.Slide, "slide", 0, "a window begins so long after another (default the --window)")
	f.DurationVar(&a.Session, "session", 0, "of each session of a group, which ends after so long without a message")
	f.StringVar(&a.Time, "time", "", "the `EXPRESSION` of a message's time for windows (default when it was stored)")
	f.DurationVar(&a.lateness, "lateness", 0, "how much older than another one a message of a window may be (default 0s; with --time 1m if it follows, else any)")
}

// compile returns what is asked for, or nil.
func (a *aggregateFlags) compile(cmd *cobra.Command, follow bool) (*aggregation, error) {
	if a.Functions == "" {
		for _, name := range []string{"by", "window", "slide", "session", "time", "lateness"} {
			if cmd.Flags().Changed(name) {
				return nil, fmt.Errorf("--%s without --aggregate: say what is computed, such as --aggregate 'count()'", name)
			}
		}
		return nil, nil
	}
	if a.lateness < 0 {
		return nil, fmt.Errorf("--lateness %s: it can't be negative", a.lateness)
	}
	a.Attributes = true
	query, err := aggregate.Compile(a.Options)
	if wrong, ok := errors.AsType[*aggregate.Error](err); ok {
		return nil, fmt.Errorf("--%w", wrong)
	} else if err != nil {
		return nil, fmt.Errorf("--window: %w", err)
	}
	late := a.lateness
	if a.Time != "" && !cmd.Flags().Changed("lateness") {
		if late = fieldLateness; !follow {
			late = math.MaxInt64
		}
	}
	return &aggregation{query: query, merger: query.NewMerger(), lateness: int64(late), follow: follow, stored: a.Time == ""}, nil
}

// aggregation computes results of the messages that match. The query's mutex guards it.
type aggregation struct {
	query    *aggregate.Query
	merger   *aggregate.Merger
	lateness int64 // ns
	follow   bool
	stored   bool // the time of a message is when it was stored
	marks    []int64
	rows     int
	why      error // of the first message of which something is missing
	print    func(r *aggregate.Row) error
}

// begin is told how many shards there are.
func (a *aggregation) begin(shards int) {
	a.marks = slices.Repeat([]int64{math.MinInt64}, shards)
}

// shardPartial computes the results of one shard's messages, between two times that they are
// merged.
type shardPartial struct {
	*aggregate.Partial
	query    *aggregate.Query
	greatest int64 // time when a message was stored
	why      error
}

func (a *aggregation) newShard() *shardPartial {
	return &shardPartial{Partial: a.query.NewPartial(), query: a.query, greatest: math.MinInt64}
}

// add adds a message.
func (s *shardPartial) add(r *filter.Record) error {
	before := s.Totals()
	err := s.Add(r)
	if after := s.Totals(); s.why == nil && after.NoTime+after.NoKey+after.NoValue > before.NoTime+before.NoKey+before.NoValue {
		s.why = s.query.Why(r)
	}
	return err
}

// merge takes what a shard has, and prints the windows that are complete then.
func (a *aggregation) merge(shard int, s *shardPartial) error {
	if a.why == nil {
		a.why = s.why
	}
	if err := a.merger.Merge(s.Partial); err != nil {
		return err
	}
	t := s.Totals()
	if a.stored {
		t.Greatest, t.Any = s.greatest, s.greatest > math.MinInt64
	}
	s.Reset()
	if !t.Any {
		return nil
	}
	return a.reached(shard, t.Greatest)
}

// reached notes how far the times of a shard's messages are, and prints the windows that are
// complete.
func (a *aggregation) reached(shard int, time int64) error {
	if time < math.MinInt64+a.lateness {
		return nil
	}
	a.marks[shard] = max(a.marks[shard], time-a.lateness)
	return a.close(slices.Min(a.marks))
}

// ended is told that nothing more comes of a shard.
func (a *aggregation) ended(shard int) error {
	a.marks[shard] = aggregate.Everything
	return a.close(slices.Min(a.marks))
}

// close prints the windows that end at a time or before it.
func (a *aggregation) close(watermark int64) error {
	rows := a.merger.Close(watermark)
	for i := range rows {
		if err := a.print(&rows[i]); err != nil {
			return fmt.Errorf("print a result: %w", err)
		}
	}
	a.rows += len(rows)
	return nil
}

// summary says what is missing from the results.
func (a *aggregation) summary(note func(format string, args ...any)) {
	t := a.merger.Totals()
	if missing := t.NoTime + t.NoKey + t.NoValue; missing > 0 {
		note("missing from the results: %d messages without a time, %d without a key, and %d values; of the first one: %v", t.NoTime, t.NoKey, t.NoValue, a.why)
	}
	if late := a.merger.Late(); late > 0 {
		note("%d messages came too late for their window (--lateness gives them more time)", late)
	}
	if open := a.merger.Open(); open > 0 {
		note("%d windows were not complete", open)
	}
}

// columns returns the names of the columns of results.
func (a *aggregation) columns() (names []string) {
	if a.query.Windowed() {
		names = append(names, "start", "end")
	}
	return append(append(names, a.query.Keys()...), a.query.Columns()...)
}

// values returns the values of the columns.
func (a *aggregation) values(r *aggregate.Row) (values []aggregate.Value) {
	if a.query.Windowed() {
		values = append(values, aggregate.Value{Kind: aggregate.Time, Time: r.Start}, aggregate.Value{Kind: aggregate.Time, Time: r.End})
	}
	return append(append(values, r.Keys...), r.Values...)
}

// printers returns how the head and the rows are printed.
func (a *aggregation) printers(output string, w io.Writer) (head func() error, row func(*aggregate.Row) error) {
	columns := a.columns()
	if output == "json" {
		return func() error { return nil }, func(r *aggregate.Row) error { return jsonRow(w, columns, a.values(r)) }
	}
	line := func(cell func(n int) string) error {
		var b strings.Builder
		for n, name := range columns {
			text := cell(n)
			b.WriteString(text)
			if n < len(columns)-1 {
				least := 12
				if a.query.Windowed() && n < 2 {
					least = len("2006-01-02T15:04:05.000Z")
				}
				b.WriteString(strings.Repeat(" ", max(max(least, utf8.RuneCountInString(name))-utf8.RuneCountInString(text), 0)+2))
			}
		}
		_, err := fmt.Fprintln(w, b.String())
		return err
	}
	head = func() error {
		return line(func(n int) string {
			if a.query.Windowed() && n < 2 {
				return strings.ToUpper(columns[n])
			}
			return printable(columns[n])
		})
	}
	return head, func(r *aggregate.Row) error {
		values := a.values(r)
		return line(func(n int) string { return printable(values[n].String()) })
	}
}

// jsonRow prints an object with its members in the order of the columns.
func jsonRow(w io.Writer, columns []string, values []aggregate.Value) error {
	var b bytes.Buffer
	for n, name := range columns {
		quoted, err := json.Marshal(name)
		if err != nil {
			return err
		}
		value, err := values[n].MarshalJSON()
		if err != nil {
			return err
		}
		if n == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.Write(quoted)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString("}\n")
	_, err := w.Write(b.Bytes())
	return err
}
