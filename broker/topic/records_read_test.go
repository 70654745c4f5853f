package topic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
)

const most = 8 << 20

// split takes apart what an answer holds.
func split(t testing.TB, lengths []byte) (records []string) {
	t.Helper()
	for len(lengths) > 0 {
		size, n := binary.Uvarint(lengths)
		if n <= 0 || size > uint64(len(lengths)-n) {
			t.Fatalf("%d records and then %q", len(records), lengths)
		}
		records = append(records, string(lengths[n:n+int(size)]))
		lengths = lengths[n+int(size):]
	}
	return records
}

// mixed publishes records of all kinds, and returns what is kept: by offset from 1 on.
func mixed(n *site, rng *rand.Rand) (kept []string) {
	text := func() string {
		return fmt.Sprintf("%d:%s", len(kept), strings.Repeat("x", rng.IntN(200)))
	}
	for range 60 {
		switch rng.IntN(3) {
		case 0:
			var messages []protocol.Message
			for range 1 + rng.IntN(5) {
				kept = append(kept, text())
				messages = append(messages, message("orders.eu", "", kept[len(kept)-1], "Trace: 1"))
			}
			n.hub.publish(messages...)
		default:
			var records []string
			for range 1 + rng.IntN(100) {
				kept = append(kept, text())
				records = append(records, kept[len(kept)-1])
			}
			n.hub.publish(message("orders.us", "", prefixed(records...), fmt.Sprint("Records: ", len(records))))
		}
	}
	return kept
}

// TestAnswersFollowEachOther: each answer continues where the last one ended, with any bound and
// start, and no record is missing or doubled.
func TestAnswersFollowEachOther(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := newSite(t)
		n.serve("orders")
		kept := mixed(n, rng)
		n.expect(n.ask("orders.eu", "last"), fmt.Sprint("orders@", len(kept)+1))
		kept = append(kept, "last")
		if seed%2 == 1 {
			n.restart("orders") // from the files
		}
		shard := n.service.Topic("orders").Shard()
		var r records.BulkReader
		for next := uint64(0); next <= uint64(len(kept)); {
			q := records.Query{Offset: next, Records: 1 + rng.IntN(300), Bytes: 1 + rng.IntN(8000), Most: most}
			memory := []byte("before")
			if rng.IntN(3) == 0 { // the file is read right into the answer's memory
				q.Records, q.Bytes = 1+rng.IntN(3000), 64<<10+rng.IntN(64<<10)
				memory = append(make([]byte, 0, len(memory)+q.Bytes+records.ReadRoom), memory...)
			}
			data, got, err := r.Read(&shard.Reader, q, memory)
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, q, err)
			}
			records := split(t, data)
			first := max(next, 1)
			if got.First != first || got.Next != first+uint64(len(records)) || got.Count != len(records) || got.High != uint64(len(kept))+1 || len(records) == 0 ||
				len(records) > q.Records || len(data) > q.Bytes && len(records) > 1 {
				t.Fatalf("seed %d: %+v: %+v and %d records in %d bytes", seed, q, got, len(records), len(data))
			}
			if want := kept[first-1 : got.Next-1]; !slices.Equal(records, want) || string(memory) != "before" {
				t.Fatalf("seed %d: from %d: %.300q, want %.300q", seed, first, records, want)
			}
			if next = got.Next; rng.IntN(8) == 0 && next > 50 {
				next -= uint64(rng.IntN(50)) // from within
			}
		}
		_, got, err := r.Read(&shard.Reader, records.Query{Offset: uint64(len(kept)) + 1, Records: 1, Bytes: 1, Most: most}, nil)
		if err != nil || got.Count != 0 || got.First != got.Next || got.Next != got.High {
			t.Errorf("at the end: %+v, %v", got, err)
		}
		n.stop()
	}
}

// TestTheFullFormHasSubjectTimeAndHeader: in the full form a record has its subject, its time and
// its header.
func TestTheFullFormHasSubjectTimeAndHeader(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.hub.publish(message("orders.eu", "", "one", "Trace: 1"), message("orders.eu", "", "two"), message("orders.us", "", "three", "Trace: 3"))
	n.hub.publish(message("orders.us", "", prefixed("four", ""), "Records: 2", "Trace: 4"))
	n.ask("orders.eu", "six")
	shard := n.service.Topic("orders").Shard()
	var r records.BulkReader
	data, got, err := r.Read(&shard.Reader, records.Query{Offset: 1, Records: 100, Bytes: most, Most: most, Full: true}, nil)
	if err != nil || got.Count != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	header := func(of string) string { return "NATS/1.0\r\nTrace: " + of + "\r\n\r\n" }
	want := []string{"orders.eu " + header("1") + "one", "orders.eu two", "orders.us " + header("3") + "three", "orders.us four", "orders.us ", "orders.eu six"}
	subject := ""
	for i, entry := range split(t, data) {
		rest := []byte(entry)
		after, m := binary.Varint(rest)
		rest = rest[m:]
		cut := func() string {
			size, m := binary.Uvarint(rest)
			piece := string(rest[m : m+int(size)])
			rest = rest[m+int(size):]
			return piece
		}
		if s := cut(); s != "" {
			subject = s
		}
		if have := subject + " " + cut() + string(rest); have != want[i] {
			t.Errorf("record %d is %q, want %q", i+1, have, want[i])
		}
		if r, err := shard.Get(uint64(i + 1)); err != nil || r.Time != got.Time+after {
			t.Errorf("record %d is of %d, want %d", i+1, got.Time+after, r.Time)
		}
	}
	// The first of an answer has its subject.
	data, _, err = r.Read(&shard.Reader, records.Query{Offset: 2, Records: 1, Bytes: 1, Most: most, Full: true}, nil)
	if err != nil || string(data) != "\x0f\x00\x09orders.eu\x00two" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestReadsOutsideTheLogAndOversizedRecordsAreErrors(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 10 })
	n.serve("orders")
	n.ask("orders.eu", prefixed(numbered(40)...), "Records: 40")
	shard := n.service.Topic("orders").Shard()
	var r records.BulkReader
	_, _, err := r.Read(&shard.Reader, records.Query{Offset: 30, Records: 1, Bytes: 100, Most: most}, nil)
	if e, ok := errors.AsType[*records.OffsetError](err); !ok || e.Start != 31 || e.High != 41 || !strings.Contains(e.Error(), "begins at 31") {
		t.Errorf("below the start: %v", err)
	}
	_, _, err = r.Read(&shard.Reader, records.Query{Offset: 42, Records: 1, Bytes: 100, Most: most}, nil)
	if e, ok := errors.AsType[*records.OffsetError](err); !ok || e.Start != 31 || e.High != 41 || !strings.Contains(e.Error(), "beyond") {
		t.Errorf("above the end: %v", err)
	}
	data, got, err := r.Read(&shard.Reader, records.Query{Records: 100, Bytes: most, Most: most}, nil)
	if err != nil || got.First != 31 || !slices.Equal(split(t, data), numbered(40)[30:]) {
		t.Errorf("from the start: %+v, %v", got, err)
	}
	long := strings.Repeat("x", 5000)
	n.ask("orders.eu", prefixed("short", long, long), "Records: 3")
	n.ask("orders.eu", long)
	for offset, full := range map[uint64]bool{42: false, 43: true, 44: false} {
		_, _, err = r.Read(&shard.Reader, records.Query{Offset: offset, Records: 1, Bytes: 100, Most: 5000, Full: full}, nil)
		if e, ok := errors.AsType[*records.SizeError](err); !ok || e.Offset != offset || e.Size < 5002 || e.Most != 5000 || !strings.Contains(e.Error(), "orders") {
			t.Errorf("too long: %v", err)
		}
		data, got, err := r.Read(&shard.Reader, records.Query{Offset: offset, Records: 1, Bytes: 100, Most: 6000, Full: full}, nil)
		if err != nil || got.Count != 1 || len(split(t, data)[0]) < 5000 {
			t.Errorf("offset %d with room: %+v, %v", offset, got, err)
		}
	}
	data, got, err = r.Read(&shard.Reader, records.Query{Offset: 41, Records: 10, Bytes: 5000, Most: 5000}, nil)
	if err != nil || !slices.Equal(split(t, data), []string{"short"}) || got.Next != 42 {
		t.Errorf("before a long one: %+v, %v", got, err)
	}
}

// TestRecordsUnderWayAreNotShown: no record is readable before it is as durable as the Topic
// requires.
func TestRecordsUnderWayAreNotShown(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.eu", prefixed(numbered(3)...), "Records: 3")
	release := hold(n)
	n.hub.publish(message("orders.eu", "r", prefixed(numbered(3)...), "Records: 3"))
	shard := n.service.Topic("orders").Shard()
	var r records.BulkReader
	_, got, err := r.Read(&shard.Reader, records.Query{Offset: 1, Records: 100, Bytes: most, Most: most}, nil)
	if err != nil || got.Count != 3 || got.Next != 4 || got.High != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	release()
	n.hub.answer(t, "r")
	_, got, err = r.Read(&shard.Reader, records.Query{Offset: 3, Records: 100, Bytes: most, Most: most}, nil)
	if err != nil || got.Count != 4 || got.Next != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

func BenchmarkReadRecords(b *testing.B) {
	_, hub, topic := benchSite(b, 1, func(s *coordination.TopicSpec) { s.Durability = coordination.Memory })
	payload := prefixed(slices.Repeat([]string{strings.Repeat("x", 64)}, 16384)...)
	for range 8 {
		(*taker)(topic).Take([]protocol.Message{message("orders.eu", "0", payload, "Records: 16384")}, nil, false)
		<-hub.waiting[0]
	}
	var r records.BulkReader
	dst := make([]byte, 0, 2<<20)
	next := uint64(1)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		_, got, err := r.Read(&topic.Shard().Reader, records.Query{Offset: next, Records: publish.MaxRecords, Bytes: len(payload), Most: most}, dst)
		if err != nil || got.Count != 16384 {
			b.Fatal(got, err)
		}
		if next = got.Next; next == got.High {
			next = 1
		}
	}
}

// TestPinnedRecordsSurviveRetention: pinned records stay readable until they are released; then
// retention deletes them.
func TestPinnedRecordsSurviveRetention(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Retention.Messages = 10 })
	n.serve("orders")
	n.ask("orders.eu", prefixed(numbered(10)...), "Records: 10")
	shard := n.service.Topic("orders").Shard()
	pin, err := shard.Pin(0, 0)
	if err != nil || pin.Start != 1 || pin.High != 11 {
		t.Fatalf("%+v, %v", pin, err)
	}
	for range 300 {
		n.ask("orders.eu", prefixed(numbered(10)...), "Records: 10")
	}
	n.eventually("retention was looked at", func() bool { start, _ := shard.Offsets(); return start == 3001 })
	var r records.BulkReader
	q := records.Query{Records: 100, Bytes: most, Most: most}
	q.Pin = pin
	data, got, err := r.Read(&shard.Reader, q, nil)
	if err != nil || got.First != 1 || got.High != 11 || !slices.Equal(split(t, data), numbered(10)) {
		t.Errorf("%+v, %v", got, err)
	}
	q.Offset = 12
	if _, _, err := r.Read(&shard.Reader, q, nil); err == nil {
		t.Error("beyond the pin there is something")
	}
	again, err := shard.Pin(1, 11) // as somebody does who lost it
	if err != nil {
		t.Fatal(err)
	}
	pin.Release()
	again.Release()
	n.eventually("what was pinned is gone", func() bool {
		if pin, err := shard.Pin(1, 11); err == nil {
			pin.Release()
			return false
		}
		return true
	})
	if _, err := shard.Pin(3001, 9999); err == nil {
		t.Error("what isn't there yet can be pinned")
	}
}
