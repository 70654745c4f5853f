package log

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// BenchmarkGroupCommit measures waiters that each append one record of 256 bytes at a time and wait
// until it is synced.
func BenchmarkGroupCommit(b *testing.B) {
	for _, waiters := range []int{1, 32, 256, 2048} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			d := openDisk(b, env.OS, b.TempDir(), Options{})
			l := openLog(b, d, orders)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for range waiters {
				wg.Go(func() {
					done := make(signal256, 1)
					a := &Append{Epoch: 1, Records: []Record{{Subject: []byte("orders.eu"), Data: make([]byte, 256)}}, Done: done}
					for left.Add(-1) >= 0 {
						if _, err := l.Append(a); err != nil {
							b.Error(err)
							return
						}
						<-done
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(float64(b.N)/float64(d.Stats().Rounds), "appends/sync")
		})
	}
}

type signal256 chan struct{}

func (s signal256) Committed(uint64, uint64, error) { s <- struct{}{} }

// BenchmarkAppendLargeBatches measures appends of 16,384 records of 64 bytes, at the highest rate.
func BenchmarkAppendLargeBatches(b *testing.B) {
	for _, durability := range []Durability{Memory, Replicated, Synced} {
		b.Run([]string{"synced", "replicated", "memory"}[durability], func(b *testing.B) {
			d := openDisk(b, env.OS, b.TempDir(), Options{})
			l := openLog(b, d, orders)
			records := make([]Record, 16384)
			data := make([]byte, 64)
			for i := range records {
				records[i] = Record{Subject: []byte("orders"), Data: data}
			}
			a := &Append{Epoch: 1, Records: records, Durability: durability}
			b.SetBytes(16384 * 64)
			b.ResetTimer()
			kept := 0
			for range b.N {
				if err := l.WaitRoom(context.Background()); err != nil {
					b.Fatal(err)
				}
				if _, err := l.Append(a); err != nil {
					b.Fatal(err)
				}
				if kept++; kept == 256 {
					b.StopTimer()
					_, end, _ := l.Offsets()
					if _, err := l.Trim(end); err != nil {
						b.Fatal(err)
					}
					kept = 0
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.N)*16384/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkDirtyLogs measures a commit round in which each of n logs has one record, synced file by
// file and at once.
func BenchmarkDirtyLogs(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 100, 1000} {
		for _, from := range []int{1, 1 << 30} {
			name := fmt.Sprintf("logs=%d/%s", n, map[bool]string{true: "syncfs", false: "fdatasync"}[from == 1])
			b.Run(name, func(b *testing.B) {
				d := openDisk(b, env.OS, b.TempDir(), Options{SyncAllFrom: from})
				done := make(signal256, n)
				logs := make([]*Log, n)
				for i := range logs {
					logs[i] = openLog(b, d, Identity{Topic: "orders", Shard: i})
				}
				round := func() {
					for _, l := range logs {
						if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 1), Done: done}); err != nil {
							b.Fatal(err)
						}
					}
					for range logs {
						<-done
					}
				}
				round()
				for b.Loop() {
					round()
				}
			})
		}
	}
}

func BenchmarkReadSequentially(b *testing.B) {
	d := openDisk(b, env.OS, b.TempDir(), Options{TailBytes: 1})
	l := openLog(b, d, orders)
	records := make([]Record, 1000)
	for i := range records {
		records[i] = Record{Subject: []byte("orders"), Data: make([]byte, 64)}
	}
	for range 2000 {
		if err := l.WaitRoom(context.Background()); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append(&Append{Epoch: 1, Records: records, Durability: Replicated}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	n := 0
	for range b.N {
		for c := l.NewCursor(1); c.Next() < 2_000_001; {
			v, err := c.Read(256 << 10)
			if err != nil {
				b.Fatal(err)
			}
			for batch, ok := v.Next(); ok; batch, ok = v.Next() {
				it := batch.Records()
				for r := (Record{}); it.Next(&r); n++ {
				}
			}
			v.Release()
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkFollowTail measures a reader at the tail: one batch of 16 KiB is appended and read.
func BenchmarkFollowTail(b *testing.B) {
	d := openDisk(b, env.OS, b.TempDir(), Options{})
	l := openLog(b, d, orders)
	a := &Append{Epoch: 1, Records: []Record{{Subject: []byte("orders"), Data: make([]byte, 16<<10-64)}}, Durability: Memory}
	c := l.NewCursor(1)
	b.SetBytes(16 << 10)
	b.ReportAllocs()
	var reading time.Duration
	n := 0
	for b.Loop() {
		if err := l.WaitRoom(context.Background()); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append(a); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		v, err := c.Read(256 << 10)
		if err != nil {
			b.Fatal(err)
		}
		for batch, ok := v.Next(); ok; batch, ok = v.Next() {
			n += len(batch)
		}
		v.Release()
		reading += time.Since(began)
		if c.Next()%4096 == 0 {
			b.StopTimer()
			if _, err := l.Trim(c.Next()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(reading.Nanoseconds())/float64(b.N), "ns/read")
}

// BenchmarkReadTail measures a lagging reader, with batches of 16 KiB from memory.
func BenchmarkReadTail(b *testing.B) {
	d := openDisk(b, env.OS, b.TempDir(), Options{})
	l := openLog(b, d, orders)
	const batches = 2000
	for range batches {
		if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Data: make([]byte, 16<<10-64)}}, Durability: Memory}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		b.Fatal(err)
	}
	c := l.NewCursor(1)
	for _, size := range []int{16 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("max=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if c.Next() > batches {
					c.Seek(1)
				}
				v, err := c.Read(size)
				if err != nil {
					b.Fatal(err)
				}
				for batch, ok := v.Next(); ok; batch, ok = v.Next() {
					n += len(batch)
				}
				v.Release()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())*(16<<10)/float64(n), "ns/batch")
		})
	}
}

// BenchmarkPacked measures writing and reading messages of 16,384 records of 64 bytes.
func BenchmarkPacked(b *testing.B) {
	const count = 16384
	p := Packed{Subject: []byte("orders"), Count: count}
	for range count {
		p.Records = append(append(p.Records, 64), make([]byte, 64)...)
	}
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if err := checkPacked(p.Records, count); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("encode", func(b *testing.B) {
		size, err := packedSize(&p, nil)
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 0, size)
		for b.Loop() {
			appendPacked(buf, 1, 1, &p, nil)
		}
		b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("append", func(b *testing.B) {
		l := openLog(b, openDisk(b, env.OS, b.TempDir(), Options{}), orders)
		a := &Append{Epoch: 1, Packed: p, Durability: Memory}
		b.ReportAllocs()
		for b.Loop() {
			if err := l.WaitRoom(context.Background()); err != nil {
				b.Fatal(err)
			}
			if _, err := l.Append(a); err != nil {
				b.Fatal(err)
			}
			if _, end, _ := l.Offsets(); end%(count*256) == 1 {
				b.StopTimer()
				if _, err := l.Trim(end); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		}
		b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("read", func(b *testing.B) {
		size, err := packedSize(&p, nil)
		if err != nil {
			b.Fatal(err)
		}
		batch := Batch(appendPacked(make([]byte, 0, size), 1, 1, &p, nil))
		sum := byte(0)
		b.ReportAllocs()
		for b.Loop() {
			it := batch.Records()
			for r := (Record{}); it.Next(&r); {
				sum += r.Data[0]
			}
		}
		b.ReportMetric(float64(b.N)*count/b.Elapsed().Seconds(), "records/s")
	})
}

// BenchmarkCompressed measures compressing a segment of JSON messages, and reading it in either
// form.
func BenchmarkCompressed(b *testing.B) {
	for _, form := range []string{"plain", "zstd"} {
		b.Run(form, func(b *testing.B) {
			d := openDisk(b, env.OS, b.TempDir(), Options{TailBytes: 1, SegmentSmallest: 32 << 20})
			l := openLog(b, d, orders)
			const batches, each = 200, 1000
			for i := range batches {
				records := make([]Record, each)
				for j := range records {
					n := uint64(i*each + j)
					records[j] = Record{Subject: []byte("orders"), Data: fmt.Appendf(nil, `{"id":%d,"customer":"c-%x","amount":%d,"currency":"EUR","state":"paid"}`, n, n*2654435761%100_000, n*40503%10_000)}
				}
				if _, err := l.Append(&Append{Epoch: 1, Records: records, Durability: Replicated}); err != nil {
					b.Fatal(err)
				}
			}
			l.Roll()
			if err := l.Flush(); err != nil {
				b.Fatal(err)
			}
			plain, began := l.Stats().Bytes, time.Now()
			if form == "zstd" {
				if _, err := l.Compress(context.Background(), 0); err != nil {
					b.Fatal(err)
				}
			}
			took := time.Since(began)
			b.SetBytes(plain)
			b.ReportAllocs()
			c := l.NewCursor(1)
			for b.Loop() {
				for c.Seek(1); c.Next() <= batches*each; {
					v, err := c.Read(256 << 10)
					if err != nil {
						b.Fatal(err)
					}
					v.Release()
				}
			}
			if form == "zstd" {
				b.ReportMetric(float64(plain)/1e6/took.Seconds(), "compressed-MB/s")
				b.ReportMetric(float64(plain)/float64(l.Stats().Bytes), "ratio")
			}
		})
	}
}

// BenchmarkOpenAfterKill measures opening 1,000 logs after a kill that interrupted writes to each.
func BenchmarkOpenAfterKill(b *testing.B) {
	const logs = 1000
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		// It is not closed before it is opened again, as after a kill.
		d := openDisk(b, env.OS, dir, Options{})
		done := make(signal256, 10*logs)
		for i := range logs {
			l := openLog(b, d, Identity{Topic: "orders", Shard: i})
			for range 10 {
				if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Subject: []byte("orders"), Data: make([]byte, 1000)}}, Done: done}); err != nil {
					b.Fatal(err)
				}
			}
		}
		for range 10 * logs {
			<-done
		}
		b.StartTimer()
		again := openDisk(b, env.OS, dir, Options{})
		for i := range logs {
			openLog(b, again, Identity{Topic: "orders", Shard: i})
		}
	}
}
