package log

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
)

// manyLogs are as many logs as a broker with a hundred shards has.
const manyLogs = 200

// BenchmarkManyLogs makes logs, changes what is kept beside them, and opens them again: what a
// broker does with each shard when it is placed here, when a leader is elected, and when the broker
// starts.
func BenchmarkManyLogs(b *testing.B) {
	spec := []byte(`{"id":"0123456789abcdef","name":"orders","subjects":["orders.>"],"stream":{"durability":"Synced","replicas":3}}`)
	id := func(n int) Identity { return Identity{Topic: fmt.Sprintf("topic-%d", n)} }
	open := func(b *testing.B, dir string) (*Disk, []*Log) {
		d, err := OpenDisk(env.OS, dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		logs := make([]*Log, manyLogs)
		for n := range logs {
			if logs[n], err = d.Open(id(n), 1, 1, spec); err != nil {
				b.Fatal(err)
			}
		}
		return d, logs
	}
	per := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*manyLogs), "µs/log")
	}
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			d, _ := open(b, b.TempDir())
			b.StopTimer()
			_ = d.Close()
			b.StartTimer()
		}
		per(b)
	})
	b.Run("first append", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			d, logs := open(b, b.TempDir())
			a := newAck()
			b.StartTimer()
			for _, l := range logs {
				if _, err := l.Append(&Append{Epoch: 1, Records: texts(1, 1), Done: a}); err != nil {
					b.Fatal(err)
				}
			}
			if err := a.wait(b, manyLogs); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			_ = d.Close()
			b.StartTimer()
		}
		per(b)
	})
	dir := b.TempDir()
	d, logs := open(b, dir)
	for _, l := range logs {
		put(b, l, 1)
	}
	b.Run("change", func(b *testing.B) {
		epoch := uint64(1)
		for b.Loop() {
			epoch++
			for _, l := range logs {
				if err := l.SetSpec(spec, epoch); err != nil {
					b.Fatal(err)
				}
			}
		}
		per(b)
	})
	_ = d.Close()
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			d, _ := open(b, dir)
			b.StopTimer()
			_ = d.Close()
			b.StartTimer()
		}
		per(b)
	})
}
