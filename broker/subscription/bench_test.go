package subscription

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/topic"
)

// discard is a DeliverySink that acknowledges its deliveries at Flush and pulls more.
type discard struct {
	sub    *Subscription
	n      int
	until  int
	offset uint64
	done   chan struct{}
	acks   []uint64
	token  uint64 // of a flow control request that is answered at Flush; 0: none
	// idle: nobody is subscribed to the destination of a push. until sets it.
	idle    atomic.Bool
	changed func() // of Watch
}

// Present and Stop are those of an Interest.
func (o *discard) Present() bool { return !o.idle.Load() }
func (o *discard) Stop()         {}

// always is an Interest that never ends.
type always struct{}

func (always) Present() bool { return true }
func (always) Stop()         {}

func (o *discard) Deliver(_ []byte, d *Delivery, _ *log.Record) {
	o.n++
	o.offset = d.Offset
	o.acks = append(o.acks, d.Offset)
	if o.n == o.until {
		o.idle.Store(true)
		o.done <- struct{}{}
	}
}
func (o *discard) End([]byte, End, int, int)                {}
func (o *discard) Heartbeat([]byte, uint64, uint64, uint64) {}
func (o *discard) FlowControl(_ []byte, token uint64)       { o.token = token }
func (o *discard) Interested([]byte) bool                   { return true }
func (o *discard) Watch(_ string, _ []byte, _ string, changed func()) Interest {
	o.changed = changed
	return o
}
func (o *discard) Flush() {
	for _, offset := range o.acks {
		o.sub.Ack(offset, 0, 1, Done, 0, nil)
	}
	o.acks = o.acks[:0]
	if token := o.token; token != 0 {
		o.token = 0
		o.sub.FlowControlled(token)
	}
}

// full returns a broker whose Topic holds n records of 128 bytes, on a disk with the given options.
func full(t testing.TB, n int, opts log.Options) (*world, *discard) {
	sink := &discard{done: make(chan struct{}, 1)}
	w := &world{t: t, fs: env.OS, opts: opts}
	var err error
	if w.disk, err = log.OpenDisk(w.fs, t.TempDir(), opts); err != nil {
		t.Fatal(err)
	}
	if w.shard, err = w.open(); err != nil {
		t.Fatal(err)
	}
	w.service = New(Config{Sink: func(*topic.Shard, string) DeliverySink { return sink }})
	w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders"})
	t.Cleanup(w.stop)
	w.fill(n)
	return w, sink
}

// fill appends n records in batches of 64.
func (w *world) fill(n int) {
	records := make([]log.Record, 64)
	for i := range records {
		records[i] = log.Record{Subject: fmt.Appendf(nil, "orders.%d", i%4), Data: make([]byte, 128)}
	}
	for ; n > 0; n -= len(records) {
		records = records[:min(n, len(records))]
		for {
			_, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: records, Durability: log.Memory})
			if err == nil {
				break
			}
			if err := w.shard.data.WaitRoom(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if err := w.shard.data.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

// run delivers n records to one request of that size and acknowledges them.
func (o *discard) run(n int) {
	o.n, o.until = 0, n
	o.sub.Pull(Pull{To: []byte("inbox"), Batch: n})
	<-o.done
}

// push delivers n records to the destination of a push and acknowledges them.
func (o *discard) push(n int) {
	o.n, o.until = 0, n
	o.idle.Store(false)
	o.changed()
	<-o.done
}

func benchmark(b *testing.B, opts log.Options, subjects ...string) {
	w, sink := full(b, b.N, opts)
	spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}, Subjects: subjects}
	w.declare("billing", 1, spec)
	sink.sub = w.find("billing")
	n := b.N
	if len(subjects) > 0 {
		n = max(b.N/4, 1)
	}
	b.ReportAllocs()
	b.ResetTimer()
	sink.run(n)
	b.StopTimer()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "deliveries/s")
}

func BenchmarkDeliverFromMemory(b *testing.B) { benchmark(b, log.Options{TailBytes: 1 << 30}) }
func BenchmarkDeliverFromDisk(b *testing.B)   { benchmark(b, log.Options{TailBytes: 1}) }
func BenchmarkDeliverFiltered(b *testing.B) {
	benchmark(b, log.Options{TailBytes: 1 << 30}, "orders.0")
}

func BenchmarkDeliverByCondition(b *testing.B) {
	w, sink := full(b, b.N, log.Options{TailBytes: 1 << 30})
	w.declare("billing", 1, where(`subject == "orders.0"`))
	sink.sub = w.find("billing")
	b.ReportAllocs()
	b.ResetTimer()
	sink.run(max(b.N/4, 1))
}

// BenchmarkTail measures new records of 200 bytes, each of which matches one of some Subscriptions
// that wait with different conditions.
func BenchmarkTail(b *testing.B) {
	for _, n := range []int{1, 10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, _ := full(b, 1, log.Options{})
			got := &counting{all: make(chan struct{}, 1)}
			got.want.Store(1 << 62)
			w.service.config.Sink = func(*topic.Shard, string) DeliverySink { return &counter{of: got} }
			for i := range n {
				spec := where(fmt.Sprintf("json.k == %d", i))
				spec.Ack.Policy = coordination.AckNone
				w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: fmt.Sprint("s", i), Made: int64(i + 1), Spec: &spec})
			}
			w.follow()
			for i := range n {
				w.find(fmt.Sprint("s", i)).Pull(Pull{To: []byte("inbox"), Batch: 1 << 30})
			}
			for w.service.store(topicID).tail.waiting.Load() < int32(n) { // else they judge for themselves
				runtime.Gosched()
			}
			records := make([]log.Record, 64)
			pad := strings.Repeat("x", 150)
			b.ReportAllocs()
			b.ResetTimer()
			got.n.Store(0)
			got.want.Store(int64((b.N + 63) / 64 * 64))
			at := 0
			for published := 0; published < b.N; published += len(records) {
				for i := range records {
					records[i] = log.Record{Subject: []byte("orders.eu"), Data: fmt.Appendf(nil, `{"id": "12345", "k": %d, "pad": %q}`, at%n, pad)}
					at++
				}
				if _, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: records, Durability: log.Memory}); err != nil {
					if err = w.shard.data.WaitRoom(b.Context()); err != nil {
						b.Fatal(err)
					}
					published, at = published-len(records), at-len(records)
					continue
				}
				if err := w.shard.data.Flush(); err != nil {
					b.Fatal(err)
				}
				w.shard.moved()
			}
			<-got.all
		})
	}
}

// counting counts what many DeliverySinks get.
type counting struct {
	n, want atomic.Int64
	all     chan struct{}
}

// counter is a DeliverySink that counts.
type counter struct {
	discard
	of *counting
}

func (c *counter) Deliver([]byte, *Delivery, *log.Record) {
	if c.of.n.Add(1) == c.of.want.Load() {
		c.of.all <- struct{}{}
	}
}

// BenchmarkPullOne measures one record at a time, each pulled and acknowledged.
func BenchmarkPullOne(b *testing.B) {
	w, sink := full(b, b.N, log.Options{})
	w.declare("billing", 1, earliest())
	sink.sub = w.find("billing")
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		sink.run(1)
	}
}

// BenchmarkIdleSubscription measures the memory of idle Subscriptions.
func BenchmarkIdleSubscription(b *testing.B) {
	w, _ := full(b, 1, log.Options{})
	for i := range b.N {
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: fmt.Sprintf("s%d", i), Made: int64(i + 1), Spec: new(earliest())})
	}
	b.ReportAllocs()
	b.ResetTimer()
	w.follow()
	w.find(fmt.Sprintf("s%d", b.N-1))
}
