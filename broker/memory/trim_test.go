package memory

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

// TestABurstIsGivenBackOnceItIsOver, and what is in use is collected once, and not again and again.
func TestABurstIsGivenBackOnceItIsOver(t *testing.T) {
	var of trimmer
	for i, look := range []struct {
		megabytes, collections uint64
		due                    bool
		after                  uint64 // megabytes that are left when memory was given back
		why                    string
	}{
		{100, 7, false, 0, "nothing is known at the start"},
		{100, 7, false, 0, "quiet, and no larger"},
		{109, 7, false, 0, "quiet, and hardly larger"},
		{800, 9, false, 0, "the burst: the runtime collects by itself"},
		{900, 9, true, 700, "the burst stopped growing, and most of it is in use"},
		{700, 11, false, 0, "it is in use still"},
		{780, 11, false, 0, "hardly larger than after the last time"},
		{400, 12, false, 0, "the runtime has collected: what is left is the new measure"},
		{480, 12, true, 110, "larger than that, and quiet"},
		{110, 14, false, 0, "over"},
		{111, 14, false, 0, "and no collection again"},
	} {
		if due := of.due(sample{look.megabytes * mib, look.collections}); due != look.due {
			t.Errorf("look %d, %s: due is %v", i, look.why, due)
		}
		if look.due {
			of.trimmed(sample{look.after * mib, look.collections + 2})
		}
	}
}

// TestASmallProcessIsNotCollectedForAFewBytes: an eighth of little is less than one large message.
func TestASmallProcessIsNotCollectedForAFewBytes(t *testing.T) {
	var of trimmer
	of.due(sample{10 * mib, 1})
	if of.due(sample{13 * mib, 1}) {
		t.Error("3 MiB are not worth it")
	}
	if !of.due(sample{15 * mib, 1}) {
		t.Error("half as much again is worth it")
	}
}

// TestTheProcessShrinks: garbage goes back to the system, also what pools held.
func TestTheProcessShrinks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the runtime collects nothing by itself
	const burst = 256 * mib
	var pool sync.Pool
	runtime.GC()
	debug.FreeOSMemory()
	before := look().resident
	synctest.Test(t, func(t *testing.T) {
		go GiveBack(t.Context())
		time.Sleep(lookEvery / 2)
		for range burst / mib / 2 {
			pooled := make([]byte, mib)
			pool.Put(&pooled)
			garbage = make([]byte, mib)
		}
		garbage = nil
		if grown := look().resident; grown < before+burst/2 {
			t.Errorf("the process had %d bytes, and has %d at the end of the burst", before, grown)
		}
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if left := look().resident; left > before+burst/10 {
			t.Errorf("the process had %d bytes, and has %d", before, left)
		}
	})
}

var garbage []byte
