package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/trigger"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/viewing"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// viewed is a cluster of three brokers with the Topic readings of three shards, the view hot-rooms
// of it, and the Topics that it writes into.
type viewed struct {
	t       *testing.T
	store   *coordination.Client
	brokers []*linked
	base    time.Time
	counts  map[string]map[int64]int // readings by room, and by the start of a window in s
	sums    map[string]map[int64]int
	n       int
	streams map[*linked]nats.JetStreamContext
}

// stream returns JetStream by a broker.
func (v *viewed) stream(by *linked) nats.JetStreamContext {
	v.t.Helper()
	if v.streams[by] == nil {
		js, err := by.connect().JetStream(nats.MaxWait(2 * time.Second))
		testutil.Must(v.t, err)
		v.streams[by] = js
	}
	return v.streams[by]
}

// sensors is how many subjects there are. Each has its room as an attribute.
const sensors = 16

func roomOf(sensor int) string { return fmt.Sprint("r.", sensor%4) }

func startViewed(t *testing.T) *viewed {
	endpoints := startEtcd(t)
	v := &viewed{t: t, base: time.Now().Truncate(10 * time.Second), counts: map[string]map[int64]int{}, sums: map[string]map[int64]int{}, streams: map[*linked]nats.JetStreamContext{}}
	for _, name := range []string{"a", "b", "c"} {
		v.brokers = append(v.brokers, startLinked(t, endpoints, name, ""))
	}
	awaitLinks(t, v.brokers...)
	var err error
	v.store, err = coordination.Open(coordination.Config{Endpoints: endpoints, Cluster: linkedCluster})
	testutil.Must(t, err)
	t.Cleanup(func() { _ = v.store.Close() })
	for name, shards := range map[string]int{"readings": 3, "room-means": 2, "alerts": 1} {
		pattern := name + ".>"
		// A reading whose answer is late is published again.
		_, err := v.store.CreateTopic(t.Context(), name, coordination.TopicSpec{Subjects: []string{pattern}, Shards: shards, Replicas: 3, MinInSync: 2, Deduplication: time.Hour}, coordination.Owner{Kind: coordination.ClientOwner})
		testutil.Must(t, err)
	}
	_, err = v.store.CreateView(t.Context(), "hot-rooms", coordination.ViewSpec{
		Topic: "readings", Output: "room-means", Alerts: map[string]string{"hot": "alerts"},
		Compute: view.Spec{
			By: "attributes.room", Window: view.Window{Tumbling: 10 * time.Second, Time: "json.at"},
			Values:   map[string]string{"readings": "count()", "sum": "sum(json.celsius)"},
			Triggers: []trigger.Spec{{Name: "hot", When: "sum > 48.0", Until: "sum < 40.0"}},
		},
	}, coordination.Owner{Kind: coordination.ClientOwner})
	testutil.Must(t, err)
	p := publisher{t, v.brokers[0].connect()}
	for sensor := range sensors {
		p.change(admin.AttributesSetSubject, admin.AttributesChange{Subject: fmt.Sprint("readings.", sensor), Set: attribute.Set{"room": attribute.String(roomOf(sensor))}})
	}
	return v
}

// publish publishes a reading until it is acknowledged, once.
func (v *viewed) publish(by *linked, sensor int, at time.Time) {
	v.t.Helper()
	room, celsius := roomOf(sensor), v.n*7%23
	v.n++
	body := fmt.Sprintf(`{"at":%q,"celsius":%d}`, at.UTC().Format(time.RFC3339Nano), celsius)
	m := nats.NewMsg(fmt.Sprint("readings.", sensor))
	m.Data = []byte(body)
	m.Header.Set(nats.MsgIdHdr, fmt.Sprint(v.n))
	js := v.stream(by)
	testutil.Eventually(v.t, "a reading is stored", func() error {
		_, err := js.PublishMsg(m)
		return err
	})
	if v.counts[room] == nil {
		v.counts[room], v.sums[room] = map[int64]int{}, map[int64]int{}
	}
	start := at.Truncate(10 * time.Second).Unix()
	v.counts[room][start]++
	v.sums[room][start] += celsius
}

// want returns what the outputs should have: the lines of each subject. The last window is open.
func (v *viewed) want() map[string][]string {
	all := map[string][]string{}
	for room, windows := range v.counts {
		token := strings.ReplaceAll(room, ".", "%2E")
		starts := slices.Sorted(maps.Keys(windows))
		raised := false
		for _, start := range starts[:len(starts)-1] {
			sum := v.sums[room][start]
			at := "room-means.hot-rooms." + token
			all[at] = append(all[at], fmt.Sprintf("%d: %d %d", start, windows[start], sum))
			if !raised && sum > 48 || raised && sum < 40 {
				raised = !raised
				at := "alerts.hot-rooms.hot." + token
				all[at] = append(all[at], fmt.Sprintf("%d: %d %v", start, len(all[at])+1, raised))
			}
		}
	}
	return all
}

// got reads the outputs.
func (v *viewed) got(by *linked) (map[string][]string, error) {
	js, all := v.stream(by), map[string][]string{}
	for _, stream := range []string{coordination.ShardStream("room-means", 2, 0), coordination.ShardStream("room-means", 2, 1), "alerts"} {
		is, err := js.StreamInfo(stream)
		if err != nil {
			return nil, err
		}
		for n := max(is.State.FirstSeq, 1); n <= is.State.LastSeq; n++ {
			m, err := js.GetMsg(stream, n)
			if err != nil {
				return nil, err
			}
			var is struct {
				From   time.Time
				Values struct{ Readings, Sum float64 }
				Serial int
				State  string
			}
			if err := json.Unmarshal(m.Data, &is); err != nil {
				return nil, err
			}
			line := fmt.Sprintf("%d: %v %v", is.From.Unix(), is.Values.Readings, is.Values.Sum)
			if is.Serial > 0 {
				line = fmt.Sprintf("%d: %d %v", is.From.Unix(), is.Serial, is.State == "raised")
			}
			all[m.Subject] = append(all[m.Subject], line)
		}
	}
	return all, nil
}

// told reads the present values, a page at a time. They may be of a moment ago.
func (v *viewed) told(nc *nats.Conn) (map[string]string, error) {
	v.t.Helper()
	seen := map[string]string{}
	for ask := (admin.ViewGetRequest{View: "hot-rooms", Ask: viewing.Ask{Limit: 3}}); ; {
		body, err := json.Marshal(&ask)
		testutil.Must(v.t, err)
		m, err := nc.Request(admin.ViewGetSubject, body, testutil.Patience)
		if err != nil {
			return nil, err
		}
		var page struct {
			Error  *admin.Error
			Values []struct {
				Key    []string
				From   time.Time
				Values struct{ Readings, Sum float64 }
			}
			Offsets []uint64
			Next    string
		}
		if err := json.Unmarshal(m.Data, &page); err != nil || page.Error != nil {
			return nil, fmt.Errorf("%v %v", err, page.Error)
		}
		for _, is := range page.Values {
			seen[is.Key[0]] += fmt.Sprintf("%d: %v %v", is.From.Unix(), is.Values.Readings, is.Values.Sum)
		}
		if len(page.Values) > 3 || len(page.Offsets) != 3 {
			v.t.Errorf("a page has %d values, and offsets %v", len(page.Values), page.Offsets)
		}
		if ask.After = page.Next; page.Next == "" {
			return seen, nil
		}
	}
}

// values waits until the present values are those of the last windows. When the results of the
// windows before are written, a shard may still have to read the last readings. Then each shard has
// its part of them.
func (v *viewed) values(by *linked) {
	v.t.Helper()
	nc, want := by.connect(), map[string]string{}
	for room, windows := range v.counts {
		last := slices.Max(slices.Collect(maps.Keys(windows)))
		want[room] = fmt.Sprintf("%d: %d %d", last, windows[last], v.sums[room][last])
	}
	testutil.Eventually(v.t, "the present values are those of all readings", func() error {
		seen, err := v.told(nc)
		if err == nil && !maps.Equal(seen, want) {
			err = fmt.Errorf("they are %v, want %v", seen, want)
		}
		return err
	})
	body := `{"view":"hot-rooms","keys":["r.1",["r.2"],"none"]}`
	testutil.Eventually(v.t, "the values of two keys are told", func() error {
		m, err := nc.Request(admin.ViewGetSubject, []byte(body), testutil.Patience)
		if err != nil {
			return err
		}
		var some struct{ Values []struct{ Key []string } }
		if err := json.Unmarshal(m.Data, &some); err != nil || len(some.Values) != 2 || some.Values[0].Key[0] == some.Values[1].Key[0] {
			return fmt.Errorf("of two keys there is %s: %v", m.Data, err)
		}
		return nil
	})
	testutil.Eventually(v.t, "each shard of the page has its part", func() error {
		page, err := http.Get("http://" + by.http + "/topics")
		if err != nil {
			return err
		}
		defer page.Body.Close()
		var topics struct {
			Topics []struct {
				Name  string
				Views []view.Report
			}
		}
		if err := json.NewDecoder(page.Body).Decode(&topics); err != nil {
			return err
		}
		for _, shard := range topics.Topics {
			if shard.Name != "readings" {
				continue
			}
			if len(shard.Views) != 1 || shard.Views[0].Name != "hot-rooms" || shard.Views[0].Keys == 0 || shard.Views[0].Watermark.IsZero() || shard.Views[0].Trouble != "" {
				return fmt.Errorf("the views of a shard are %+v", shard.Views)
			}
		}
		return nil
	})
}

// TestAViewWritesEachWindowAndAlertOnceAcrossAFailover: the broker that leads the first shard, and
// so owns the view, ends while messages come. Each closed window and each alert is there once, as a
// recount of the messages has them. A view that is deleted stops, at all brokers.
func TestAViewWritesEachWindowAndAlertOnceAcrossAFailover(t *testing.T) {
	t.Parallel()
	v := startViewed(t)
	const windows = 12
	var owner *linked
	rest := v.brokers
	for n := range windows * sensors {
		v.publish(rest[n%len(rest)], n%sensors, v.base.Add(time.Duration(n/sensors)*10*time.Second))
		if n == windows*sensors/2 {
			testutil.Eventually(t, "results are written", func() error {
				for _, b := range v.brokers {
					if b.count("carillon_view_results_total") > 0 {
						owner = b
						return nil
					}
				}
				return errors.New("none")
			})
			owner.stop()
			rest = slices.DeleteFunc(slices.Clone(v.brokers), func(b *linked) bool { return b == owner })
		}
	}
	for sensor := range sensors { // closes all windows before
		v.publish(rest[0], sensor, v.base.Add(windows*10*time.Second))
	}
	want := v.want()
	testutil.Eventually(t, "all results and alerts are written", func() error {
		got, err := v.got(rest[0])
		if err == nil && !maps.EqualFunc(got, want, slices.Equal[[]string]) {
			err = fmt.Errorf("there are\n%v\nwant\n%v", got, want)
		}
		return err
	})
	alerts := 0
	for subject, lines := range want {
		if strings.HasPrefix(subject, "alerts.") {
			alerts += len(lines)
		}
	}
	if alerts < 4 {
		t.Errorf("%d alerts are too few to be worth a test", alerts)
	}
	for _, b := range rest { // one of them forwards the request
		v.values(b)
	}
	testutil.Must(t, v.store.DeleteView(t.Context(), "hot-rooms", 0, coordination.Owner{Kind: coordination.ClientOwner}))
	testutil.Eventually(t, "the view is kept nowhere", func() error {
		for _, b := range rest {
			if parts, owners := b.count("carillon_view_shards"), b.count("carillon_view_owners"); parts+owners > 0 {
				return fmt.Errorf("%d shards and %d owners", parts, owners)
			}
		}
		return nil
	})
}
