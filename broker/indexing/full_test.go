package indexing

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// An index leaves an almost full disk to the log: it writes no file, but deletes those of segments
// that are gone. When there is room again, it goes on.
func TestAnAlmostFullDiskIsLeftToTheLog(t *testing.T) {
	s := newShard(t, 1)
	s.append(300, orders)
	s.log.Roll()
	s.append(300, orders)
	s.commit()
	s.check(1, ">")
	s.settle(func() bool { return len(s.files()) == 1 })
	s.fs.SetCapacity(leastFree - 1)
	s.log.Roll()
	s.append(1, orders)
	s.commit()
	testutil.EventuallyTrue(t, "writing a file is refused", func() bool {
		_, _ = s.now("orders.3")
		return s.index.makeFailed.Load()
	})
	if got := len(s.files()); got != 1 {
		t.Errorf("there are %d files", got)
	}
	if last, err := s.now("orders.3"); err != nil || last == 0 {
		t.Errorf("what is in memory is not answered: %d, %v", last, err)
	}
	if _, err := s.log.Trim(301); err != nil {
		t.Fatal(err)
	}
	if got := len(s.files()); got != 0 {
		t.Errorf("%d files are left of segments that are gone", got)
	}
	s.fs.SetCapacity(0)
	testutil.EventuallyTrue(t, "the file is written", func() bool {
		s.set.retry()
		return len(s.files()) == 1
	})
}
