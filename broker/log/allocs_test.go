//go:build !race

package log

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/env"
)

// signal is a completion that costs nothing.
type signal chan struct{}

func (s signal) Committed(uint64, uint64, error) { s <- struct{}{} }

func TestAppendingAllocatesNothing(t *testing.T) {
	d := openDisk(t, env.OS, t.TempDir(), Options{})
	l := openLog(t, d, orders)
	done := make(signal, 1)
	records := texts(1, 10)
	for _, durability := range []Durability{Synced, Replicated, Memory} {
		a := &Append{Epoch: 1, Records: records, Durability: durability, Done: done}
		got := testing.AllocsPerRun(2000, func() {
			if _, err := l.Append(a); err != nil {
				t.Fatal(err)
			}
			<-done
		})
		if got >= 1 {
			t.Errorf("durability %d: %.2f allocations per append", durability, got)
		}
	}
}

func TestFollowingAllocatesNothing(t *testing.T) {
	d := openDisk(t, env.OS, t.TempDir(), Options{})
	l := openLog(t, d, orders)
	done := make(signal, 1)
	a := &Append{Epoch: 1, Records: texts(1, 10), Durability: Replicated, Done: done}
	c := l.NewCursor(1)
	got := testing.AllocsPerRun(2000, func() {
		if _, err := l.Append(a); err != nil {
			t.Fatal(err)
		}
		v, err := c.Read(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (Record{}); it.Next(&r); {
			}
		}
		v.Release()
		<-done
	})
	if got >= 1 {
		t.Errorf("%.2f allocations per append that is read", got)
	}
	if c.Next() != 20011 {
		t.Errorf("read up to %d", c.Next())
	}
}

// TestForwardingBatchesAllocatesNothing: one goroutine forwards the batches of many logs, from
// memory and from files, with one buffer.
func TestForwardingBatchesAllocatesNothing(t *testing.T) {
	d := openDisk(t, env.OS, t.TempDir(), Options{TailBytes: 64 << 10})
	const logs, batches = 50, 40
	cursors := make([]*Cursor, logs)
	for i := range cursors {
		l := openLog(t, d, Identity{Topic: "orders", Shard: i})
		for range batches {
			if _, err := l.Append(&Append{Epoch: 1, Records: []Record{{Data: make([]byte, 4<<10)}}, Durability: Memory}); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		cursors[i] = l.NewCursor(1)
	}
	memory := make([]byte, 128<<10)
	pass := func() {
		for _, c := range cursors {
			c.Seek(1)
			for c.Next() <= batches {
				c.Lend(memory)
				v, err := c.Read(32 << 10)
				if err != nil {
					t.Fatal(err)
				}
				for _, ok := v.Next(); ok; _, ok = v.Next() {
				}
				v.Release()
				memory = c.Lend(nil)
			}
		}
	}
	pass() // opens files and reads what their footers say
	if got := testing.AllocsPerRun(10, pass); got >= logs {
		t.Errorf("%.0f allocations to read %d logs", got, logs)
	}
}
