package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// shard is a Source whose watermark the test sets.
type shard struct {
	Reader
	start, high uint64
	judge       func(err error) error // of errors of reading the log; nil: it returns them
	gone        removal.Set
}

func (s *shard) Removed() *removal.Set { return &s.gone }

func (s *shard) Offsets() (start, high uint64) { return s.start, s.high }

func (s *shard) Unreadable(err error) error {
	if s.judge == nil {
		return err
	}
	return s.judge(err)
}

type done chan error

func (d done) Committed(_, _ uint64, err error) { d <- err }

func lines(subject string, from, n int) (out []log.Record) {
	for i := range n {
		out = append(out, log.Record{Time: int64(1_000_000_000 + from + i), Subject: []byte(subject), Data: fmt.Appendf(nil, "record %d", from+i)})
	}
	return out
}

// newShard is a shard with the given batches, all of them below its watermark.
func newShard(t *testing.T, batches ...log.Append) *shard {
	t.Helper()
	return newShardOn(t, log.Options{}, batches...)
}

func newShardOn(t testing.TB, options log.Options, batches ...log.Append) *shard {
	t.Helper()
	disk, err := log.OpenDisk(crashfs.New(), "data", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	data, err := disk.Open(log.Identity{Topic: "orders"}, 1, 1, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, data, batches)
	_, end, _ := data.Offsets()
	s := &shard{start: 1, high: end}
	s.Init(s, "orders", data, nil)
	return s
}

// fill appends batches to a log, with the stamps of their records.
func fill(t testing.TB, data *log.Log, batches []log.Append) {
	t.Helper()
	var stamps stamping.Writer
	for i := range batches {
		d := make(done, 1)
		batches[i].Epoch, batches[i].Done = 1, d
		_, end, _ := data.Offsets()
		stamps.Begin(end)
		for n := range batches[i].Records {
			stamps.AddBytes(end+uint64(n), batches[i].Records[n].Stamp)
		}
		if of := stamps.Data(); len(of) > 0 {
			batches[i].Extensions = []log.Extension{{Type: stamping.ExtensionType, Data: of}}
		}
		if _, err := data.Append(&batches[i]); err != nil {
			t.Fatal(err)
		}
		if err := <-d; err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheWatermarkCutsABatch: a watermark within a batch, as a follower's may be: what is behind it
// is not returned, in any form.
func TestTheWatermarkCutsABatch(t *testing.T) {
	var packed []byte
	for _, r := range lines("", 0, 9) {
		packed = append(binary.AppendUvarint(packed, uint64(len(r.Data))), r.Data...)
	}
	many := log.Append{Packed: log.Packed{Subject: []byte("orders.eu"), Time: 1, Count: 9, Records: packed}}
	for name, s := range map[string]*shard{
		"packed": newShard(t, many, many, many),
		"single": newShard(t, log.Append{Records: lines("orders.eu", 0, 9)}, log.Append{Records: lines("orders.eu", 9, 9)}),
	} {
		s.high = 6
		for _, full := range []bool{false, true} {
			var r BulkReader
			_, got, err := r.Read(&s.Reader, Query{Offset: 3, Records: 100, Bytes: 1 << 20, Most: 1 << 20, Full: full}, nil)
			if err != nil || got.First != 3 || got.Count != 3 || got.Next != 6 || got.High != 6 {
				t.Errorf("%s, full %t: %+v, %v", name, full, got, err)
			}
		}
		if _, err := s.Get(6); err == nil {
			t.Errorf("%s: the record at the watermark was returned", name)
		}
		if info := s.Info(); info.Last != 5 || info.Messages != 5 {
			t.Errorf("%s: readers see %+v", name, info)
		}
	}
}

// TestSearchesBySubject: searches find the next and the last record of a subject below the
// watermark, and say when there is none.
func TestSearchesBySubject(t *testing.T) {
	s := newShard(t, log.Append{Records: lines("orders.eu", 0, 3)}, log.Append{Records: lines("orders.us", 3, 3)}, log.Append{Records: lines("orders.eu", 6, 3)})
	at := func(r log.Record, err error) string {
		if _, none := errors.AsType[*NoRecordError](err); none {
			return "none"
		}
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(r.Offset, " ", string(r.Data))
	}
	s.start, s.high = 2, 9
	got := []string{
		at(s.NextFor("orders.eu", 1)), at(s.NextFor("orders.*", 4)), at(s.NextFor("orders.us", 7)),
		at(s.LastFor("orders.eu")), at(s.LastFor("orders.us")), at(s.LastFor("orders.fr")), at(s.Get(1)), at(s.Get(2)),
	}
	want := []string{"2 record 1", "4 record 3", "none", "8 record 7", "6 record 5", "none", "none", "2 record 1"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestInfoDuringCompaction: while a log is compacted, what readers are told of it fits together:
// there are no more messages than offsets, and the first one is there.
func TestInfoDuringCompaction(t *testing.T) {
	const subjects, rounds = 5, 200
	var batches []log.Append
	for i := range rounds {
		for n := range subjects {
			batches = append(batches, log.Append{Records: lines(fmt.Sprint("orders.", n), i*subjects+n, 1)})
		}
	}
	s := newShardOn(t, log.Options{SegmentSmallest: 1 << 10, SegmentLargest: 1 << 10, TailBytes: 1}, batches...)
	s.data.Roll()
	compacted := make(chan error, 1)
	go func() {
		_, err := s.data.Compact(t.Context(), log.CompactOptions{Below: s.high, Before: time.Now()})
		compacted <- err
	}()
	for infos := 0; ; infos++ {
		info := s.Info()
		if info.First < 1 || info.Last != subjects*rounds || info.Messages > info.Last-info.First+1 || info.FirstTime.IsZero() {
			t.Fatalf("the %dth time readers see %+v", infos, info)
		}
		select {
		case err := <-compacted:
			if info := s.Info(); err != nil || info.Messages >= subjects*rounds/2 || info.First == 1 {
				t.Errorf("compacted, readers see %+v: %v", info, err)
			}
			return
		default:
		}
	}
}
