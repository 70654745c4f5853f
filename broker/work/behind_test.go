package work

import (
	"slices"
	"testing"
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
