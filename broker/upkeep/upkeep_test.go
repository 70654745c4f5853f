package upkeep

import (
	"bytes"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

type done chan error

func (d done) Committed(_, _ uint64, err error) { d <- err }

// copied is a shard whose records are all on all in-sync replicas below an offset.
type copied struct {
	data    *log.Log
	compact bool
	below   uint64
	removed *removal.Set // nil: none
	damages []string
}

func (c *copied) Name() string                              { return "orders" }
func (c *copied) Logs() []*log.Log                          { return []*log.Log{c.data} }
func (c *copied) Compaction() (uint64, time.Duration, bool) { return c.below, 0, c.compact }
func (c *copied) Removals() (Removals, bool, error) {
	return Removals{Set: c.removed}, c.removed != nil, nil
}
func (c *copied) Damaged(damage *log.CorruptError) { c.damages = append(c.damages, damage.Error()) }
func (c *copied) shards() iter.Seq[Shard]          { return slices.Values([]Shard{c}) }

// newCopy returns a shard with a log of 60 records of six subjects in several segments, and its
// upkeep.
func newCopy(t *testing.T) (*copied, *Upkeep, *crashfs.FS, *bytes.Buffer) {
	t.Helper()
	fs := crashfs.New()
	disk, err := log.OpenDisk(fs, "data", log.Options{SegmentSmallest: 8 << 10, SegmentLargest: 8 << 10, TailBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	data, err := disk.Open(log.Identity{Topic: "orders"}, 1, 1, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		d := make(done, 1)
		record := log.Record{Time: int64(i), Subject: fmt.Appendf(nil, "orders.%d", i%6), Data: bytes.Repeat([]byte{byte(i)}, 1000)}
		if _, err := data.Append(&log.Append{Epoch: 1, Records: []log.Record{record}, Done: d}); err != nil {
			t.Fatal(err)
		}
		if err := <-d; err != nil {
			t.Fatal(err)
		}
	}
	logged := &bytes.Buffer{}
	c := &copied{data: data, below: 61}
	u := New(Config{Disk: disk, Clock: clock.New(clock.Config{}), Compact: Compacting{Every: time.Hour, Age: 1, Least: 1}, Shards: c.shards,
		Logger: slog.New(slog.NewTextHandler(logged, nil))})
	return c, u, fs, logged
}

// TestDamageIsReportedToItsShard: scrubbing reports damage to the shard that has it, and counts it.
func TestDamageIsReportedToItsShard(t *testing.T) {
	c, u, fs, _ := newCopy(t)
	u.Scrub(t.Context(), c, c.data, log.ScrubOptions{})
	if s := u.Stats(); len(c.damages) > 0 || s.Scrubbed == 0 || s.Damages > 0 {
		t.Fatalf("of a whole log %q was reported, %+v", c.damages, s)
	}
	names, err := fs.List("data/shards/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	segments := slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	if err := fs.Flip("data/shards/orders-0/"+segments[1], 8*1000); err != nil {
		t.Fatal(err)
	}
	u.Scrub(t.Context(), c, c.data, log.ScrubOptions{})
	if s := u.Stats(); len(c.damages) != 1 || s.Damages != 1 {
		t.Errorf("%q was reported, %+v", c.damages, s)
	}
}

// TestCompactionStaysBelowTheEndsOfAllReplicas: compaction deletes records only in shards that are
// compacted, and only if all in-sync replicas have a newer record of the subject.
func TestCompactionStaysBelowTheEndsOfAllReplicas(t *testing.T) {
	c, u, _, _ := newCopy(t)
	u.compact(t.Context(), c, nil)
	if did := u.Compacted(); did.Records > 0 {
		t.Fatalf("a shard that keeps everything: %+v", did)
	}
	c.compact, c.below = true, 25
	u.compact(t.Context(), c, nil)
	did := u.Compacted()
	if holes := c.data.Holes(1); did.Records == 0 || did.Records > 18 || holes != did.Records {
		t.Errorf("%+v, with %d holes; of 24 records 6 are the newest", did, holes)
	}
}

// TestRemovedRecordsAreExpunged: removed records leave the files below the watermark of the log,
// and are counted. Of a shard without any nothing is touched.
func TestRemovedRecordsAreExpunged(t *testing.T) {
	c, u, _, _ := newCopy(t)
	u.expunge(t.Context(), c, nil)
	c.removed = &removal.Set{}
	c.removed.Add(10, 50)
	u.expunge(t.Context(), c, nil)
	if did := u.Expunged(); did.Records > 0 || c.data.Holes(1) > 0 {
		t.Fatalf("nothing is known to be committed, and %+v", did)
	}
	c.data.NoteWatermark(25)
	u.expunge(t.Context(), c, nil)
	did := u.Expunged()
	if holes := c.data.Holes(1); did.Records == 0 || did.Records > 15 || holes != did.Records || did.Bytes < 1000*did.Records || did.Last.IsZero() {
		t.Errorf("%+v, with %d holes; of 24 records 15 were removed", did, holes)
	}
}

// TestDamageThatAnExpungeMeetsIsReported: as that which compaction meets.
func TestDamageThatAnExpungeMeetsIsReported(t *testing.T) {
	c, u, fs, _ := newCopy(t)
	names, err := fs.List("data/shards/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	segments := slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	if err := fs.Flip("data/shards/orders-0/"+segments[0], 8*1000); err != nil {
		t.Fatal(err)
	}
	c.removed = &removal.Set{}
	c.removed.Add(1, 50)
	c.data.NoteWatermark(61)
	u.expunge(t.Context(), c, nil)
	if s := u.Stats(); len(c.damages) != 1 || s.Damages != 1 {
		t.Errorf("%q was reported, %+v", c.damages, s)
	}
}

// replacedCopy is a copy that is replaced by the next one right after its offset was asked for.
type replacedCopy struct {
	*copied
	next *log.Log
}

func (r *replacedCopy) Compaction() (below uint64, window time.Duration, ok bool) {
	defer func() {
		_ = r.data.Close()
		r.data = r.next
	}()
	return r.copied.Compaction()
}

// TestACopyIsReplacedBeforeItIsCompacted: what all in-sync replicas have of one copy says nothing
// about the copy that replaces it.
func TestACopyIsReplacedBeforeItIsCompacted(t *testing.T) {
	former, u, _, logged := newCopy(t)
	next, _, _, _ := newCopy(t)
	former.compact = true
	u.compact(t.Context(), &replacedCopy{former, next.data}, nil)
	if holes := next.data.Holes(1); holes > 0 || u.Compacted().Records > 0 {
		t.Errorf("%d records of the next copy are gone", holes)
	}
	if logged.Len() > 0 {
		t.Errorf("it logged: %s", logged)
	}
}

// TestAClosedLogIsNoFault: a log that is closed meanwhile is no fault: nothing is reported or
// logged.
func TestAClosedLogIsNoFault(t *testing.T) {
	c, u, _, logged := newCopy(t)
	c.compact = true
	if err := c.data.Close(); err != nil {
		t.Fatal(err)
	}
	u.Scrub(t.Context(), c, c.data, log.ScrubOptions{})
	u.compress(t.Context(), c)
	u.compact(t.Context(), c, nil)
	c.removed = &removal.Set{}
	c.removed.Add(1, 50)
	u.expunge(t.Context(), c, nil)
	if len(c.damages) > 0 || logged.Len() > 0 {
		t.Errorf("%q was reported, and logged: %s", c.damages, logged)
	}
}
