package topic

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/records"
	replication "github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

// compacting returns a cluster whose brokers compact often. Its Topic keeps the newest record of
// each subject.
func compacting(t *testing.T, size int) *cluster {
	c := newCluster(t, size)
	for _, n := range c.sites {
		n.options.TailBytes = 1
		n.compact = upkeep.Compacting{Every: 5 * time.Millisecond, Age: 1}
		n.topic("orders", func(s *coordination.TopicSpec) {
			s.Replicas, s.Deduplication, s.Compaction = size, 0, coordination.LatestOnly
		})
	}
	return c
}

// newestOf are the newest of what a broker shows, one for each subject.
func newestOf(shown []string) (newest []string) {
	by := map[string]string{}
	for _, line := range shown {
		by[strings.Fields(line)[1]] = line
	}
	for _, line := range by {
		newest = append(newest, line)
	}
	slices.Sort(newest)
	return newest
}

// TestReplicasOfACompactedTopic: each replica compacts its copy. A replica that returns copies the
// remaining records, wherever it ended, and the next leader has the newest record of each subject.
func TestReplicasOfACompactedTopic(t *testing.T) {
	t.Parallel()
	c := compacting(t, 3)
	a, b := c.sites[0], c.sites[1]
	c.begin()
	publish := func(n *site, from, to int) {
		for i := from; i < to; i++ {
			n.expect(n.ask(fmt.Sprintf("orders.%d", i%5), fmt.Sprintf("%d %s", i, strings.Repeat("x", 600))), fmt.Sprintf("orders@%d", i))
		}
	}
	publish(a, 1, 41)
	c.kill(2)
	c.settle("the other two are the set", func() bool { return len(c.inSync()) == 2 })
	publish(a, 41, 300)
	holes := func(n *site) uint64 {
		return n.service.Topic("orders").shards[0].opened.Load().parts[replication.Data].Holes(1)
	}
	c.settle("leader and follower compact", func() bool { return holes(a) > 200 && holes(b) > 200 })
	a.eventually("the compaction is counted", func() bool {
		did := a.service.Compacted()
		return did.Records >= 200 && did.Bytes >= 200*600 && !did.Last.IsZero()
	})
	shard := a.service.Topic("orders").Shard()
	a.eventually("what is said of it is of a moment", func() bool { // compaction goes on
		before, is := holes(a), shard.Info()
		if holes(a) != before {
			return false
		}
		if is.Messages != 299-before || is.First < 2 || is.Last != 299 || is.FirstTime.IsZero() {
			t.Errorf("%+v, with %d holes", is, before)
		}
		return true
	})
	want := newestOf(a.read("orders"))
	if len(want) != 5 || !strings.HasPrefix(want[4], "299 orders.4 299 ") {
		t.Fatalf("the newest are %.60q", want)
	}
	if _, err := shard.Get(7); err == nil || !strings.Contains(err.Error(), "keeps no record") {
		t.Errorf("offset 7: %v", err)
	}
	if r, err := shard.LastFor("orders.2"); err != nil || r.Offset != 297 {
		t.Error(r.Offset, err)
	}
	if r, err := shard.NextFor("orders.2", 1); err != nil || r.Offset < 2 {
		t.Error(r.Offset, err)
	}

	c.start(2) // it ends within what is one batch by now
	c.settle("it is in sync again", func() bool { return len(c.inSync()) == 3 })
	for i, n := range c.sites {
		all := c.copies()[i]
		for _, line := range want {
			if f := strings.Fields(line); !slices.ContainsFunc(all, func(have string) bool { return strings.Contains(have, "/"+f[0]+" "+f[2]+" ") }) {
				t.Errorf("%s lacks %s", n.self, f[0])
			}
		}
	}
	c.kill(0)
	n := c.sites[2]
	c.elect(2, 1, 2)
	c.tell()
	n.open("orders")
	if got := newestOf(n.read("orders")); !slices.Equal(got, want) {
		t.Errorf("the newest are %.60q on the one that came back", got)
	}
}

// TestAnswersWithGaps: an answer from a compacted shard has the requested number of records, with
// their gaps, in both forms. A client without support for gaps gets each run by itself. Either way
// no record is missing or doubled.
func TestAnswersWithGaps(t *testing.T) {
	c := compacting(t, 1)
	n := c.sites[0]
	c.start(0)
	c.elect(0, 0)
	c.tell()
	n.open("orders")
	const last = 600
	for i := 1; i <= last; i++ { // every fourth has a subject of its own
		subject := "orders.shared"
		if i%4 == 0 {
			subject = fmt.Sprint("orders.own.", i)
		}
		n.expect(n.ask(subject, fmt.Sprintf("%d %s", i, strings.Repeat("x", 600))), fmt.Sprintf("orders@%d", i))
	}
	c.settle("much of it is compacted", func() bool { return n.service.Compacted().Records > last/3 })
	c.kill(0)
	n.compact = upkeep.Compacting{Every: time.Hour} // from here on it stays as it is
	c.start(0)
	c.elect(0, 0)
	c.tell()
	n.open("orders")
	shard, want := n.service.Topic("orders").Shard(), n.read("orders")
	for _, gaps := range []bool{true, false} {
		for _, full := range []bool{false, true} {
			for _, most := range []int{1, 3000, 100_000} {
				var got []string
				answers := 0
				var r records.BulkReader
				for next := uint64(0); next <= last; answers++ {
					q := records.Query{Offset: next, Records: 1000, Bytes: most, Most: 8 << 20, Full: full, Gaps: gaps}
					data, is, err := r.Read(&shard.Reader, q, make([]byte, 0, most+records.ReadRoom))
					if err != nil || is.Next <= next || is.Gapped && !gaps {
						t.Fatalf("%+v: %+v, %v", q, is, err)
					}
					offset, subject := is.First, ""
					cut := func(from []byte) (piece, rest []byte) {
						size, k := binary.Uvarint(from)
						return from[k : k+int(size)], from[k+int(size):]
					}
					for range is.Count {
						if is.Gapped {
							gap, k := binary.Uvarint(data)
							offset, data = offset+gap, data[k:]
						}
						var record []byte
						record, data = cut(data)
						line := fmt.Sprintf("%d ", offset)
						if full {
							_, k := binary.Varint(record)
							of, rest := cut(record[k:])
							if len(of) > 0 {
								subject = string(of)
							}
							_, record = cut(rest)
							line += subject + " "
						}
						got = append(got, line+string(record))
						offset++
					}
					if len(data) > 0 || offset > is.Next {
						t.Fatalf("%+v: %d bytes are left, behind offset %d of %+v", q, len(data), offset, is)
					}
					next = is.Next
				}
				all := slices.Clone(want)
				for i, line := range all {
					if f := strings.SplitN(line, " ", 3); !full {
						all[i] = f[0] + " " + f[2]
					}
				}
				if !slices.Equal(got, all) {
					t.Errorf("gaps %v, full %v, %d bytes: %.200q, want %.200q", gaps, full, most, got, all)
				}
				if few := len(want)*700/most + 20; gaps && most > 1 && answers > few || !gaps && answers < 50 {
					t.Errorf("gaps %v, full %v, %d bytes: %d answers for %d records", gaps, full, most, answers, len(want))
				}
			}
		}
	}
}
