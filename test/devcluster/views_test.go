//go:build linux

package devcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

const (
	// viewShards is more than one broker leads, so the owner hears others.
	viewShards = 3
	// windowTime and latenessTime are those of the View, in seconds.
	windowTime, latenessTime = 60, 15
	// hotAbove and hotBelow are the bounds of its trigger.
	hotAbove, hotBelow = 400, 300
)

// theView is the View of readings, which counts and adds them by room.
var theView = fmt.Sprintf(`{"view":"rooms","topic":"readings","by":"json.room",
	"window":{"tumbling":"%ds","time":"json.at","lateness":"%ds"},
	"values":{"readings":"count()","total":"sum(json.n)"},"output":"totals",
	"triggers":[{"name":"hot","when":"total > %d.0","until":"total < %d.0","output":"alerts"}]}`,
	windowTime, latenessTime, hotAbove, hotBelow)

// reading is a message that the View adds. Times are in seconds.
type reading struct {
	ID   string `json:"id"`
	Room string `json:"room"`
	At   int64  `json:"at"`
	N    int64  `json:"n"`
}

// readings are those of all writers. Their times pass with their number, so that windows close
// while they are published.
type readings struct {
	begin int64
	last  atomic.Int64 // number of the last one

	mu      sync.Mutex
	kept    map[string]kept // by id
	unknown int             // readings without an ack, which may be stored
}

// next returns a reading. Their times are in disorder: some are before the watermark, and some of
// these too late for their window. The totals of a room are above the trigger's bound in every
// second window.
func (r *readings) next(of string) reading {
	i := r.last.Add(1)
	is := reading{ID: fmt.Sprint(of, "-", i), Room: fmt.Sprint("room-", i%4), At: r.begin + i - 17*i%37, N: 1 + i%13}
	if is.At/windowTime%2 == 1 {
		is.N += 40
	}
	if i%50 == 0 {
		is.At -= 600
	}
	return is
}

// publish publishes a reading once, without a message id.
func (r *readings) publish(ctx context.Context, js jetstream.JetStream, subject string, is reading) error {
	body, err := json.Marshal(&is)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	ack, err := js.Publish(within, subject, body, jetstream.WithRetryAttempts(0))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.unknown++
		return err
	}
	r.kept[is.ID] = kept{ack.Stream, ack.Sequence}
	return nil
}

func subjectOf(n int) string { return fmt.Sprint("readings.", n%12) }

// end publishes a reading of a later time on each subject, so each shard has one: it closes all
// windows before.
func (r *readings) end(t *testing.T, js jetstream.JetStream, of string, at int64) {
	t.Helper()
	for n := range 12 {
		testutil.Eventually(t, "a last reading is acknowledged", func() error {
			r.last.Add(1)
			return r.publish(t.Context(), js, subjectOf(n), reading{fmt.Sprint(of, "-", r.last.Load()), of, at, hotAbove + 1})
		})
	}
}

// outcome is a message about a window: a result, or an alert.
type outcome struct {
	room            string
	end             int64
	readings, total int64
	alert           string // its serial number and state; empty: a result
}

// recount returns what the View has to write, by the definitions of docs/views.md, from the logs of
// all shards. late is how many readings came too late for their window.
func recount(logs [][]reading) (results, alerts []outcome, late int) {
	type window struct {
		room string
		end  int64
	}
	sums, closed := map[window]*outcome{}, int64(math.MaxInt64)
	for _, log := range logs {
		watermark := int64(math.MinInt64)
		for _, is := range log {
			if w := (window{is.Room, is.At - is.At%windowTime + windowTime}); w.end > watermark {
				if sums[w] == nil {
					sums[w] = &outcome{room: w.room, end: w.end}
				}
				sums[w].readings++
				sums[w].total += is.N
			} else {
				late++
			}
			watermark = max(watermark, is.At-latenessTime)
		}
		closed = min(closed, watermark)
	}
	for _, sum := range sums {
		if sum.end <= closed {
			results = append(results, *sum)
		}
	}
	slices.SortFunc(results, byRoom)
	serials := map[string]int{}
	for _, is := range results {
		hot := serials[is.room]%2 == 1
		switch {
		case !hot && is.total > hotAbove:
			is.alert = "raised"
		case hot && is.total < hotBelow:
			is.alert = "cleared"
		default:
			continue
		}
		serials[is.room]++
		is.alert = fmt.Sprint(serials[is.room], " ", is.alert)
		alerts = append(alerts, is)
	}
	return results, alerts, late
}

func byRoom(a, b outcome) int {
	return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.end, b.end))
}

// outcomes reads all messages of an output Topic: those of each room in their order.
func (c *cluster) outcomes(js jetstream.JetStream, topic string) []outcome {
	c.t.Helper()
	of := map[string][]outcome{}
	c.readAll(js, topic, func(payload string, seq uint64) {
		var is struct {
			View, Trigger, State string
			Serial               int
			Key                  []string
			To                   time.Time
			Values               struct{ Readings, Total float64 }
		}
		testutil.Must(c.t, json.Unmarshal([]byte(payload), &is))
		if len(is.Key) != 1 || is.View != "rooms" && is.Trigger != "hot" {
			c.t.Fatalf("message %d of %s is %s", seq, topic, payload)
		}
		o := outcome{room: is.Key[0], end: is.To.Unix(), readings: int64(is.Values.Readings), total: int64(is.Values.Total)}
		if is.Values.Readings != float64(o.readings) || is.Values.Total != float64(o.total) {
			c.t.Errorf("message %d of %s has parts of readings: %s", seq, topic, payload)
		}
		if is.Trigger != "" {
			o.alert = fmt.Sprint(is.Serial, " ", is.State)
		}
		of[o.room] = append(of[o.room], o)
	})
	var all []outcome
	for _, room := range slices.Sorted(maps.Keys(of)) {
		all = append(all, of[room]...)
	}
	return all
}

// written returns how many messages an output Topic has got. An answer is lost with its broker.
func (c *cluster) written(js jetstream.JetStream, topic string) (int, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patient)
	defer cancel()
	s, err := js.Stream(ctx, topic)
	if err != nil {
		return 0, err
	}
	return int(s.CachedInfo().State.LastSeq), nil
}

// hasWritten waits until an output Topic has got some messages.
func (c *cluster) hasWritten(js jetstream.JetStream, topic string, some int) {
	c.t.Helper()
	testutil.Eventually(c.t, topic+" has what is due", func() error {
		n, err := c.written(js, topic)
		if err == nil && n < some {
			err = fmt.Errorf("it has got %d messages of %d", n, some)
		}
		return err
	})
}

// settles reads the Topic back and requires all acknowledged readings. It waits for what the View
// has to write of it, and requires this and no more.
func (c *cluster) settles(js jetstream.JetStream, r *readings) {
	c.t.Helper()
	logs, there := make([][]reading, viewShards), map[string]kept{}
	for n := range logs {
		stream := fmt.Sprintf("readings--%d", n)
		c.whole(js, stream)
		c.readAll(js, stream, func(payload string, seq uint64) {
			var is reading
			testutil.Must(c.t, json.Unmarshal([]byte(payload), &is))
			if before, twice := there[is.ID]; twice {
				c.t.Errorf("reading %s stands at %v and at %s %d", is.ID, before, stream, seq)
			}
			logs[n], there[is.ID] = append(logs[n], is), kept{stream, seq}
		})
	}
	r.mu.Lock()
	for id, where := range r.kept {
		if there[id] != where {
			c.t.Errorf("reading %s was acknowledged at %v, and is at %v", id, where, there[id])
		}
	}
	acked, unknown := len(r.kept), r.unknown
	r.mu.Unlock()

	results, alerts, late := recount(logs)
	for topic, want := range map[string][]outcome{"totals": results, "alerts": alerts} {
		c.whole(js, topic)
		c.hasWritten(js, topic, len(want))
		got := c.outcomes(js, topic)
		for i := range max(len(got), len(want)) {
			if i >= min(len(got), len(want)) || got[i] != want[i] {
				c.t.Errorf("%s has %d messages, want %d; they differ from number %d of those by room on:\n%+v, want\n%+v",
					topic, len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
				break
			}
		}
	}
	c.t.Logf("%d readings acknowledged, %d without an ack, %d there, %d of them late; %d results, %d alerts",
		acked, unknown, len(there), late, len(results), len(alerts))
	if late == 0 || late > len(there)/2 || len(alerts) < len(results)/4 {
		c.t.Errorf("of %d readings %d were late, and %d results made %d alerts: this tries too little", len(there), late, len(results), len(alerts))
	}
}

// TestAViewIsExactWhileItsOwnerDies: a View has windows over a Topic of several shards, which
// clients of all brokers publish to. Its owner is killed, which leads the first shard, and then the
// leader of another shard. Each window has exactly what a recount of the Topic has, and each result
// and each alert is there once. So it stays when the owner is killed once more after all is
// written, and the next one has read and judged again.
func TestAViewIsExactWhileItsOwnerDies(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := c.connect()
	var streams []string
	for n := range viewShards {
		streams = append(streams, fmt.Sprintf("readings--%d", n))
	}
	create := func(kind, name, request string) {
		t.Helper()
		testutil.Eventually(t, kind+" "+name+" is made", func() error {
			subject := "$CARILLON.API.TOPIC.CREATE." + name
			if kind == "view" {
				subject = "$CARILLON.API.VIEW.CREATE"
			}
			m, err := js.Conn().Request(subject, []byte(request), answerTime)
			if err != nil {
				return err
			}
			var answer struct{ Error *struct{ Text string } }
			if err := json.Unmarshal(m.Data, &answer); err == nil && answer.Error != nil {
				return errors.New(answer.Error.Text)
			}
			return err
		})
	}
	for name, n := range map[string]int{"readings": viewShards, "totals": 1, "alerts": 1} {
		create("topic", name, fmt.Sprintf(`{"stream":{"subjects":["%s.>"],"num_replicas":3},"shards":%d}`, name, n))
	}
	for _, stream := range append(streams, "totals", "alerts") {
		c.whole(js, stream)
	}
	create("view", "rooms", theView)

	r := &readings{begin: time.Now().Add(-240*time.Hour).Unix() / 3600 * 3600, kept: map[string]kept{}}
	publishing, stop := context.WithCancel(t.Context())
	defer stop()
	var writers sync.WaitGroup
	defer writers.Wait()
	for broker := range c.urls {
		js := c.connectTo(broker)
		writers.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := broker; publishing.Err() == nil; n++ {
				_ = r.publish(t.Context(), js, subjectOf(n), r.next(fmt.Sprint(broker))) // it is in kept if it was acknowledged
				<-tick.C
			}
		})
	}
	goesOn := func() {
		t.Helper()
		for topic, some := range map[string]int{"totals": 40, "alerts": 20} {
			var before int
			testutil.Eventually(t, topic+" is there", func() (err error) {
				before, err = c.written(js, topic)
				return err
			})
			c.hasWritten(js, topic, before+some)
		}
	}
	for range tries(1, 7) {
		goesOn()
		c.kill(c.whole(js, streams[0]))
		goesOn() // the next owner writes
		other := 0
		testutil.Eventually(t, "the owner does not lead all shards", func() error {
			owner := c.whole(js, streams[0])
			for _, stream := range streams[1:] {
				if other = c.whole(js, stream); other != owner {
					return nil
				}
			}
			return fmt.Errorf("broker %d leads all", owner)
		})
		c.kill(other)
		goesOn()
	}
	stop()
	writers.Wait()

	later := r.begin + r.last.Load() + 3600
	r.end(t, js, "end", later)
	c.settles(js, r)
	c.kill(c.whole(js, streams[0]))
	r.end(t, js, "last", later+3600)
	c.settles(js, r) // with the window of the room that is called end
}
