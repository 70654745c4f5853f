package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func smallThroughput(t *testing.T, shape string, size int) Workload {
	t.Helper()
	made, err := Throughput{Shapes: []string{shape}, PayloadBytes: []int{size}, Warmup: 20 * time.Millisecond, Duration: 200 * time.Millisecond}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0]
}

func TestAThroughputPlanIsChecked(t *testing.T) {
	good := Throughput{Shapes: []string{"1:1", "4:4", "1:0"}, PayloadBytes: []int{16, 65536}, Duration: time.Second}
	made, err := good.Workloads()
	if err != nil || len(made) != 6 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	if w := made[3]; w.throughput.publishers != 4 || w.throughput.subscribers != 4 || w.Parameters.PayloadBytes != 65536 || w.sockets() != 8 {
		t.Errorf("%+v", w)
	}
	for want, change := range map[string]func(*Throughput){
		"is not publishers:subscribers": func(c *Throughput) { c.Shapes = []string{"4"} },
		`"0:1" is not`:                  func(c *Throughput) { c.Shapes = []string{"0:1"} },
		`"1:1001" is not`:               func(c *Throughput) { c.Shapes = []string{"1:1001"} },
		"payload is 15":                 func(c *Throughput) { c.PayloadBytes = []int{15} },
		"or no size":                    func(c *Throughput) { c.PayloadBytes = nil },
		"duration is":                   func(c *Throughput) { c.Duration = 0 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestAFloodArrivesWhole: every subscriber receives what every publisher sent, whatever the bytes
// come in.
func TestAFloodArrivesWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shape  string
		size   int
		server *fakeServer
	}{
		{"1:1", 16, &fakeServer{}}, {"2:3", 128, &fakeServer{}}, {"1:2", 65536, &fakeServer{}}, {"1:0", 16, &fakeServer{}},
	} {
		t.Run(c.shape, func(t *testing.T) {
			w := smallThroughput(t, c.shape, c.size)
			run := measure(t.Context(), startFakeServer(t, c.server), w, testLimits, quietly)
			f, d := run.Throughput, run.Deliveries
			if run.faulty() || run.Partial || f.Published == 0 || f.PublishRate <= 0 || f.PublishBytes != f.PublishRate*float64(c.size) {
				t.Fatalf("%+v %+v", run, f)
			}
			if d.Expected != int64(run.Published*w.throughput.subscribers) || d.Received != d.Expected {
				t.Errorf("%d published: %+v", run.Published, d)
			}
			if subscribed := w.throughput.subscribers > 0; subscribed != (f.ReceiveRate > 0) || subscribed != (f.Received > 0) {
				t.Errorf("%+v", f)
			}
			if f.Published > int64(run.Published) || f.Received > d.Received {
				t.Errorf("more is counted than there was: %+v of %d", f, run.Published)
			}
		})
	}
}

func TestAFloodsFaultsAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		what fate
		want Deliveries // of one message that has this fate
	}{
		{"lost", drop, Deliveries{Lost: 1}},
		{"duplicated", deliverTwice, Deliveries{Duplicated: 1}},
		{"damaged", damage, Deliveries{Lost: 1, Unexpected: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := &fakeServer{floodFate: func(publisher uint16, sequence uint64) fate {
				if publisher == 1 && sequence == 5 {
					return c.what
				}
				return deliverOnce
			}}
			run := measure(t.Context(), startFakeServer(t, server), smallThroughput(t, "2:1", 128), lossLimits, quietly)
			d := run.Deliveries
			if d.Expected == 0 || d.Received != d.Expected-d.Lost {
				t.Errorf("%+v", d)
			}
			if d.Expected, d.Received = 0, 0; d != c.want {
				t.Errorf("found %+v, want %+v", d, c.want)
			}
		})
	}
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		server := &fakeServer{floodFate: func(_ uint16, sequence uint64) fate {
			if sequence == 5 {
				return cutOff
			}
			return deliverOnce
		}}
		run := measure(t.Context(), startFakeServer(t, server), smallThroughput(t, "1:1", 128), lossLimits, quietly)
		if run.Dropped != 1 || run.Deliveries.Lost == 0 || !strings.Contains(run.Error, "cut off 1 of 1 subscribers") {
			t.Errorf("%+v", run)
		}
	})
}

func TestAFloodPayloadShowsDamage(t *testing.T) {
	const run, size = 4711, 64
	filler := floodFiller(run, size)
	good := append(make([]byte, floodHeaderBytes), filler...)
	want := floodStamp{run: run, publisher: 3 | floodProbe, sequence: 1<<47 + 5}
	want.put(good)
	if got, whole := readFloodStamp(good, run, filler); !whole || got != want {
		t.Fatalf("%+v, %v", got, whole)
	}
	for i := range good {
		damaged := slices.Clone(good)
		damaged[i] ^= 0x10
		if got, whole := readFloodStamp(damaged, run, filler); whole {
			t.Fatalf("byte %d is damaged, and it says %+v", i, got)
		}
	}
	if _, whole := readFloodStamp(good[:size-1], run, filler); whole {
		t.Error("a shorter payload is taken for whole")
	}
	if bytes.Equal(filler[:16], filler[16:32]) {
		t.Error("the filler repeats: pieces in the wrong place would not show")
	}
}

func TestASequenceAccountTellsLossesFromDuplicates(t *testing.T) {
	for _, c := range []struct {
		name      string
		sequences []uint64
		published uint64
		want      Deliveries
	}{
		{"all is well", []uint64{0, 1, 2}, 3, Deliveries{Received: 3}},
		{"the first is missing", []uint64{1, 2}, 3, Deliveries{Received: 2, Lost: 1}},
		{"the last is missing", []uint64{0, 1}, 3, Deliveries{Received: 2, Lost: 1}},
		{"one comes late", []uint64{0, 2, 1, 3}, 4, Deliveries{Received: 4, OutOfOrder: 1}},
		{"all of a gap come late, one twice", []uint64{0, 5, 3, 1, 2, 4, 3}, 6, Deliveries{Received: 6, OutOfOrder: 4, Duplicated: 1}},
		{"one twice", []uint64{0, 1, 1}, 2, Deliveries{Received: 2, Duplicated: 1}},
		{"a loss and a duplicate do not cancel", []uint64{0, 2, 2}, 3, Deliveries{Received: 2, Lost: 1, Duplicated: 1}},
	} {
		var a sequenceAccount
		for _, s := range c.sequences {
			a.observe(s)
		}
		c.want.Expected = int64(c.published)
		if got := a.settle(c.published); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var a sequenceAccount
	for s := range uint64(10 * maxGaps) {
		a.observe(2 * s)
	}
	if len(a.gaps) > maxGaps {
		t.Errorf("%d gaps are kept", len(a.gaps))
	}
	if d := a.settle(20*maxGaps - 1); d.Lost != 10*maxGaps-1 {
		t.Errorf("%+v", d)
	}
}

// TestAFloodsFramesAreReadHoweverTheyAreSplit: expected frames, others, and pieces of both.
func TestAFloodsFramesAreReadHoweverTheyAreSplit(t *testing.T) {
	f := newFlood(Target{}, 4711, 1, 1, 32, Limits{})
	var data []byte
	for n := range uint64(6) {
		payload := append(make([]byte, floodHeaderBytes), f.filler...)
		floodStamp{run: 4711, sequence: n}.put(payload)
		verb := "MSG " + f.subject + " 1 32\r\n"
		if n%3 == 2 {
			verb = "-ERR 'something'\r\nMSG " + f.subject + " 1  32\r\n" // not as expected, and right
		}
		data = append(append(append(data, verb...), payload...), crlf...)
	}
	for cut := range len(data) {
		s := newFloodSubscriber(f, nil, 1)
		used, err := s.parse(data[:cut])
		if err != nil {
			t.Fatal(err)
		}
		rest, err := s.parse(data[used:])
		if err != nil || used+rest != len(data) || s.fresh != 6 || s.unexpected != 0 || s.refused != "something" {
			t.Fatalf("cut at %d: %d+%d of %d bytes, %d messages, %v", cut, used, rest, len(data), s.fresh, err)
		}
	}
}

func BenchmarkFloodSubscriber(b *testing.B) {
	f := newFlood(Target{}, 4711, 1, 1, 16, Limits{})
	s := newFloodSubscriber(f, nil, 1)
	payload := make([]byte, floodHeaderBytes)
	floodStamp{run: 4711}.put(payload)
	data := bytes.Repeat(append(append([]byte("MSG "+f.subject+" 1 16\r\n"), payload...), crlf...), 1000)
	for b.Loop() {
		_, _ = s.parse(data)
	}
}

func TestByteCountsAreReadable(t *testing.T) {
	for n, want := range map[float64]string{16: "16 B", 1024: "1 KiB", 65536: "64 KiB", 1500: "1.46 KiB", 15e6: "14.3 MiB", 3 << 30: "3 GiB", 500.5 * (1 << 20): "500 MiB"} {
		if got := byteCount(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}

func sampleThroughput(scale float64) Run {
	return Run{
		Deliveries: Deliveries{Expected: 3e6, Received: 3e6}, Published: 3e6, ServerRSS: 40 << 20,
		Throughput: &ThroughputFigures{
			Published: 2e6, PublishRate: scale * 1e6, PublishBytes: scale * 128e6, Received: 2e6, ReceiveRate: scale * 1.01e6, ReceiveBytes: scale * 129e6,
			Client: CPU{Seconds: 0.3, Cores: 0.15, PerDelivery: 150}, Server: &CPU{Seconds: 1.2, Cores: 0.6, PerDelivery: 600 / scale},
		},
	}
}

// TestThroughputsTable: medians and their ratios, although nothing has a latency.
func TestThroughputsTable(t *testing.T) {
	w := smallThroughput(t, "1:1", 128)
	result := newResult(w, []Target{{Name: "carillon"}, {Name: "nats-server"}})
	for i, scales := range [][]float64{{1, 3, 2}, {1, 0.5, 1.5}} {
		for _, scale := range scales {
			result.Measured[i].Runs = append(result.Measured[i].Runs, sampleThroughput(scale))
		}
	}
	result.summarize()
	r := &Report{Servers: []Server{{Name: "carillon"}, {Name: "nats-server"}}, Results: []Result{result}}
	if q := result.Ratio; q == nil || q.Throughput == nil || q.Throughput.PublishRate != 2 || q.Throughput.ServerCPU != 0.5 {
		t.Fatalf("%+v", q)
	}
	table := string(tableOf(t, r, false))
	for _, want := range []string{"1:1 128 B", "2,000,000", "2,020,000", "246 MiB", "300ns", "2.00×", "0.50×", "/ NAME: carillon over NAME"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	result.Measured[1].Runs[2].Deliveries.Lost = 7
	result.summarize()
	r.Results[0] = result
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "throughput 1:1 of 128 B on nats-server: 7 lost") {
		t.Errorf("the error is %v", err)
	}
}

func TestAFloodThatIsLostEnds(t *testing.T) {
	t.Parallel()
	server := &fakeServer{floodFate: func(uint16, uint64) fate { return drop }}
	run := measure(t.Context(), startFakeServer(t, server), smallThroughput(t, "1:1", 16), lossLimits, quietly)
	if d := run.Deliveries; d.Lost == 0 || d.Lost != d.Expected || run.Error != "" {
		t.Errorf("%+v", run)
	}
}
