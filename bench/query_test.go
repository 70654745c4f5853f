package bench

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func smallQuery(scan Scan) Query {
	return Query{
		Records: []int{101}, PayloadBytes: 200, Share: 0.1, Scans: 2, Replicas: 1,
		Durability: DurabilitySynced, Scan: scan,
	}
}

func TestAQueryPlanIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Query){
		"records is 0":          func(c *Query) { c.Records = []int{0} },
		"no number of records":  func(c *Query) { c.Records = nil },
		"match 0 of":            func(c *Query) { c.Share = 0 },
		"match 2 of":            func(c *Query) { c.Share = 2 },
		"scans is 0":            func(c *Query) { c.Scans = 0 },
		"records have 100":      func(c *Query) { c.PayloadBytes = 100 },
		`durability is "maybe"`: func(c *Query) { c.Durability = "maybe" },
		"replicas":              func(c *Query) { c.Replicas = 6 },
	} {
		bad := smallQuery(nil)
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestScansAreCompared: a scan that finds too few or too many is a fault, and so is one that fails.
func TestScansAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		off  int64 // of what the selective scan finds
		fail bool
		want Deliveries
	}{
		{want: Deliveries{Expected: 2 * 112, Received: 2 * 112}},
		{off: -3, want: Deliveries{Expected: 2 * 112, Received: 2 * 109, Lost: 6}},
		{off: 2, want: Deliveries{Expected: 2 * 112, Received: 2 * 112, Unexpected: 4}},
		{fail: true, want: Deliveries{Expected: 2 * 101, Received: 2 * 101}},
	} {
		scan := func(_ context.Context, _ *nats.Conn, topic, where string) (int64, error) {
			switch {
			case !strings.HasPrefix(topic, "bench-"):
				t.Errorf("the topic %q is scanned", topic)
			case where == "":
				return 101, nil
			case where == "json.k == 0" && c.fail:
				return 0, context.DeadlineExceeded
			case where == "json.k == 0":
				return 11 + c.off, nil
			}
			return 0, nil
		}
		made, err := smallQuery(scan).Workloads()
		if err != nil {
			t.Fatal(err)
		}
		server := startFakeServer(t, &fakeServer{streams: &fakeStreams{}})
		run := measure(t.Context(), server, made[0], testLimits, quietly)
		if run.Deliveries != c.want || (run.Error != "") != c.fail || run.Published != 101 {
			t.Errorf("%+v: %+v, %q", c, run.Deliveries, run.Error)
		}
		if f := run.Query; !c.fail && (f.All.Operations != 202 || f.None.Rate <= 0 ||
			run.Latency.Count != 2) {
			t.Errorf("%+v", f)
		}
	}
}

func TestARecordIsJSONOfItsSize(t *testing.T) {
	made, err := smallQuery(nil).Workloads()
	if err != nil {
		t.Fatal(err)
	}
	p, matching := made[0].query, int64(0)
	for n := range p.records {
		data := p.payloadOf(nil, 200, n)
		var record struct {
			K int `json:"k"`
		}
		if err := json.Unmarshal(data, &record); err != nil || len(data) != 200 {
			t.Fatalf("%d bytes, %v: %s", len(data), err, data)
		}
		if record.K == 0 {
			matching++
		}
	}
	if kinds := p.kinds(); kinds[1].matching != matching || kinds[0].matching != 101 ||
		kinds[2].matching != 0 {
		t.Errorf("%d match of %+v", matching, kinds)
	}
}

func TestQuerysTable(t *testing.T) {
	made, err := smallQuery(nil).Workloads()
	if err != nil {
		t.Fatal(err)
	}
	targets := []Target{{Name: "carillon"}, {Name: "before"}}
	result := newResult(made[0], targets)
	for i := range 2 {
		run := sampleRun(1, 2, time.Millisecond)
		phase := KVPhase{Operations: 202, Rate: 1e6 / float64(i+1), Latency: run.Latency,
			Client: CPU{PerDelivery: 81.25}, Server: &CPU{PerDelivery: 12}}
		run.Query = &QueryFigures{FillRate: 70_000, All: phase, Selective: phase, None: phase}
		result.Measured[i].Runs = append(result.Measured[i].Runs, run)
	}
	result.summarize()
	r := &Report{Servers: []Server{{Name: "carillon"}, {Name: "before"}}, Results: []Result{result}}
	table := string(tableOf(t, r, false))
	for _, want := range []string{
		"query: scans of a Topic by carillon query", "2 scans of each kind, one after another; selective is 10 % of the records",
		"1,000,000   191 MiB/s", "81.2ns", "2.00×", "carillon: filled with 70,000 records/s; lost 0, too many 0.",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
