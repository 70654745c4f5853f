package viewing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/work"
)

// lastMessageOf reads the last message of a subject.
func lastMessageOf[S Shard](shard S, name string) (lastMessage, error) {
	r, err := shard.LastFor(name)
	if _, none := errors.AsType[*records.NoRecordError](err); none {
		return lastMessage{}, nil
	}
	if err != nil {
		return lastMessage{}, err
	}
	_, data := protocol.SplitData(r.Data, r.Header)
	if len(data) > maxMessage {
		data = nil // it is none of a view
	}
	return lastMessage{Offset: r.Offset, Data: data}, nil
}

// Message is a result as a message of the output Topic.
type Message struct {
	View   string                     `json:"view"`
	Keys   []aggregate.Value          `json:"key"`
	From   time.Time                  `json:"from"`
	To     time.Time                  `json:"to"`
	Values map[string]aggregate.Value `json:"values"`
	ID     []byte                     `json:"id"` // the key, in the form in which it is compared
}

// encodeResult returns a result as a message.
func encodeResult(name string, names []string, row *aggregate.Row) ([]byte, error) {
	m := Message{View: name, Keys: append([]aggregate.Value{}, row.Keys...), ID: []byte(row.Key), Values: map[string]aggregate.Value{},
		From: time.Unix(0, row.Start).UTC(), To: time.Unix(0, row.End).UTC()}
	for i, value := range names {
		m.Values[value] = row.Values[i]
	}
	b, err := json.Marshal(&m)
	if err == nil && len(b) > maxMessage {
		err = fmt.Errorf("a result of %d bytes, and the bound is %d: use fewer values, or shorter texts", len(b), maxMessage)
	}
	return b, err
}

// endOf returns the end of the window of a message that encodeResult returned for a view and key.
// ok is false for another message.
func endOf(b []byte, name, id string) (end int64, ok bool) {
	var m struct {
		View string    `json:"view"`
		To   time.Time `json:"to"`
		ID   []byte    `json:"id"`
	}
	if json.Unmarshal(b, &m) != nil || m.View != name || string(m.ID) != id || m.To.Year() < 1700 || m.To.Year() > 2200 {
		return 0, false
	}
	return m.To.UnixNano(), true
}

// target is a subject of an output Topic.
type target struct{ topic, subject string }

// pending is a message that is to be appended.
type pending struct {
	target
	data []byte
}

// conditional returns a message that is stored only if the last one of its subject has an offset.
func (p *pending) conditional(last uint64) protocol.Message {
	head := append([]byte("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: "), strconv.FormatUint(last, 10)...)
	head = append(head, "\r\n\r\n"...)
	return protocol.Message{Subject: []byte(p.subject), Header: len(head), Data: append(head, p.data...)}
}

// appendAll appends messages on behalf of a user, each on condition that the last one of its
// subject is the one in lasts, and notes the new ones there. Those of a subject follow each other.
// It returns when all are stored, or after one was not.
func (s *Service[S]) appendAll(ctx context.Context, user string, messages []pending, lasts map[target]uint64, stored func()) error {
	queues := map[target][]*pending{}
	var order []target
	for i := range messages {
		m := &messages[i]
		if queues[m.target] == nil {
			order = append(order, m.target)
		}
		queues[m.target] = append(queues[m.target], m)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex // guards lasts
	_ = work.Each(appendsAtOnce, func(yield func(target) bool) {
		for _, t := range order {
			if ctx.Err() != nil || !yield(t) {
				return
			}
		}
	}, func(t target) error {
		for _, m := range queues[t] {
			mu.Lock()
			last := lasts[t]
			mu.Unlock()
			offset, err := s.appendOne(ctx, user, t.topic, m.conditional(last))
			if err != nil {
				stop(fmt.Errorf("topic %s: %w", t.topic, err)) // the first one counts
				return nil
			}
			mu.Lock()
			lasts[t] = offset
			mu.Unlock()
			stored()
		}
		return nil
	})
	return context.Cause(ctx)
}

// appendOne appends a message, and waits for its answer.
func (s *Service[S]) appendOne(ctx context.Context, user, topic string, m protocol.Message) (offset uint64, err error) {
	type result struct {
		offset uint64
		err    error
	}
	done := make(chan result, 1)
	s.Append(user, topic, &m, func(offset uint64, err error) { done <- result{offset, err} })
	select {
	case r := <-done:
		return r.offset, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readLasts asks the leaders of the output Topics for the last messages of subjects.
func (s *Service[S]) readLasts(ctx context.Context, targets []target, f func(t target, is *lastMessage) error) error {
	type shard struct {
		topic  string // id
		number int
	}
	by := map[shard][]target{}
	var order []shard
	for _, t := range targets {
		id, number, err := s.Locate(t.topic, []byte(t.subject))
		if err != nil {
			return fmt.Errorf("topic %s: %w", t.topic, err)
		}
		at := shard{id, number}
		if by[at] == nil {
			order = append(order, at)
		}
		by[at] = append(by[at], t)
	}
	for _, at := range order {
		for rest := by[at]; len(rest) > 0; {
			q := question{Kind: lastOf, Topic: at.topic, Shard: at.number}
			for _, t := range rest[:min(len(rest), lastsAtOnce)] {
				q.Subjects = append(q.Subjects, t.subject)
			}
			a, err := s.ask(ctx, &q)
			if err != nil {
				return fmt.Errorf("topic %s: its last messages can't be read: %w", rest[0].topic, err)
			}
			if len(a.Lasts) == 0 || len(a.Lasts) > len(q.Subjects) {
				return errWire
			}
			for i := range a.Lasts {
				if err := f(rest[i], &a.Lasts[i]); err != nil {
					return err
				}
			}
			rest = rest[len(a.Lasts):]
		}
	}
	return nil
}
