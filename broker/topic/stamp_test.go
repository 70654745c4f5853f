package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/stamping"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// haveAttributes has all brokers keep attributes of subjects, from the next tell on.
func (n *site) haveAttributes() {
	for i := range n.brokers {
		n.brokers[i].Features = coordination.Features()
	}
	n.tell()
}

// attribute sets the attributes of a subject, as a watch or a link would. Empty: it has none.
func (n *site) attribute(subject, text string) {
	n.revision++
	if text == "" {
		n.attributes.Delete(subject, n.revision)
	} else {
		n.attributes.Put(attribute.Entry{Subject: subject, Revision: n.revision, Text: text, Bytes: len(text)})
	}
}

// stamps returns what records of a Topic were stored with: "offset subject attributes".
func (n *site) stamps(name string) (out []string) {
	n.t.Helper()
	leader := n.leaderOf(name)
	start, end := leader.Offsets()
	_, err := leader.Scan(start, end, 1<<30, func(r *log.Record) bool {
		out = append(out, fmt.Sprintf("%d %s %s", r.Offset, r.Subject, r.Stamp))
		return true
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// extended returns how many batches of a Topic have stamps.
func (n *site) extended(name string) (with, batches int) {
	n.t.Helper()
	leader := n.leaderOf(name)
	start, end := leader.Offsets()
	for c := leader.NewCursor(start); c.Next() < end; {
		v, err := c.Read(1 << 20)
		if err != nil {
			n.t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			batches++
			for it := b.Extensions(); ; {
				e, ok := it.Next()
				if !ok {
					break
				}
				if e.Type == stamping.ExtensionType {
					with++
				}
			}
		}
		v.Release()
	}
	return with, batches
}

func (n *site) expectStamps(want ...string) {
	n.t.Helper()
	if got := n.stamps("orders"); !slices.Equal(got, want) {
		n.t.Fatalf("stored are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRecordsAreStoredWithTheAttributesOfTheirSubject: those when they were published, whatever
// becomes of these, and for the next leader.
func TestRecordsAreStoredWithTheAttributesOfTheirSubject(t *testing.T) {
	n := newSite(t)
	n.attributes = attribute.NewStore()
	n.serve("orders")
	n.haveAttributes()
	n.ask("orders.eu", "before")
	n.attribute("orders.eu", `{"room":"1"}`)
	n.attribute("orders.us", `{"room":"2"}`)
	n.hub.publish(message("orders.eu", "a1", "a"), message("orders.eu", "a2", "b"), message("orders.us", "a3", "c"), message("orders.cn", "a4", "d"), message("orders.eu", "a5", "e"))
	n.hub.answer(t, "a5")
	n.attribute("orders.eu", `{"room":"3"}`)
	n.ask("orders.eu", prefixed("f", "g", "h"), "Records: 3")
	n.attribute("orders.eu", "")
	n.ask("orders.eu", "i")
	want := []string{
		"1 orders.eu ", `2 orders.eu {"room":"1"}`, `3 orders.eu {"room":"1"}`, `4 orders.us {"room":"2"}`, "5 orders.cn ", `6 orders.eu {"room":"1"}`,
		`7 orders.eu {"room":"3"}`, `8 orders.eu {"room":"3"}`, `9 orders.eu {"room":"3"}`, "10 orders.eu ",
	}
	n.expectStamps(want...)
	n.crash()
	n.attributes = attribute.NewStore()
	n.attribute("orders.eu", `{"room":"9"}`)
	n.serve("orders")
	n.expectStamps(want...)
}

// TestAtomicBatchesAreStoredWithAttributes: of all their messages.
func TestAtomicBatchesAreStoredWithAttributes(t *testing.T) {
	n := newSite(t)
	n.attributes = attribute.NewStore()
	n.topic("orders", func(s *coordination.TopicSpec) { s.Stream.AllowAtomic = true })
	n.serve("orders")
	n.haveAttributes()
	n.attribute("orders.eu", `{"room":"1"}`)
	n.batch("x", "orders.us a", "orders.eu b", "orders.eu c")
	n.expectStamps("1 orders.us ", `2 orders.eu {"room":"1"}`, `3 orders.eu {"room":"1"}`)
}

// TestAttributesAreStoredOnceAllBrokersKeepThem: an earlier version would lose them.
func TestAttributesAreStoredOnceAllBrokersKeepThem(t *testing.T) {
	n := newSite(t)
	n.attributes = attribute.NewStore()
	n.serve("orders")
	n.attribute("orders.eu", `{"room":"1"}`)
	n.brokers[0].Features = coordination.Features()
	n.tell()
	n.ask("orders.eu", "a")
	n.haveAttributes()
	n.ask("orders.eu", "b")
	n.expectStamps("1 orders.eu ", `2 orders.eu {"room":"1"}`)
}

// TestSubjectsWithoutAttributesCostNothingInTheLog: not a byte, although others have some.
func TestSubjectsWithoutAttributesCostNothingInTheLog(t *testing.T) {
	n := newSite(t)
	n.attributes = attribute.NewStore()
	n.serve("orders")
	n.haveAttributes()
	n.attribute("orders.us", `{"room":"1"}`)
	n.ask("orders.eu", "a")
	if with, batches := n.extended("orders"); with != 0 || batches != 1 {
		t.Errorf("%d of %d batches have stamps", with, batches)
	}
	n.ask("orders.us", "b")
	if with, batches := n.extended("orders"); with != 1 || batches != 2 {
		t.Errorf("%d of %d batches have stamps, want the second one", with, batches)
	}
}

// TestLargeAttributesDivideBatches: a batch stays small with the largest attributes of as many
// subjects as it has records.
func TestLargeAttributesDivideBatches(t *testing.T) {
	n := newSite(t)
	n.attributes = attribute.NewStore()
	n.options = log.Options{}
	n.serve("orders")
	n.haveAttributes()
	var messages []protocol.Message
	for i := range 1000 {
		subject := fmt.Sprintf("orders.%d", i)
		n.attribute(subject, fmt.Sprintf(`{"a":"%04d%s"}`, i, strings.Repeat("x", attribute.MaxBytes-12)))
		messages = append(messages, message(subject, fmt.Sprint("r", i), "x"))
	}
	n.hub.publish(messages...)
	for i := range messages {
		n.hub.answer(t, fmt.Sprint("r", i))
	}
	leader := n.leaderOf("orders")
	for c := leader.NewCursor(1); c.Next() < 1001; {
		v, err := c.Read(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if len(b) > batchBytes+batchBytes/8 {
				t.Fatalf("a batch of %d records has %d bytes", b.Count(), len(b))
			}
		}
		v.Release()
	}
	for i, line := range n.stamps("orders") {
		if want := fmt.Sprintf(`%d orders.%d {"a":"%04dx`, i+1, i, i); !strings.HasPrefix(line, want) {
			t.Fatalf("%.60s, want %s", line, want)
		}
	}
}

// TestAFloodOfChangesKeepsNoMemory: leaders hold no attributes beyond a batch.
func TestAFloodOfChangesKeepsNoMemory(t *testing.T) {
	var in intake
	s := &Service{config: Config{Attributes: attribute.NewStore()}}
	s.stamps.Store(true)
	n := &site{attributes: s.config.Attributes}
	for i := range 100 {
		in.records = in.records[:0]
		for k := range batchRecords {
			if k%64 == 0 {
				n.attribute(fmt.Sprintf("orders.%d", k), fmt.Sprintf(`{"n":%d}`, i*batchRecords+k))
			}
			in.records = append(in.records, log.Record{Subject: fmt.Appendf(nil, "orders.%d", k-k%64)})
		}
		in.beginStamps(s, 1)
		in.stamp(1)
		in.extensions = in.extensions[:0]
		if in.addStamps() == 0 {
			t.Fatal("there are no stamps")
		}
	}
	size := cap(in.stamps.Data())
	if in.stamps.Drop(); size > batchRecords*64 {
		t.Errorf("%d bytes are kept", size)
	}
}

// TestLookingForAttributesAllocatesNothing: whether there are some or not.
func TestLookingForAttributesAllocatesNothing(t *testing.T) {
	s := &Service{config: Config{Attributes: attribute.NewStore()}}
	s.stamps.Store(true)
	n := &site{attributes: s.config.Attributes}
	for what, set := range map[string]func(){
		"none":         func() {},
		"another's":    func() { n.attribute("orders.us", `{"room":"1"}`) },
		"its own, too": func() { n.attribute("orders.eu", `{"room":"1"}`) },
	} {
		set()
		in := intake{records: make([]log.Record, 0, 16), extensions: make([]log.Extension, 0, 4)}
		on := [][]byte{[]byte("orders.eu"), []byte("orders.us"), []byte("orders.cn")}
		batch := func() {
			in.beginStamps(s, 1)
			in.records, in.extensions = in.records[:0], in.extensions[:0]
			for i := range 12 {
				in.records = append(in.records, log.Record{Subject: on[i/2%3]})
				in.stamp(1)
			}
			in.addStamps()
		}
		batch()
		if got := testutil.LeastAllocs(100, 0, batch); got > 0 {
			t.Errorf("%s: %v allocations", what, got)
		}
	}
}

// TestCopiesHaveTheAttributesOfTheirOrigin: whatever the subject has when they are copied. If the
// origin's broker says nothing of them, they have those of their subject then.
func TestCopiesHaveTheAttributesOfTheirOrigin(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			n := newSite(t)
			n.attributes = attribute.NewStore()
			n.copying(nil)
			n.serve("orders")
			n.haveAttributes()
			n.attribute("bills.x", `{"now":1}`)
			b := copied(1, 4)
			want := []string{`1 bills.x {"now":1}`, `2 bills.x {"now":1}`, `3 bills.x {"now":1}`, `4 bills.x {"now":1}`}
			if known {
				b.Stamps = [][]byte{[]byte(`{"then":1}`), nil, []byte(`{"then":2}`), []byte(`{"then":2}`)}
				want = []string{`1 bills.x {"then":1}`, "2 bills.x ", `3 bills.x {"then":2}`, `4 bills.x {"then":2}`}
			}
			n.take(b)
			n.eventually("the copies are read", func() bool { return len(n.stamps("orders")) == len(want) })
			n.expectStamps(want...)
			if known { // also while no subject has any
				n.attribute("bills.x", "")
				b = copied(5, 5)
				b.Stamps = [][]byte{[]byte(`{"then":3}`)}
				n.take(b)
				n.eventually("the copy is read", func() bool { return len(n.stamps("orders")) > len(want) })
				n.expectStamps(append(want, `5 bills.x {"then":3}`)...)
			}
		})
	}
}
