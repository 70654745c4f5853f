package topic

import (
	"encoding/binary"
	"testing"

	"github.com/carillon-mq/carillon/broker/dedup"
)

// A shard with more subjects than it remembers asks the index for those that it has forgotten, and
// knows all that came since.
func TestSubjectsBeyondThoseThatAreRemembered(t *testing.T) {
	x := &subjects{last: map[dedup.Hash]uint64{}, below: map[dedup.Hash]uint64{}, from: 1}
	name := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	x.below[dedup.HashOf(name(1))] = 0 // the index knew no record then
	for n := 1; n <= maxSubjects; n++ {
		x.note(name(n), uint64(n))
	}
	if offset, ok := x.find(name(1)); !ok || offset != 1 || x.from != 1 {
		t.Fatalf("the first subject is at %d, %v, of those from %d on", offset, ok, x.from)
	}
	x.note(name(maxSubjects+1), maxSubjects+1)
	x.note(name(7), maxSubjects+2)
	if _, ok := x.find(name(1)); ok || x.from != maxSubjects+1 {
		t.Errorf("a subject is remembered without the others: those from %d on", x.from)
	}
	for n, want := range map[int]uint64{maxSubjects + 1: maxSubjects + 1, 7: maxSubjects + 2} {
		if offset, ok := x.find(name(n)); !ok || offset != want {
			t.Errorf("subject %d is at %d, %v; want %d", n, offset, ok, want)
		}
	}
}
