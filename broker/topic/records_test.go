package topic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/publish"
)

// prefixed are records as a message carries them.
func prefixed(records ...string) string {
	var b []byte
	for _, r := range records {
		b = append(binary.AppendUvarint(b, uint64(len(r))), r...)
	}
	return string(b)
}

func numbered(n int) (records []string) {
	for i := range n {
		records = append(records, fmt.Sprintf("record %d", i))
	}
	return records
}

// TestAMessageOfManyRecordsIsAnsweredOnce: the records of one message are consecutive, and it is
// answered once, with the offset of the last one.
func TestAMessageOfManyRecordsIsAnsweredOnce(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.hub.publish(
		message("orders.eu", "r1", "before"),
		message("orders.eu", "r2", prefixed("a", "", strings.Repeat("c", 300)), "Records: 3", "Trace: 1"),
		message("orders.eu", "r3", prefixed("d"), "Records: 1"),
		message("orders.eu", "", prefixed("e", "f"), "Records: 2"),
		message("orders.eu", "r4", "behind"),
	)
	n.expect(n.hub.answer(t, "r1"), "orders@1")
	n.expect(n.hub.answer(t, "r2"), "orders@4/3")
	n.expect(n.hub.answer(t, "r3"), "orders@5/1")
	n.expect(n.hub.answer(t, "r4"), "orders@8")
	want := []string{"1 orders.eu before", "2 orders.eu a", "3 orders.eu ", "4 orders.eu " + strings.Repeat("c", 300),
		"5 orders.eu d", "6 orders.eu e", "7 orders.eu f", "8 orders.eu behind"}
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept %q", got)
	}
	n.restart("orders")
	if got := n.read("orders"); !slices.Equal(got, want) {
		t.Fatalf("kept after a restart %q", got)
	}
	if got := n.service.Stats().Appended; got != 0 {
		t.Errorf("%d were counted in this life", got)
	}
	n.expect(n.ask("orders.eu", prefixed(numbered(publish.MaxRecords)...), fmt.Sprint("Records: ", publish.MaxRecords)), fmt.Sprintf("orders@%d/%d", 8+publish.MaxRecords, publish.MaxRecords))
	if got := n.service.Stats().Appended; got != publish.MaxRecords {
		t.Errorf("%d were counted", got)
	}
}

// TestAMalformedMessageOfRecordsIsRefusedWhole: a message that does not contain the records that it
// announces is refused whole. Other messages of the same read are kept.
func TestAMalformedMessageOfRecordsIsRefusedWhole(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.MaxMessage = 20 })
	n.serve("orders")
	for _, c := range []struct {
		records int
		payload string
		why     string
	}{
		{2, prefixed("a"), "announces 2 records, and its payload ends after 1"},
		{1, "", "announces 1 records, and its payload ends after 0"},
		{1, prefixed("a", "b"), "2 bytes follow the 1 records"},
		{2, "\x01a\x05b", "record 2 of 2 in a message is longer than what is left"},
		{2, "\x01a\x80", "record 2 of 2 in a message has no length"},
		{1, "\x81\x00a", "record 1 of 1 in a message has no length"},
		{1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than what is left"},
		{1, strings.Repeat("\xff", 10) + "\x01", "has no length"},
		{2, prefixed("a", strings.Repeat("b", 21)), "record 2 of 2 in a message has 21 bytes; the topic takes 20 (spec.maxMessage)"},
		{publish.MaxRecords + 1, prefixed("a"), "it may carry 65536"},
	} {
		got := n.ask("orders.eu", c.payload, fmt.Sprint("Records: ", c.records))
		if !strings.HasPrefix(got, "no: topic orders: ") || !strings.Contains(got, c.why) {
			t.Errorf("%d records in %q: %s, want %s", c.records, c.payload, got, c.why)
		}
	}
	// A record may be as long as a message, and the message that carries it longer.
	n.expect(n.ask("orders.eu", prefixed(strings.Repeat("b", 20), strings.Repeat("c", 20)), "Records: 2"), "orders@2/2")
	n.hub.publish(message("orders.eu", "r1", "x"), message("orders.eu", "r2", "?", "Records: 2"), message("orders.eu", "r3", "y"))
	n.expect(n.hub.answer(t, "r1"), "orders@3")
	n.expect(n.hub.answer(t, "r3"), "orders@4")
	if got := n.read("orders"); len(got) != 4 {
		t.Errorf("kept %q", got)
	}
}

// TestIDsAndConditionsApplyToTheWholeMessageOfRecords: a message's id covers all of its records,
// also after it was read from the log again. A condition applies to its first record.
func TestIDsAndConditionsApplyToTheWholeMessageOfRecords(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = 120e9 })
	n.serve("orders")
	three := prefixed("a", "b", "c")
	n.expect(n.ask("orders.eu", three, "Records: 3", "Id: one", "Expect-Last: 0"), "orders@3/3")
	n.expect(n.ask("orders.eu", three, "Records: 3", "Id: one"), "orders@3 again")
	n.expect(n.ask("orders.eu", three, "Records: 3", "Expect-Last-Id: one", "Expect-Last: 3", "Id: two"), "orders@6/3")
	n.expect(n.ask("orders.eu", "x", "Id: one"), "orders@3 again")
	n.expect(n.ask("orders.eu", three, "Records: 3", "Expect-Last: 4"), "no: topic orders: the last message is at offset 6")
	n.expect(n.ask("orders.eu", three, "Records: 3", "Expect-Last-By-Subject: 6"), "orders@9/3")
	n.expect(n.ask("orders.eu", "y", "Expect-Last-By-Subject: 9"), "orders@10")
	n.expect(n.ask("orders.us", three, "Records: 3", "Id: three"), "orders@13/3")
	for range 2 {
		n.restart("orders")
		n.expect(n.ask("orders.eu", three, "Records: 3", "Id: one"), "orders@3 again")
		n.expect(n.ask("orders.eu", three, "Records: 3", "Id: two"), "orders@6 again")
		n.expect(n.ask("orders.eu", "z", "Expect-Last-Id: two"), `no: topic orders: the last message has id "three"`)
	}
	// Two with one id in one read, and one that is to be behind them.
	n.hub.publish(
		message("orders.eu", "r1", three, "Records: 3", "Id: four", "Expect-Last-Id: three"),
		message("orders.eu", "r2", three, "Records: 3", "Id: four"),
		message("orders.eu", "r3", three, "Records: 3", "Expect-Last-Id: four"),
	)
	n.expect(n.hub.answer(t, "r1"), "orders@16/3")
	n.expect(n.hub.answer(t, "r2"), "orders@16 again")
	n.expect(n.hub.answer(t, "r3"), "orders@19/3")
}

// TestMessagesOfAPublisherKeepTheirOrder: a publisher's messages in flight are kept in its order,
// even if one of them has to be repeated.
func TestMessagesOfAPublisherKeepTheirOrder(t *testing.T) {
	n := newSite(t)
	n.topic("orders", func(s *coordination.TopicSpec) { s.Deduplication = 120e9 })
	n.serve("orders", "bills")
	n.expect(n.ask("orders.eu", "b", "Id: p-2", "After: p-1"), `no: topic orders: no message with id "p-1" was kept within the deduplication window (publish that one first)`)
	n.hub.publish(message("orders.eu", "r1", prefixed("a", "a"), "Records: 2", "Id: p-1"), message("orders.eu", "r2", "b", "Id: p-2", "After: p-1"),
		message("orders.eu", "r4", "d", "Id: p-4", "After: p-3"), message("orders.eu", "r3", "c", "Id: p-3", "After: p-2"))
	n.expect(n.hub.answer(t, "r1"), "orders@2/2")
	n.expect(n.hub.answer(t, "r2"), "orders@3")
	n.expect(n.hub.answer(t, "r3"), "orders@4")
	if got := n.hub.answer(t, "r4"); !strings.Contains(got, "publish that one first") {
		t.Error(got)
	}
	n.restart("orders", "bills")
	n.expect(n.ask("orders.eu", "d", "Id: p-4", "After: p-3"), "orders@5")
	n.expect(n.ask("orders.eu", "d", "Id: p-4", "After: gone"), "orders@5 again")
	if got := n.service.Stats().Refused["condition"]; got != 0 {
		t.Errorf("%d", got)
	}
	if got := n.ask("bills.eu", "b", "After: p-1"); !strings.Contains(got, "no deduplication window") {
		t.Error(got)
	}
}

// TestRecordsOfOneMessageAreKeptAllOrNone: after a power cut at any moment, either all records of a
// message are kept or none.
func TestRecordsOfOneMessageAreKeptAllOrNone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		n := newSite(t)
		n.serve("orders")
		n.expect(n.ask("orders.eu", prefixed(numbered(40)...), "Records: 40"), "orders@40/40")
		release := hold(n)
		for range 5 {
			n.hub.publish(message("orders.eu", "", prefixed(numbered(40)...), "Records: 40"))
		}
		crashed := n.fs.(*crashfs.FS).Crash(rand.New(rand.NewPCG(seed, 0)))
		release()
		n.stop()
		n.fs = crashed
		n.restart("orders")
		if got := len(n.read("orders")); got < 40 || got%40 != 0 {
			t.Errorf("seed %d: %d records are there", seed, got)
		}
	}
}

func TestRecordsThatCanNotBeKeptAreRefusedOnce(t *testing.T) {
	n := newSite(t)
	n.serve("orders")
	n.ask("orders.eu", "first")
	n.fs.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == "sync" || op.Kind == "syncall" {
			return fmt.Errorf("the disk is broken")
		}
		return nil
	})
	if got := n.ask("orders.eu", prefixed(numbered(40)...), "Records: 40"); !strings.HasPrefix(got, "no: ") {
		t.Error(got)
	}
	if got := n.ask("orders.eu", prefixed(numbered(40)...), "Records: 40"); !strings.HasPrefix(got, "no: ") {
		t.Error(got)
	}
	sum := uint64(0)
	for _, count := range n.service.Stats().Refused {
		sum += count
	}
	if sum != 2 {
		t.Errorf("%d messages are counted as refused", sum)
	}
}
