package replica

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// overTCP returns a world in real time, in which a follows no shard and the other brokers dial over
// loopback.
func overTCP(t testing.TB, disk func(id string) env.FS, brokers ...string) *world {
	return overNetwork(t, func(conn net.Conn) net.Conn { return conn }, disk, brokers...)
}

// overNetwork is overTCP with wrapped connections.
func overNetwork(t testing.TB, wrap func(net.Conn) net.Conn, disk func(id string) env.FS, brokers ...string) *world {
	w := &world{t: t, wires: newWires(), store: newStore(), nodes: map[string]*node{}, minInSync: len(brokers)}
	var servers sync.WaitGroup
	var listeners []net.Listener
	addresses := map[string]string{}
	for _, id := range brokers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, listener)
		addresses[id] = listener.Addr().String()
		servers.Go(func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				name := make([]byte, 1)
				if _, err := conn.Read(name); err != nil {
					conn.Close()
					continue
				}
				servers.Go(func() { w.nodes[id].x.Serve(conn, string(name)) })
			}
		})
	}
	for _, id := range brokers {
		w.dial = func(ctx context.Context, from, to string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addresses[to])
			if err != nil {
				return nil, err
			}
			_, err = conn.Write([]byte(from))
			return wrap(conn), err
		}
		w.start(id, disk(id))
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		w.end()
		servers.Wait()
	})
	return w
}

// gate blocks waiters until an offset is safe on all replicas.
type gate struct {
	mu   sync.Mutex
	cond sync.Cond
	high uint64
}

func newGate() *gate {
	g := &gate{}
	g.cond.L = &g.mu
	return g
}

func (g *gate) move(high uint64) {
	g.mu.Lock()
	g.high = max(g.high, high)
	g.cond.Broadcast()
	g.mu.Unlock()
}

func (g *gate) wait(end uint64) {
	g.mu.Lock()
	for g.high < end {
		g.cond.Wait()
	}
	g.mu.Unlock()
}

// publisher stands for a Topic.
type publisher struct {
	mu   sync.Mutex
	l    *Leading
	log  *log.Log
	gate *gate
}

func (p *publisher) Committed(_, end uint64, err error) {
	if err == nil && p.l.Safe(Data, end) {
		p.gate.move(p.l.High(Data))
	}
}

func (p *publisher) publish(a *log.Append) error {
	p.mu.Lock()
	first, err := p.log.Append(a)
	end := first + uint64(len(a.Records))
	if err == nil {
		p.l.Appended(Data, end, true)
	}
	p.mu.Unlock()
	if err == nil {
		p.gate.wait(end)
	}
	return err
}

// lead makes the first broker the leader of a shard, and the others its followers.
func lead(t testing.TB, w *world, brokers ...string) *publisher {
	p := &publisher{gate: newGate()}
	first := w.nodes[brokers[0]]
	w.moved = func(l *Leading) { p.gate.move(l.High(Data)) }
	words := ""
	for _, b := range brokers {
		words += b + " "
	}
	w.place(orders, 1, words)
	p.l, p.log = first.leads[orders], first.logs[orders][Data]
	w.within(5*time.Second, "all have joined", func() bool {
		n := 0
		for _, f := range p.l.Followers() {
			if f.Joined {
				n++
			}
		}
		return n == len(brokers)-1
	})
	return p
}

// BenchmarkSafeEverywhere measures waiters that each append one record of 256 bytes at a time and
// wait until it is synced on all replicas.
func BenchmarkSafeEverywhere(b *testing.B) {
	for _, brokers := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
		for _, waiters := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("replicas=%d/waiters=%d", len(brokers), waiters), func(b *testing.B) {
				w := overTCP(b, func(string) env.FS { return env.OS }, brokers...)
				p := lead(b, w, brokers...)
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for range waiters {
					wg.Go(func() {
						a := &log.Append{Epoch: 1, Records: []log.Record{{Subject: []byte("orders.eu"), Data: make([]byte, 256)}}, Done: p}
						for left.Add(-1) >= 0 {
							if err := p.publish(a); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
				b.ReportMetric(float64(b.N)/float64(w.nodes["a"].disk.Stats().Rounds), "acks/sync")
			})
		}
	}
}

// BenchmarkCopyLargeBatches measures copying batches of 16,384 records of 64 bytes between two
// brokers, in memory.
func BenchmarkCopyLargeBatches(b *testing.B) {
	w := overTCP(b, func(string) env.FS { return env.OS }, "a", "b")
	w.durability = log.Memory
	p := lead(b, w, "a", "b")
	records := make([]log.Record, 16384)
	data := make([]byte, 64)
	for i := range records {
		records[i] = log.Record{Subject: []byte("orders"), Data: data}
	}
	a := &log.Append{Epoch: 1, Records: records, Durability: log.Memory, Done: p}
	b.SetBytes(16384 * 64)
	end := uint64(1)
	b.ResetTimer()
	for i := range b.N {
		if err := p.log.WaitRoom(context.Background()); err != nil {
			b.Fatal(err)
		}
		if _, err := p.log.Append(a); err != nil {
			b.Fatal(err)
		}
		end += 16384
		p.l.Appended(Data, end, true)
		if i%256 == 255 {
			p.gate.wait(end)
			b.StopTimer()
			for _, n := range w.nodes {
				if _, err := n.logs[orders][Data].Trim(end); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
	}
	p.gate.wait(end)
	b.ReportMetric(float64(b.N)*16384/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkAskForThousands measures the asks of a returning broker on one connection, for as many
// shards as one of three brokers leads of 10,000.
func BenchmarkAskForThousands(b *testing.B) {
	const shards = 3333
	w := overTCP(b, func(string) env.FS { return crashfs.New() }, "a", "b")
	a, f := w.nodes["a"], w.nodes["b"]
	var before, after runtime.MemStats
	all := make([]ID, shards)
	for i := range all {
		all[i] = ID{"orders", i}
		shard := &coordination.Shard{Topic: "orders", Number: i, Epoch: 1, Leader: "a", Replicas: []string{"a", "b"},
			InSync: []coordination.Replica{{Broker: "a", Incarnation: w.store.lives()["a"]}, {Broker: "b", Incarnation: w.store.lives()["b"]}}}
		w.store.put(shard)
		a.open(all[i])
		f.open(all[i])
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	w.spread()
	joined := func() bool { return a.x.Stats().Streams == shards && f.x.Stats().Copying == shards }
	took := w.within(20*time.Second, "all have joined", joined)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Logf("led, followed and joined at first within %v; %d bytes of memory for both ends of a shard", took, (after.HeapAlloc-before.HeapAlloc)/shards)
	b.ResetTimer()
	for b.Loop() {
		for _, fd := range f.x.dialers {
			f.x.mu.Lock()
			in := fd.conn
			f.x.mu.Unlock()
			in.fail(errReplaced)
		}
		w.within(20*time.Second, "the connection has ended", func() bool { return f.x.Stats().Copying < shards })
		w.within(20*time.Second, "all have joined", joined)
	}
}
