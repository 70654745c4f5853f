//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/test/durability/checker"
	"github.com/carillon-mq/carillon/test/recount"
)

// rooms is the number of keys of the Views.
const rooms = 3

// roomWindows are the windows of the View rooms.
var roomWindows = recount.Windows{Size: time.Second, Lateness: 500 * time.Millisecond}

// Names of the Views, and of the Topics that they write into.
const (
	windowed, endless = "rooms", "sums"
	totals, alerts    = "totals", "alerts"
)

// The triggers: hot is about windows, and the others are about all readings so far. The mean of a
// window is about 5, 15 or 25 (readingHeader).
var (
	hot  = recount.Trigger{Name: "hot", When: func(s recount.Sum) bool { return s.Total > 20*s.Readings }, Until: func(s recount.Sum) bool { return s.Total < 10*s.Readings }}
	many = recount.Trigger{Name: "many", When: func(s recount.Sum) bool { return s.Readings > 200 }, Until: func(s recount.Sum) bool { return s.Readings <= 200 }}
	warm = recount.Trigger{Name: "warm", When: func(s recount.Sum) bool { return s.Total > 15*s.Readings }, Until: func(s recount.Sum) bool { return s.Total < 15*s.Readings-200 }}
)

// views returns the Views, which read clicks: one with windows of the time that a message names,
// and one of all messages.
func views() []admin.CreateViewRequest {
	trigger := func(name, when, until string) admin.ViewTrigger {
		return admin.ViewTrigger{ViewTrigger: coordination.ViewTrigger{Name: name, When: when, Until: until}, Output: alerts}
	}
	values := map[string]string{"readings": "count()", "total": "sum(double(headers.N))"}
	return []admin.CreateViewRequest{
		{View: windowed, ViewSettings: admin.ViewSettings{
			Topic: "clicks", By: "headers.Room", Values: values, Output: totals,
			Window:   &admin.ViewWindow{Tumbling: admin.Span(roomWindows.Size), Time: "headers.At", Lateness: admin.Span(roomWindows.Lateness)},
			Triggers: []admin.ViewTrigger{trigger(hot.Name, "total > 20.0 * readings", "total < 10.0 * readings")},
		}},
		{View: endless, ViewSettings: admin.ViewSettings{
			Topic: "clicks", By: "headers.Room", Values: values,
			Triggers: []admin.ViewTrigger{
				trigger(many.Name, "readings > 200.0", ""),
				trigger(warm.Name, "total > 15.0 * readings", "total < 15.0 * readings - 200.0"),
			},
		}},
	}
}

// readingHeader returns the headers that the Views read. Times are some milliseconds ago, and of
// one message in 20 so long that it is late. Numbers are low, middling, high and middling, a second
// each.
func readingHeader(v checker.Value) nats.Header {
	at := time.Now().Add(-time.Duration(v.Counter%300) * time.Millisecond)
	if v.Counter%20 == 0 {
		at = at.Add(-3 * time.Second)
	}
	n := []uint64{2, 12, 22, 12}[at.Unix()%4] + v.Counter%7
	return nats.Header{"At": {at.UTC().Format(time.RFC3339Nano)}, "Room": {fmt.Sprint("room-", v.Counter%rooms)}, "N": {fmt.Sprint(n)}}
}

// createViews creates the Views and the Topics that they write into.
func (w *world) createViews() error {
	for _, name := range []string{totals, alerts} {
		var request admin.CreateRequest
		request.Stream.Subjects, request.Stream.Replicas = []string{name + ".>"}, replicas
		err := within(patience, "create topic "+name, func() error {
			_, err := ask[admin.TopicInfo](w.cluster, admin.TopicCreateSubject+name, request)
			return err
		})
		if err != nil {
			return err
		}
		w.streams, w.outputs = append(w.streams, name), w.outputs+1
	}
	for _, request := range views() {
		err := within(patience, "create view "+request.View, func() error {
			_, err := ask[admin.ViewInfo](w.cluster, admin.ViewCreateSubject, request)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readAll reads a stream from its first message to the one that it reports as its last.
func (w *world) readAll(ctx context.Context, name string, f func(m jetstream.Msg, meta *jetstream.MsgMetadata) error) error {
	stream, err := w.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	end := stream.CachedInfo().State.LastSeq
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	defer messages.Stop()
	for seq := uint64(0); seq < end; {
		m, err := messages.Next(jetstream.NextMaxWait(answerTime))
		if err != nil {
			return fmt.Errorf("stream %s behind %d of %d: %w", name, seq, end, err)
		}
		meta, err := m.Metadata()
		if err == nil {
			err = f(m, meta)
		}
		if err != nil {
			return fmt.Errorf("stream %s behind %d: %w", name, seq, err)
		}
		seq = meta.Sequence.Stream
	}
	return nil
}

// readings returns the records of clicks by shard.
func (w *world) readings(ctx context.Context) ([][]recount.Reading, error) {
	all := make([][]recount.Reading, len(w.clicks.Shards))
	for n, h := range w.clicks.Shards {
		err := w.readAll(ctx, h.Stream, func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			at, timeErr := time.Parse(time.RFC3339Nano, m.Headers().Get("At"))
			number, err := strconv.ParseFloat(m.Headers().Get("N"), 64)
			all[n] = append(all[n], recount.Reading{Offset: meta.Sequence.Stream, Stored: meta.Timestamp.UnixNano(), At: at.UnixNano(), Room: m.Headers().Get("Room"), N: number})
			return errors.Join(timeErr, err)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// written returns what the Views have written, by Topic and by trigger; that of results is empty.
func (w *world) written(ctx context.Context) (map[string][]recount.Present, error) {
	all := map[string][]recount.Present{}
	for _, topic := range []string{totals, alerts} {
		err := w.readAll(ctx, topic, func(m jetstream.Msg, _ *jetstream.MsgMetadata) error {
			is, trigger, err := recount.Parse(m.Data())
			if err == nil && (trigger == "") != (topic == totals) {
				err = fmt.Errorf("there is %s on %s", m.Data(), m.Subject())
			}
			all[trigger] = append(all[trigger], is)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// judgeViews waits until the Views agree with a recount of clicks, in a healthy cluster without
// load. It returns in what they don't.
func (w *world) judgeViews() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	began := time.Now()
	return within(patience, "the views agree with a recount", func() error {
		got, err := w.written(ctx)
		if err != nil {
			return err
		}
		present, err := ask[presentValues](w.cluster, admin.ViewGetSubject, admin.ViewGetRequest{View: endless})
		if err != nil {
			return err
		}
		logs, err := w.readings(ctx)
		if err != nil {
			return err
		}
		counted := recount.Count(logs, roomWindows)
		results := counted.Closed
		due := hot.Alerts(results)
		err = errors.Join(
			recount.Compare("results", plain(got[""]), results),
			recount.Compare("alerts", plain(got[hot.Name]), due),
			many.Judge(logs, got[many.Name]),
			warm.Judge(logs, got[warm.Name]),
			present.compare(recount.Totals(logs, nil)),
		)
		if err == nil && len(results) == 0 {
			err = errors.New("the views have no result: this tries nothing")
		}
		if err == nil {
			w.t.Logf("views: %d results, %d alerts, %d late, %d without a time; of all readings %d and %d alerts; they agreed after %v",
				len(results), len(due), counted.Late, counted.Untimed, len(got[many.Name]), len(got[warm.Name]), time.Since(began).Round(time.Millisecond))
		}
		return err
	})
}

func plain(of []recount.Present) (all []recount.Written) {
	for i := range of {
		all = append(all, of[i].Written)
	}
	return all
}

// presentValues is the answer to a request for present values.
type presentValues struct {
	Values []struct {
		Key    []string
		Values recount.Sum
	}
}

// compare compares the present values of all readings with a recount.
func (p *presentValues) compare(want map[string]recount.Sum) error {
	got := map[string]recount.Sum{}
	for _, v := range p.Values {
		got[v.Key[0]] = v.Values
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("views disagree with a recount: the present values are %+v, want %+v", got, want)
	}
	return nil
}
