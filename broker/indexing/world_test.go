package indexing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/subjectindex"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// patience is how long a test waits for an index before it has failed.
const patience = 30 * time.Second

// shard is a log with a watermark, and its index, as a leader has them.
type shard struct {
	t     testing.TB
	rng   *rand.Rand
	fs    *crashfs.FS
	disk  *log.Disk
	set   *Indexes
	log   *log.Log
	index *Index

	removed removal.Set

	epoch uint64
	high  uint64
	said  []string
	read  chan error // errors of reading the log, if a test takes them
}

// judge is what a leader says of errors of reading its log.
func (s *shard) judge(err error) error {
	if s.read != nil && err != nil {
		select {
		case s.read <- err:
		default:
		}
	}
	return err
}

func newShard(t testing.TB, seed uint64) *shard {
	s := &shard{t: t, rng: rand.New(rand.NewPCG(seed, 7)), fs: crashfs.New(), epoch: 1, high: 1}
	s.open()
	t.Cleanup(func() { s.close() })
	return s
}

func (s *shard) open() {
	var err error
	if s.disk, err = log.OpenDisk(s.fs, "data", log.Options{SegmentSmallest: 4 << 10, SegmentLargest: 16 << 10}); err != nil {
		s.t.Fatal(err)
	}
	s.set = New(s.disk, nil)
	if s.log, err = s.disk.Open(log.Identity{Topic: "orders"}, 1, s.epoch, []byte("{}")); err != nil {
		s.t.Fatal(err)
	}
	s.index = s.set.Of(s.log, &s.removed, s.judge)
}

func (s *shard) close() {
	s.index.Close()
	if err := errors.Join(s.log.Close()); err != nil {
		s.t.Error(err)
	}
	s.set.Close()
	if err := s.disk.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *shard) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *shard) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(s.said[max(0, len(s.said)-30):], "\n"))
}

type done chan error

func (d done) Committed(_, _ uint64, err error) { d <- err }

// append appends n records, each of a subject that of returns.
func (s *shard) append(n int, of func(i int) string) {
	s.t.Helper()
	var records []log.Record
	for i := range n {
		records = append(records, log.Record{Time: 1_000_000_000, Subject: []byte(of(i)), Data: bytes.Repeat([]byte("x"), 50)})
	}
	d := make(done, 1)
	if _, err := s.log.Append(&log.Append{Epoch: s.epoch, Records: records, Done: d}); err != nil {
		s.t.Fatal(err)
	}
	if err := <-d; err != nil {
		s.t.Fatal(err)
	}
	_, end, _ := s.log.Offsets()
	s.say("append %d, to %d", n, end)
}

// commit moves the watermark to the end.
func (s *shard) commit() {
	_, s.high, _ = s.log.Offsets()
	s.say("watermark %d", s.high)
}

// records returns what the files of the log have within a range.
func (s *shard) records(from, to uint64) (out []log.Record) {
	s.t.Helper()
	c := s.log.NewFileCursor(from)
	for next := from; next < to; {
		c.Seek(next)
		v, err := c.Read(1 << 20)
		if err != nil {
			s.t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				if r.Offset >= next && r.Offset < to {
					out = append(out, log.Record{Offset: r.Offset, Subject: slices.Clone(r.Subject)})
				}
			}
			if it.Err() != nil {
				s.t.Fatal(it.Err())
			}
		}
		next = v.End
		v.Release()
	}
	return out
}

// check compares answers with the log.
func (s *shard) check(from uint64, pattern string) {
	s.t.Helper()
	start, _, _ := s.log.Offsets()
	from = max(from, start)
	ctx := context.Background()
	counts := map[string]uint64{}
	last, matching := uint64(0), uint64(0)
	subjects := map[string]bool{}
	for _, r := range s.records(from, s.high) {
		subjects[string(r.Subject)] = true
		if subject.Matches([]byte(pattern), r.Subject) {
			counts[string(r.Subject)]++
			last = r.Offset
			matching++
		}
	}
	if got, err := s.index.Last(ctx, patience, pattern, from, s.high); err != nil || got != last {
		s.fail("last of %s from %d to %d: %d, %v; want %d", pattern, from, s.high, got, err, last)
	}
	if got, err := s.index.Count(ctx, patience, []string{pattern}, from, s.high); err != nil || got != matching {
		s.fail("count of %s from %d to %d: %d, %v; want %d", pattern, from, s.high, got, err, matching)
	}
	if got, err := s.index.NumSubjects(ctx, patience, from, s.high); err != nil || got != uint64(len(subjects)) {
		s.fail("subjects from %d to %d: %d, %v; want %d", from, s.high, got, err, len(subjects))
	}
	var got map[string]uint64
	err := s.index.Subjects(ctx, patience, pattern, from, s.high, func() { got = map[string]uint64{} }, func(subject []byte, n uint64) { got[string(subject)] = n })
	if err != nil || fmt.Sprint(got) != fmt.Sprint(counts) {
		s.fail("counts of %s from %d to %d: %v, %v; want %v", pattern, from, s.high, got, err, counts)
	}
}

// An index answers what reading the log answers: while the log grows, is trimmed, compacted and
// compressed, when it was truncated under another leader, and after restarts.
func TestIndexAnswersWhatTheLogHas(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newShard(t, seed)
			pick := func() string { return fmt.Sprintf("%c.%d", 'a'+s.rng.IntN(4), s.rng.IntN(1+s.rng.IntN(30))) }
			for range 120 {
				s.step(pick)
				if s.rng.IntN(3) == 0 {
					pattern := []string{">", "a.>", "*.3", pick(), pick()}[s.rng.IntN(5)]
					s.check([]uint64{1, s.high - min(s.high, uint64(s.rng.IntN(500)))}[s.rng.IntN(2)], pattern)
				}
			}
			s.check(1, ">")
		})
	}
}

// step changes the log.
func (s *shard) step(pick func() string) {
	start, end, _ := s.log.Offsets()
	switch n := s.rng.IntN(100); {
	case n < 60:
		s.append(1+s.rng.IntN(60), func(int) string { return pick() })
		if s.rng.IntN(4) > 0 {
			s.commit()
		}
	case n < 68:
		s.say("roll")
		s.log.Roll()
	case n < 74:
		to := start + uint64(s.rng.Int64N(int64(s.high-min(start, s.high))/3+1))
		got, err := s.log.Trim(to)
		s.say("trim to %d: %d", to, got)
		if err != nil {
			s.fail("trim: %v", err)
		}
	case n < 80:
		_, err := s.log.Compact(s.t.Context(), log.CompactOptions{Below: s.high})
		s.say("compact below %d", s.high)
		if err != nil {
			s.fail("compact: %v", err)
		}
	case n < 86:
		_, err := s.log.Compress(s.t.Context(), 1)
		s.say("compress")
		if err != nil {
			s.fail("compress: %v", err)
		}
	case n < 90:
		s.say("another leader, which lacks what is beyond %d of %d", s.high, end)
		s.index.Close()
		if s.high < end {
			if _, _, err := s.log.TruncateTo(s.high, s.high); err != nil {
				s.fail("truncate: %v", err)
			}
			_, s.high, _ = s.log.Offsets() // the batch of it may have gone as a whole
		}
		s.epoch++
		s.index = s.set.Of(s.log, &s.removed, s.judge)
	case n < 94:
		s.say("restart")
		s.close()
		s.open()
	case n < 97:
		s.say("nobody asks for long")
		s.set.mu.Lock()
		s.set.evict(time.Now().Add(time.Hour), forReaders)
		s.set.mu.Unlock()
	default:
		s.commit()
	}
}

// A log that is never asked about subjects has no index: no file, and no goroutine knows it.
func TestIndexIsMadeWhenItIsAskedFor(t *testing.T) {
	s := newShard(t, 1)
	s.append(500, func(i int) string { return fmt.Sprint("orders.", i) })
	s.commit()
	s.log.Roll()
	s.append(1, func(int) string { return "orders.last" })
	s.commit()
	if len(s.files()) > 0 || len(s.set.open) > 0 {
		t.Fatalf("nobody has asked, and there is %v", s.files())
	}
	s.check(1, ">")
	s.settle(func() bool { return len(s.files()) > 0 })
}

// files returns the names of the index files.
func (s *shard) files() []string {
	names, err := s.fs.List(s.log.Dir())
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".subjects") })
}

func (s *shard) settle(holds func() bool) {
	s.t.Helper()
	for until := time.Now().Add(patience); !holds(); {
		if time.Now().After(until) {
			s.fail("it doesn't come")
		}
		wait, err := s.index.waitForWork(context.Background(), patience)
		if err != nil {
			s.t.Fatal(err)
		}
		s.set.wake(s.index)
		<-wait
	}
}

// The files of sealed segments serve after a restart: their records are not read again.
func TestIndexFilesOutliveTheProcess(t *testing.T) {
	s := newShard(t, 1)
	for range 20 {
		s.append(100, func(i int) string { return fmt.Sprint("orders.", i) })
	}
	s.commit()
	s.check(1, "orders.7")
	_, states := s.log.SegmentStates()
	s.settle(func() bool { return len(s.files()) == len(states)-1 })
	before := s.files()
	s.close()
	s.open()
	s.check(1, "orders.7")
	if after := s.files(); !slices.Equal(before, after) {
		t.Errorf("the files were %v and are %v", before, after)
	}
}

// While the disk takes no index file, records that are in memory are answered all the same, and the
// log goes on.
func TestIndexThatCannotBeWrittenHurtsNothingElse(t *testing.T) {
	s := newShard(t, 1)
	s.append(300, func(i int) string { return fmt.Sprint("orders.", i%10) })
	s.log.Roll()
	s.append(10, func(i int) string { return fmt.Sprint("orders.", i%10) })
	s.commit()
	s.fs.SetHook(func(op crashfs.Op) error {
		if strings.Contains(op.Path, ".subjects") && op.Changes() {
			return errors.New("no space left on the device")
		}
		return nil
	})
	ctx := context.Background()
	if _, err := s.index.Last(ctx, patience, "orders.none", 1, s.high); err == nil {
		t.Error("the first segment has no index, but a subject that only it may have is answered")
	}
	if last, err := s.index.Last(ctx, patience, "orders.3", 1, s.high); err != nil || last != 304 {
		t.Errorf("the last record of orders.3 is %d, %v; want 304", last, err)
	}
	s.append(10, func(i int) string { return fmt.Sprint("orders.", i) })
	s.fs.SetHook(nil)
	s.commit()
	s.index.makeFailed.Store(false)
	s.check(1, "orders.3")
}

// Questions in many goroutines, beside appends, retention and the worker, see the last record of
// each subject that was acknowledged before they were asked.
func TestQuestionsBesideAppends(t *testing.T) {
	s := newShard(t, 1)
	s.append(10, func(i int) string { return fmt.Sprint("orders.", i) })
	s.commit()
	type known struct{ high, last uint64 }
	latest := make(chan known, 1)
	latest <- known{s.high, 8} // of orders.7
	over := make(chan struct{})
	errs := make(chan error, 4)
	for range 4 {
		go func() {
			for {
				select {
				case <-over:
					errs <- nil
					return
				default:
				}
				is := <-latest
				latest <- is
				got, err := s.index.Last(context.Background(), patience, "orders.7", 1, is.high)
				if err != nil || got != is.last && s.log.Start() <= is.last {
					errs <- fmt.Errorf("below %d the last is %d, %v; want %d", is.high, got, err, is.last)
					return
				}
			}
		}()
	}
	for n := range 300 {
		s.append(20, func(i int) string { return fmt.Sprint("orders.", i%10) })
		is := <-latest
		s.commit()
		latest <- known{s.high, s.high - 3}
		if n%50 == 49 {
			if _, err := s.log.Trim(is.last - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(over)
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Beyond the number of open indexes, a question is refused, and answered when another index has not
// been asked for a while.
func TestOpenIndexesAreBounded(t *testing.T) {
	s := newShard(t, 1)
	s.append(10, func(i int) string { return fmt.Sprint("orders.", i) })
	s.commit()
	others := make([]*Index, mostOpen)
	for i := range others {
		others[i] = s.set.Of(s.log, &s.removed, s.judge) // never used for a question, but counted
		others[i].asked.Store(time.Now().UnixNano())
		if !s.set.admit(others[i], forReaders) {
			t.Fatal("there is no room for index", i)
		}
	}
	// It doesn't wait, and asks once: waiting makes no room.
	asked := time.Now()
	if _, err := s.index.Last(context.Background(), patience, "orders.1", 1, s.high); !busy(err) || time.Since(asked) > patience/2 {
		t.Fatalf("one index too many: %v after %v", err, time.Since(asked))
	}
	others[5].asked.Store(time.Now().Add(-time.Hour).UnixNano())
	if last, err := s.index.Last(context.Background(), patience, "orders.1", 1, s.high); err != nil || last != 2 {
		t.Fatalf("%d, %v; want 2", last, err)
	}
	if _, open := s.set.open[others[5]]; open {
		t.Error("the index that nobody asked for is open")
	}
}

// A condition has an index closed that only readers ask for, however lately. It spares those of
// conditions.
func TestConditionsComeBeforeReaders(t *testing.T) {
	s := newShard(t, 1)
	s.append(10, func(i int) string { return fmt.Sprint("orders.", i) })
	s.commit()
	s.set.mostOpen = 2
	others := []*Index{s.set.Of(s.log, &s.removed, s.judge), s.set.Of(s.log, &s.removed, s.judge)}
	for _, x := range others {
		x.asked.Store(time.Now().UnixNano())
		if !s.set.admit(x, forReaders) {
			t.Fatal("there is no room")
		}
	}
	others[0].needed.Store(time.Now().UnixNano())
	if _, err := s.index.Last(context.Background(), 0, "orders.1", 1, s.high); !busy(err) {
		t.Fatalf("a reader takes the place of another one: %v", err)
	}
	if last, err := s.index.LastOf(context.Background(), patience, "orders.1", 1, s.high); err != nil || last != 2 {
		t.Fatalf("%d, %v; want 2", last, err)
	}
	if _, open := s.set.open[others[0]]; !open {
		t.Error("the index of other conditions is closed")
	}
	if _, err := others[1].LastOf(context.Background(), 0, "orders.1", 1, s.high); !busy(err) {
		t.Errorf("there are three: %v", err)
	}
}

// Damage that the index meets is told, whoever reads: a question, or the work on its files.
func TestDamageThatTheIndexMeetsIsTold(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		t.Run(fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			s := newShard(t, 1)
			s.append(100, orders)
			if sealed {
				s.log.Roll()
				s.append(1, orders)
			}
			s.commit()
			s.close()
			_, states := s.log.SegmentStates()
			if err := s.fs.FlipPayload(fmt.Sprintf("%s/%020d.log", s.log.Dir(), states[0].Base), 200); err != nil {
				t.Fatal(err)
			}
			s.open()
			s.read = make(chan error, 100)
			for until := time.Now().Add(patience); ; {
				_, err := s.index.LastOf(context.Background(), 0, "orders.none", 1, s.high)
				if err == nil {
					t.Fatal("an index of damaged records says that there is no record")
				}
				select {
				case err := <-s.read:
					if _, ok := errors.AsType[*log.CorruptError](err); ok {
						return
					}
				case <-time.After(time.Millisecond):
				}
				if time.Now().After(until) {
					t.Fatal("nobody is told")
				}
			}
		})
	}
}

// Offsets that the log disowns are not answered from an index file of before, nor from memory.
func TestDisownedRecordsAreNotAnswered(t *testing.T) {
	s := newShard(t, 1)
	s.append(100, orders)
	s.log.Roll()
	s.append(1, orders)
	s.commit()
	s.check(1, ">")
	s.settle(func() bool { return len(s.files()) == 1 })
	if err := s.fs.FlipPayload(fmt.Sprintf("%s/%020d.log", s.log.Dir(), 1), 200); err != nil {
		t.Fatal(err)
	}
	if found, err := s.log.Scrub(t.Context(), log.ScrubOptions{}); err != nil || len(found.Damaged) == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := s.log.Disown(log.Span{From: 91, Next: 101}); err != nil {
		t.Fatal(err)
	}
	testutil.EventuallyTrue(t, "the index says that the records can't be read", func() bool {
		last, err := s.index.LastOf(context.Background(), 0, "orders.3", 1, s.high)
		if err == nil {
			t.Fatalf("the last record is %d, which is disowned", last)
		}
		missing, ok := errors.AsType[*subjectindex.MissingError](err)
		return ok && missing.Damaged
	})
	if last, err := s.index.LastOf(context.Background(), 0, "orders.0", 1, s.high); err != nil || last != 101 {
		t.Errorf("%d, %v; want 101, which is not disowned", last, err)
	}
}
