package counting

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// plain is a Codec whose records have their total as payload.
type plain struct{}

func (plain) Counter(header, payload []byte) (total, sources []byte, ok bool) {
	return payload, header, len(payload) > 0 && payload[0] != 'x'
}
func (plain) CounterSource(sources []byte, _, subject, total string) (updated []byte, before string, ok bool) {
	of, before, _ := strings.Cut(string(sources), "=")
	if of != subject {
		before = ""
	}
	return []byte(subject + "=" + total), before, !strings.HasPrefix(of, "x")
}
func (plain) AppendCounter(dst, header []byte, total, _ string, sources []byte) ([]byte, int) {
	if len(sources) > 0 {
		header = sources
	}
	return append(append(dst, header...), total...), len(header)
}
func (plain) Part([]byte) (p publish.Part, ok bool)                     { return p, false }
func (plain) AppendCommit(dst, _ []byte) []byte                         { return dst }
func (plain) Conditions([]byte) (c publish.Conditions, _ error)         { return c, nil }
func (plain) AppendAck(dst []byte, _ string, _ publish.Ack) []byte      { return dst }
func (plain) AppendMarker(dst []byte, _ time.Duration, _ uint64) []byte { return dst }
func (plain) AppendRefusal(dst []byte, _ string, _ error) []byte        { return dst }

// ledger is a log with a record for each of some totals, and the Totals of it.
type ledger struct {
	*Totals
	t     *testing.T
	set   *Counters
	found chan struct{}
}

func newLedger(t *testing.T, totals ...string) *ledger {
	d, err := log.OpenDisk(crashfs.New(), "data", log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := d.Open(log.Identity{Topic: "orders"}, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	var records []log.Record
	for _, total := range totals {
		records = append(records, log.Record{Subject: []byte("orders.a"), Data: []byte(total)})
	}
	if _, err := data.Append(&log.Append{Epoch: 1, Records: records, Durability: log.Memory}); err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, set: New(plain{}), found: make(chan struct{}, 1000)}
	l.Totals = l.set.Of(data, func(err error) error { return err }, func() { l.found <- struct{}{} })
	t.Cleanup(func() {
		l.Close()
		l.set.Close()
		_ = d.Close()
		if held := l.set.held.Load(); held != 0 {
			t.Errorf("%d bytes are held at the end", held)
		}
	})
	return l
}

// at returns the total of a record, or why there is none.
func (l *ledger) at(offset uint64) string {
	for {
		total, wait, err := l.At(offset)
		switch {
		case err != nil:
			return err.Error()
		case !wait:
			return total.Value
		}
		<-l.found
	}
}

func (l *ledger) expect(offset uint64, want string) {
	l.t.Helper()
	if got := l.at(offset); got != want {
		l.t.Errorf("at %d: %q, want %q", offset, got, want)
	}
}

// TestTotalsAreReadOrRemembered: what was added is known at once; anything else is read.
func TestTotalsAreReadOrRemembered(t *testing.T) {
	l := newLedger(t, "1", "x", strings.Repeat("9", maxDigits+1), "4")
	l.expect(0, "")
	l.expect(1, "1")
	l.expect(2, "topic : the last message of the subject has no total (delete it)")
	l.expect(3, "topic : the last message of the subject has no total (delete it)")
	l.expect(4, "4")
	l.Add(5, 4, Total{Value: "5"})
	l.expect(5, "5")
	l.Add(6, 5, Total{Value: "6"})
	if _, ok := l.known[5]; ok {
		t.Error("the total before is remembered")
	}
	if l.Forget() {
		t.Error("what may not be in the log is forgotten")
	}
	l.expect(6, "6")
	l.Appended()
	if len(l.known) > 0 {
		t.Error("nothing is forgotten")
	}
	l.expect(4, "4")
	l.Add(5, 4, Total{Value: "7"})
	l.Undo()
	if _, wait, _ := l.At(5); !wait {
		t.Error("a total that was undone is known")
	}
	if total, wait, err := l.At(4); total.Value != "4" || wait || err != nil {
		t.Errorf("the total before it is %q, %v, %v", total.Value, wait, err)
	}
	<-l.found
	if err := l.at(5); !strings.Contains(err, "offset") && err != errGone.Error() {
		t.Error(err)
	}
}

// TestTotalsAreBounded: shards forget, the largest first, and what they forgot is read.
func TestTotalsAreBounded(t *testing.T) {
	l := newLedger(t, "1")
	small := l.set.Of(l.data, nil, nil)
	defer small.Close()
	small.Add(1, 0, Total{Value: "1"})
	small.Appended()
	value := strings.Repeat("9", maxDigits)
	for i := range maxHeld/maxDigits + 1 {
		l.Add(uint64(i+2), 0, Total{Value: value})
		if i%1000 == 0 {
			l.Appended()
		}
	}
	l.Appended()
	if held := l.set.held.Load(); held > maxHeld || len(small.known) != 1 {
		t.Errorf("%d bytes are held, %d totals of the small one", held, len(small.known))
	}
	l.expect(1, "1")
}

// TestSums: numbers of any size and sign.
func TestSums(t *testing.T) {
	for _, test := range [][3]string{
		{"", "1", "1"}, {"", "-0", "0"}, {"41", "+1", "42"}, {"1", "-3", "-2"}, {"007", "1", "8"},
		{"18446744073709551615", "1", "18446744073709551616"},
	} {
		if sum, ok := (Total{Value: test[0]}).Sum([]byte(test[1])); sum != test[2] || !ok {
			t.Errorf("%s and %s are %s", test[0], test[1], sum)
		}
	}
	if _, ok := (Total{Value: strings.Repeat("9", maxDigits)}).Sum([]byte("1")); ok {
		t.Error("a total has too many digits")
	}
}

// TestWhatIsNoIncrement: is told by its fault.
func TestWhatIsNoIncrement(t *testing.T) {
	one := []byte("1")
	for name, test := range map[string]struct {
		counts bool
		data   string
		c      publish.Conditions
		want   string
	}{
		"a message":             {false, "x", publish.Conditions{}, "<nil>"},
		"an increment":          {true, "", publish.Conditions{Increment: one, ID: one}, "<nil>"},
		"of no counter":         {false, "", publish.Conditions{Increment: one}, "topic orders: it has no counters"},
		"none":                  {true, "", publish.Conditions{}, "topic orders: it has counters only, and the message has no increment"},
		"with a payload":        {true, "x", publish.Conditions{Increment: one}, "topic orders: an increment has no payload"},
		"with a condition":      {true, "", publish.Conditions{Increment: one, ExpectsLast: true}, "topic orders: the increment is invalid"},
		"with too many digits":  {true, "", publish.Conditions{Increment: []byte(strings.Repeat("1", maxDigits+1))}, "topic orders: the increment is invalid"},
		"copied with a payload": {true, "x", publish.Conditions{Increment: one, Rollup: publish.RollupSubject}, "<nil>"},
		"copied without one":    {true, "x", publish.Conditions{}, "topic orders: it has counters only, and the message has no increment"},
		"copied to no counter":  {false, "x", publish.Conditions{Increment: one}, "<nil>"},
		"that carries records":  {true, "", publish.Conditions{Increment: one, Records: 1}, "topic orders: the increment is invalid"},
		"that removes messages": {true, "", publish.Conditions{Increment: one, Rollup: publish.RollupSubject}, "topic orders: the increment is invalid"},
	} {
		if got := fmt.Sprint(Refusal("orders", test.counts, strings.HasPrefix(name, "copied"), &protocol.Message{Data: []byte(test.data)}, &test.c)); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestACopyAddsWhatChangedAtItsOrigin: since the last copy, whatever lies between.
func TestACopyAddsWhatChangedAtItsOrigin(t *testing.T) {
	l := newLedger(t, "10")
	from := &Origin{Stream: "s", Subject: "a"}
	total, offset := "10", uint64(1)
	l.expect(1, "10")
	for _, test := range []struct{ there, here string }{{"5", "15"}, {"7", "17"}, {"7", "17"}, {"+08", "18"}, {"2", "12"}, {"-3", "7"}} {
		m := &protocol.Message{Data: []byte(test.there)}
		r, wait, err := l.Count("orders", m, []byte("1"), from, offset, 0)
		if wait || err != nil || r.Total.Value != test.here {
			t.Fatalf("%s there: %q, %v, %v, want %s", test.there, r.Total.Value, wait, err, test.here)
		}
		offset++
		l.Add(offset, r.Before, r.Total)
		total = r.Total.Value
	}
	r, _, err := l.Count("orders", &protocol.Message{}, []byte("1"), nil, offset, 0)
	if err != nil || r.Total.Value != "8" || string(r.Total.Sources) != "a=-3" {
		t.Errorf("behind %s: %+v, %v", total, r.Total, err)
	}
	for _, refused := range []string{"x", "", strings.Repeat("9", maxDigits+1)} {
		if _, _, err := l.Count("orders", &protocol.Message{Data: []byte(refused)}, []byte("1"), from, offset, 0); err == nil {
			t.Errorf("a total of %.10q is copied", refused)
		}
	}
	from.Subject = strings.Repeat("a", maxSources)
	if _, _, err := l.Count("orders", &protocol.Message{Data: []byte("1")}, []byte("1"), from, offset, 0); err == nil || !strings.Contains(err.Error(), "let fewer streams") {
		t.Errorf("too much about other streams: %v", err)
	}
	l.Undo()
}
