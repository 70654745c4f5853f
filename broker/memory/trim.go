package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often memory is looked at. If no collection ended in that time, the
	// process is quiet.
	lookEvery = 5 * time.Second
	// growthShare is by how much the process must have grown for a collection, as a part of what
	// it had, and growthLeast is the least growth in bytes. A collection of a large heap takes half
	// a second of one core, so it must be worth it. Together they keep a process within a fifth of
	// what it needs.
	growthShare = 8
	growthLeast = 4 << 20
)

// sample is what the runtime says of the process.
type sample struct {
	resident    uint64 // bytes that the runtime holds, without what it has given back
	collections uint64 // so far
}

// trimmer decides when memory is given back.
type trimmer struct {
	least uint64 // the fewest bytes since the last time
	last  sample
}

// due reports whether memory is to be given back, by a sample that is taken every lookEvery.
func (t *trimmer) due(now sample) bool {
	quiet := now.collections == t.last.collections && t.last.resident > 0
	t.last = now
	if t.least == 0 || now.resident < t.least {
		t.least = now.resident
	}
	return quiet && now.resident > t.least+max(t.least/growthShare, growthLeast)
}

// trimmed notes a sample after memory was given back.
func (t *trimmer) trimmed(now sample) { t.least, t.last = now.resident, now }

// GiveBack gives memory back to the system whenever it is due, until ctx ends.
func GiveBack(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var t trimmer
	for {
		if t.due(look()) {
			runtime.GC()
			debug.FreeOSMemory()
			t.trimmed(look())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the runtime.
func look() sample {
	all := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(all)
	return sample{resident: all[0].Value.Uint64() - all[1].Value.Uint64(), collections: all[2].Value.Uint64()}
}
