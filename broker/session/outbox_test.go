package session

import "testing"

// TestAnEmptyWriteLeavesNoSegment: a writer would try forever to write it.
func TestAnEmptyWriteLeavesNoSegment(t *testing.T) {
	var o outbox
	o.write(nil)
	if !o.empty() || len(o.segments) > 0 {
		t.Errorf("%d segments of %d bytes", len(o.segments), o.size)
	}
}
