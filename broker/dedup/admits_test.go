package dedup

import (
	"sync/atomic"
	"testing"
)

// fill has a window take ids until it admits none, and returns how many it has.
func fill(w *Window, from uint64) int {
	w.Lock()
	defer w.Unlock()
	for i := from; w.Admits(); i++ {
		w.Add(Hash{from, i}, i, 0)
	}
	return w.Len()
}

// TestNoWindowTakesTheRoomOfOthers: windows that take all ids they get leave a part to the next
// one, and all of them stay within the bound of all together. Ids that are free again go to any.
func TestNoWindowTakesTheRoomOfOthers(t *testing.T) {
	var together atomic.Int64
	var windows [20]Window
	left := MaxTogether
	for i := range windows {
		windows[i].Init(&together)
		n := fill(&windows[i], uint64(i)<<32)
		if half := left / 2; n < half || n > half+1 {
			t.Fatalf("window %d has %d ids of %d that were left", i, n, left)
		}
		if left -= n; left < 2*LeastIDs {
			break
		}
	}
	if together.Load() > MaxTogether {
		t.Errorf("there are %d ids", together.Load())
	}
	last := &windows[len(windows)-1]
	last.Init(&together)
	if n := fill(last, 1<<60); n < LeastIDs {
		t.Errorf("a late one has %d ids", n)
	}
	windows[0].Forget(Never)
	if n := fill(last, 1<<61); n < MaxTogether/4 {
		t.Errorf("it has %d ids after others were forgotten", n)
	}
	for i := range windows {
		if windows[i].counted != nil {
			windows[i].Forget(Never)
		}
	}
	if together.Load() != 0 {
		t.Errorf("%d ids are left", together.Load())
	}
}

// TestATopicOfManyShardsHasOneShare: the windows of a Topic have together what one window has, and
// each has a few in any case. Shards that are no longer led here don't count.
func TestATopicOfManyShardsHasOneShare(t *testing.T) {
	var together, ofTopic, followed atomic.Int64
	windows := make([]Window, 8)
	for i := range windows {
		windows[i].Init(&followed)
		windows[i].Count(&together, &ofTopic)
		fill(&windows[i], uint64(i)<<32)
	}
	if n := ofTopic.Load(); n < MaxTogether/2 || n > MaxTogether/2+8*LeastIDs || together.Load() != n {
		t.Errorf("a Topic of %d shards has %d ids of %d", len(windows), n, together.Load())
	}
	if n := fill(&windows[7], 1<<59); n != LeastIDs {
		t.Errorf("its last shard has %d ids", n)
	}
	var other Window
	other.Init(&together)
	if n := fill(&other, 1<<60); n < MaxTogether/4-8*LeastIDs {
		t.Errorf("another Topic has %d ids", n)
	}
	windows[0].Count(&followed, nil)
	if n := fill(&windows[7], 1<<61); n <= LeastIDs || followed.Load() != int64(windows[0].n) {
		t.Errorf("the last shard has %d ids after the first one is led elsewhere", n)
	}
	for i := range windows {
		windows[i].Forget(Never)
	}
	if ofTopic.Load() != 0 || followed.Load() != 0 {
		t.Errorf("%d and %d ids are left", ofTopic.Load(), followed.Load())
	}
}
