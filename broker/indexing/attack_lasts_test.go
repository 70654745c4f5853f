package indexing

import (
	"testing"
	"time"
)

// Who waits for a subject is told when it was found, and not only when up to 63 others were looked for
// as well, each for up to findTime.
func TestAttackWhoWaitsIsToldWhenItsSubjectIsFound(t *testing.T) {
	x, f := newLasts(t, 100)
	if _, pending, _ := x.Last([]byte("a")); !pending { // the first message waits for it
		t.Fatal("it is known")
	}
	<-f.asked
	for _, of := range []string{"b", "c", "d"} { // what ShardLeader.lookUp does for the messages behind it
		x.Want([]byte(of))
	}
	f.answers <- nil // a is found
	<-f.asked        // b is being looked for, on a slow disk
	if offset, pending, err := x.Last([]byte("a")); offset != 50 || pending || err != nil {
		t.Fatal(offset, pending, err)
	}
	select {
	case <-f.found:
	case <-time.After(3 * time.Second):
		t.Error("a is known, and nobody is told")
	}
	for range 3 {
		f.answers <- nil
	}
}
