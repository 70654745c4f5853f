package publish

import (
	"fmt"
	stdfnv "hash/fnv"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestPartitionsNeverChange: the shard of a subject never changes, so these numbers are constant.
func TestPartitionsNeverChange(t *testing.T) {
	bySubject := &coordination.TopicSpec{Shards: 4}
	byTokens := &coordination.TopicSpec{Shards: 4, PartitionBy: coordination.ByTokens, PartitionTokens: []int{3, 1}}
	got := ""
	for _, subject := range []string{"orders", "orders.eu", "orders.eu.1", "orders.eu.2", "orders.us.1"} {
		got += fmt.Sprintf("%s %d %d\n", subject, Partition([]byte(subject), bySubject), Partition([]byte(subject), byTokens))
	}
	if want := "orders 0 2\norders.eu 0 2\norders.eu.1 1 3\norders.eu.2 0 2\norders.us.1 3 3\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	known := stdfnv.New64a()
	known.Write([]byte("orders.eu.1"))
	if got := Partition([]byte("orders.eu.1"), bySubject); uint64(got) != known.Sum64()%4 {
		t.Errorf("it is not FNV-1a: %d", got)
	}
	if n := testing.AllocsPerRun(100, func() { Partition([]byte("orders.eu.1"), byTokens) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPartitionsAreEven(t *testing.T) {
	spec := &coordination.TopicSpec{Shards: 8}
	var counts [8]int
	const subjects = 8000
	for i := range subjects {
		counts[Partition(fmt.Appendf(nil, "sensors.%d.temperature", i), spec)]++
	}
	for n, count := range counts {
		if count < subjects/8*8/10 || count > subjects/8*12/10 {
			t.Errorf("shard %d has %d of %d subjects: %v", n, count, subjects, counts)
		}
	}
}

func TestTokens(t *testing.T) {
	for at, want := range map[int]string{1: "a", 2: "b", 3: "", 4: "d", 5: "-"} {
		token, ok := tokenAt([]byte("a.b..d"), at)
		if got := string(token); ok && got != want || !ok && want != "-" {
			t.Errorf("token %d is %q, %v", at, got, ok)
		}
	}
	spec := &coordination.TopicSpec{Shards: 1 << 20, PartitionBy: coordination.ByTokens, PartitionTokens: []int{1, 2}}
	if Partition([]byte("ab.c"), spec) == Partition([]byte("a.bc"), spec) {
		t.Error("tokens run into each other")
	}
	if Partition([]byte("a.b.c"), spec) != Partition([]byte("a.b.d"), spec) {
		t.Error("tokens that were not chosen count")
	}
}
