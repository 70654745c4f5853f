package work

import (
	"slices"
	"testing"
	"time"
)

// named is a queue that appends its name to a log when Wait is called.
type named struct {
	name string
	log  *[]string
}

func (n *named) Wait() { *n.log = append(*n.log, n.name) }

// TestWhoIsBehindIsAwaitedOnce: each queue is awaited once, however often it was added, and none
// twice.
func TestWhoIsBehindIsAwaitedOnce(t *testing.T) {
	var log []string
	one, two, three := &named{"one", &log}, &named{"two", &log}, &named{"three", &log}
	var b, other Behind
	b.Wait()
	b.Add(one)
	b.Add(two)
	b.Add(one)
	other.Add(two)
	other.Add(three)
	b.Join(other)
	taken := b.Take()
	if b.Any() || !taken.Any() || !other.Any() {
		t.Errorf("any: %v after Take, %v of what was taken, %v of the other", b.Any(), taken.Any(), other.Any())
	}
	b.Wait()
	taken.Wait()
	taken.Wait()
	if want := []string{"one", "two", "three"}; !slices.Equal(log, want) {
		t.Errorf("waited for %v, want %v", log, want)
	}
}

// TestRefusedRequestsTakeTime: a connection pauses a millisecond for each of its requests that was
// refused, wherever that was, and half a second at most.
func TestRefusedRequestsTakeTime(t *testing.T) {
	var b, other Behind
	b.Refused(4)
	other.Refused(5)
	b.Join(other)
	if b.Pauses() || !b.Any() {
		t.Errorf("after 9 refusals a pause is made at once: %v, or at all: %v", b.Pauses(), b.Any())
	}
	if b.Refused(1); !b.Pauses() {
		t.Error("10 refusals are no reason to pause")
	}
	taken := b.Take()
	if got := b.Pause(); got != 0 {
		t.Errorf("what was taken is a pause of %s", got)
	}
	if got := taken.Pause(); got != 10*time.Millisecond {
		t.Errorf("10 refusals are a pause of %s", got)
	}
	if got := taken.Pause(); got != 0 || taken.Any() {
		t.Errorf("a pause is made twice, %s", got)
	}
	b.Refused(1000)
	b.Join(other)
	if got := b.Pause(); got != 500*time.Millisecond {
		t.Errorf("1,000 refusals are a pause of %s", got)
	}
	b.Join(other)
	if b.Clear(); b.Any() {
		t.Error("the pause is not forgotten")
	}
}
