package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/internal/export"
)

// exportTo has the query write a file. finish is called at its end, with what went wrong before.
func (q *query) exportTo(name string) (finish func(error) error, err error) {
	if q.aggregation != nil {
		t, err := export.CreateResults(name, q.aggregation.columns())
		if err != nil {
			return nil, err
		}
		q.aggregation.print = func(r *aggregate.Row) error {
			var row []any
			for _, v := range q.aggregation.values(r) {
				row = append(row, exported(v))
			}
			return t.Append(row)
		}
		return q.finishing(name, t), nil
	}
	t, err := export.CreateMessages(name)
	if err != nil {
		return nil, err
	}
	q.store = func(r *found) error {
		m := export.Message{
			Shard: r.shard, Offset: r.Offset, Time: r.stored(), Subject: string(r.Subject),
			Data: r.Data,
		}
		if len(r.Header) > 0 {
			m.Headers, _ = nats.DecodeHeadersMsg(r.Header) // a block that is none of NATS has none
		}
		return t.Append(&m)
	}
	return q.finishing(name, t), nil
}

// table is a file of either kind.
type table interface {
	Rows() int
	Finish() error
	Abort() error
}

func (q *query) finishing(name string, t table) func(error) error {
	return func(err error) error {
		if err != nil {
			return errors.Join(err, t.Abort())
		}
		if err := t.Finish(); err != nil {
			return err
		}
		q.note("%d rows in %s", t.Rows(), name)
		return nil
	}
}

// exported returns a value as a file has it.
func exported(v aggregate.Value) any {
	switch v.Kind {
	case aggregate.None:
		return nil
	case aggregate.Bool:
		return v.Truth
	case aggregate.Number:
		return v.Number
	case aggregate.Count:
		return v.Count
	case aggregate.Time:
		return time.Unix(0, v.Time).UTC()
	}
	return v.Text
}

// checkFile returns an error if a query can't write a file.
func (q *queryFlags) checkFile() error {
	switch {
	case q.file == "":
		return nil
	case q.follow && q.count == 0:
		return errors.New("--output-file and --follow: a file is complete at the end, so say with" +
			" --count when that is")
	}
	if err := export.Valid(q.file); err != nil {
		return fmt.Errorf("--output-file: %w", err)
	}
	return nil
}
