package indexing

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// A client that publishes 1,200 long subjects (5 MB) must not put the index of a shard out of order
// for good: then conditions on all subjects that the shard lacks are refused (LastBelow, beyond 16
// MiB).
func TestLongSubjectsAreIndexed(t *testing.T) {
	s := &shard{t: t, fs: crashfs.New(), epoch: 1, high: 1}
	var err error
	if s.disk, err = log.OpenDisk(s.fs, "data", log.Options{}); err != nil {
		t.Fatal(err)
	}
	s.set = New(s.disk, nil)
	if s.log, err = s.disk.Open(log.Identity{Topic: "orders"}, 1, s.epoch, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	s.index = s.set.Of(s.log, &s.removed, s.judge)
	t.Cleanup(func() { s.close() })
	long := strings.Repeat("a", limits.ControlLine-len(".00000000")-len(" 1"))
	for range 3 { // the log may split it into segments
		s.append(1200, func(i int) string { return fmt.Sprintf("%s.%08d", long, i) })
	}
	s.log.Roll()
	s.append(1, func(int) string { return "orders.eu" })
	s.commit()
	tried := 0
	s.fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "rename" && strings.HasSuffix(op.Path, ".new") {
			tried++
		}
		return nil
	})
	asked := time.Now()
	if err = testutil.Within(patience, time.Second, "the index is made", func() error {
		_, err := s.index.LastOf(context.Background(), time.Second, "orders.new", 1, s.high)
		return err
	}); err == nil {
		return
	}
	s.fs.SetHook(nil)
	t.Errorf("after %v the index is still not made (%d files were written in vain): %.200s", time.Since(asked), tried, bytes.ReplaceAll([]byte(err.Error()), []byte(long), []byte("aaa…")))
}
