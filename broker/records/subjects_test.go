package records

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/indexing"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// newIndexed is a shard with an index, on a file system.
func newIndexed(t *testing.T, fs *crashfs.FS, options log.Options, batches ...log.Append) *shard {
	t.Helper()
	disk, err := log.OpenDisk(fs, "data", options)
	testutil.Must(t, err)
	data, err := disk.Open(log.Identity{Topic: "orders"}, 1, 1, []byte("{}"))
	testutil.Must(t, err)
	fill(t, data, batches)
	_, end, _ := data.Offsets()
	s := &shard{start: 1, high: end}
	set := indexing.New(disk, nil)
	index := set.Of(data, &s.gone, func(err error) error { return err })
	s.Init(s, "orders", data, index)
	t.Cleanup(func() {
		index.Close()
		_ = data.Close()
		set.Close()
		_ = disk.Close()
	})
	return s
}

// TestLoadingLastRecordsWaitsForNoIndex: a few goroutines load the last records of all shards, so
// none of them waits while the index of one shard is made.
func TestLoadingLastRecordsWaitsForNoIndex(t *testing.T) {
	fs, over := crashfs.New(), make(chan struct{})
	s := newIndexed(t, fs, log.Options{}, log.Append{Records: lines("orders.eu", 0, 3)})
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == "list" && strings.Contains(op.Path, "orders") {
			<-over
		}
		return nil
	})
	defer close(over)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	err := s.EachLast(ctx, s.high, func() {}, func([]byte, uint64) bool { return true })
	if err == nil || ctx.Err() != nil {
		t.Errorf("it waited: %v", err)
	}
}

// TestADamagedRecordThatTheIndexLacksIsJudgedAsForReaders: of a long log the index alone says what
// the last record of a subject is. If that may be a damaged one, the shard decides what is said,
// and that the index is not ready is not.
func TestADamagedRecordThatTheIndexLacksIsJudgedAsForReaders(t *testing.T) {
	fs := crashfs.New()
	s := newIndexed(t, fs, log.Options{}, log.Append{Records: []log.Record{{Time: 1, Subject: []byte("orders.eu"), Data: bytes.Repeat([]byte("x"), 100)}}})
	s.data.Roll()
	long := make([]log.Append, 20)
	for i := range long {
		long[i].Records = []log.Record{{Time: 1, Subject: []byte("orders.us"), Data: make([]byte, 1<<20)}}
	}
	fill(t, s.data, long)
	_, s.high, _ = s.data.Offsets()
	testutil.Must(t, fs.FlipPayload(s.data.Dir()+"/00000000000000000001.log", 0))
	replica := errors.New("another replica may have it")
	s.judge = func(err error) error {
		if _, ok := errors.AsType[*log.CorruptError](err); ok {
			return replica
		}
		return err
	}
	testutil.EventuallyTrue(t, "the damage is found", func() bool {
		_, err := s.LastBelow(t.Context(), "orders.none", s.high, true)
		if err == nil {
			t.Fatal("damaged records are taken for none")
		}
		return err == replica
	})
	if offset, err := s.LastBelow(t.Context(), "orders.us", s.high, true); err != nil || offset != 21 {
		t.Errorf("what is behind the damage is not known: %d, %v", offset, err)
	}
}
