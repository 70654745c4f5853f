package sourcing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/removal"
)

// stream is an Origin in memory. A record without a subject was removed.
type stream struct {
	subjects []string // of the records from offset 1 on
	start    uint64
	scanned  int
	epochs   []epoch // none: all of epoch 1
}

func (o *stream) EpochAt(offset uint64) (at, until uint64) {
	at, until = 1, uint64(len(o.subjects))+1
	for _, e := range o.epochs {
		if e.From > offset {
			return at, e.From
		}
		at = e.Epoch
	}
	return at, until
}

// lose has the stream lose what it has from an offset on, and get other records there, of an epoch.
func (o *stream) lose(from uint64, epochOf uint64, subjects ...string) {
	o.subjects = append(o.subjects[:from-1:from-1], subjects...)
	o.epochs = append(slices.DeleteFunc(o.epochs, func(e epoch) bool { return e.From >= from }), epoch{from, epochOf})
}

func (o *stream) Offsets() (start, end uint64) {
	return max(o.start, 1), uint64(len(o.subjects)) + 1
}

func (o *stream) Scan(from, end uint64, budget int64, f func(r *log.Record) bool) (done bool, err error) {
	for at := from; at < end; at++ {
		o.scanned++
		if budget -= 1 << 20; budget < 0 {
			return false, nil
		}
		name := o.subjects[at-1]
		if name == "" {
			continue
		}
		if !f(&log.Record{Offset: at, Time: int64(at) * 1e9, Subject: []byte(name), Data: fmt.Append(nil, at)}) {
			return false, nil
		}
	}
	return true, nil
}

func (o *stream) Messages(start, end uint64) (n uint64) {
	for at := start; at < end; at++ {
		if o.subjects[at-1] != "" {
			n++
		}
	}
	return n
}

func (o *stream) Watch(func()) (stop func()) { return func() {} }

// all has a fetcher copy a stream, and returns the sequences that it has stored. The shard takes at
// most some of each answer; then it is asked again, as after a failure.
func all(t *testing.T, f *fetcher, o *stream, come *removal.Source, some int) (stored []uint64) {
	t.Helper()
	for range 1000 {
		q := f.ask(*come, "id")
		q.Bytes, q.Exact = 150, some > 1
		a, err := parseAnswer(read(o, &q, 1<<20).encode())
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.answered(a)
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			if !a.More && a.Diverged == 0 {
				return stored
			}
			continue
		}
		taken := b.Sequences[:min(some, len(b.Sequences))]
		stored = append(stored, taken...)
		*come = removal.Source{Key: f.key, Sequence: taken[len(taken)-1], Origin: "id"}
		if f.epochs {
			come.Epoch = b.Epochs[len(taken)-1]
		}
		if len(taken) == len(b.Sequences) {
			f.taken(a)
		} else {
			f.failed(errors.New("the shard is full"), 0)
		}
	}
	t.Fatal("it does not come to an end")
	return nil
}

func TestEachMatchingRecordIsCopiedOnceInOrder(t *testing.T) {
	o := &stream{}
	for i := range 300 {
		o.subjects = append(o.subjects, []string{"a.x", "b", "", "a.y", "b", "b"}[i%6])
	}
	for _, test := range []struct {
		source coordination.StreamSource
		want   func(at uint64, name string) bool
	}{
		{coordination.StreamSource{}, func(uint64, string) bool { return true }},
		{coordination.StreamSource{Filter: "a.*"}, func(_ uint64, name string) bool { return name[0] == 'a' }},
		{coordination.StreamSource{Filter: "none"}, func(uint64, string) bool { return false }},
		{coordination.StreamSource{StartSequence: 100}, func(at uint64, _ string) bool { return at >= 100 }},
		{coordination.StreamSource{StartTime: time.Unix(200, 0)}, func(at uint64, _ string) bool { return at >= 200 }},
		{coordination.StreamSource{StartTime: time.Unix(200, 0), Filter: "a.x"}, func(at uint64, name string) bool { return at >= 200 && name == "a.x" }},
		{coordination.StreamSource{Transforms: []coordination.SubjectMapping{{Source: "a.x", Destination: "z"}, {Source: "b"}}}, func(_ uint64, name string) bool { return name != "a.y" }},
	} {
		var want []uint64
		for i, name := range o.subjects {
			if name != "" && test.want(uint64(i+1), name) {
				want = append(want, uint64(i+1))
			}
		}
		for _, some := range []int{1, 2, 1000} {
			var come removal.Source
			if got := all(t, newFetcher(test.source), o, &come, some); !slices.Equal(got, want) {
				t.Errorf("%+v, by %d: copied %v, want %v", test.source, some, got, want)
			}
			if got := all(t, newFetcher(test.source), o, &come, some); len(got) > 0 && len(want) > 0 {
				t.Errorf("%+v: the next leader copies %v again", test.source, got)
			}
		}
	}
}

func TestRecordsThatDoNotMatchAreNotReadAgain(t *testing.T) {
	o := &stream{subjects: slices.Repeat([]string{"b"}, 100)}
	f, come := newFetcher(coordination.StreamSource{Filter: "a"}), removal.Source{}
	all(t, f, o, &come, 1)
	before := o.scanned
	if all(t, f, o, &come, 1); o.scanned > before {
		t.Errorf("%d records were read again", o.scanned-before)
	}
}

func TestAStreamThatIsMadeAnewIsCopiedFromItsStart(t *testing.T) {
	f := newFetcher(coordination.StreamSource{Name: "bills"})
	come := removal.Source{Key: f.key, Sequence: 70, Origin: "former"}
	if q := f.ask(come, "former"); q.Next != 71 {
		t.Errorf("it goes on with %d", q.Next)
	}
	f.taken(&answer{Next: 90})
	if q := f.ask(come, "former"); q.Next != 90 {
		t.Errorf("it goes on with %d", q.Next)
	}
	if q := f.ask(come, "latter"); q.Next != 0 {
		t.Errorf("of the new one it asks for %d", q.Next)
	}
	f = newFetcher(coordination.StreamSource{Name: "bills", StartSequence: 5})
	if q := f.ask(come, "latter"); q.Next != 5 {
		t.Errorf("of the new one it asks for %d", q.Next)
	}
}

func TestPausesDouble(t *testing.T) {
	f := newFetcher(coordination.StreamSource{})
	failed := errors.New("no")
	for _, want := range []time.Duration{firstRest, 2 * firstRest, 4 * firstRest} {
		if got := f.failed(failed, 0); got != want {
			t.Errorf("the pause is %v, want %v", got, want)
		}
	}
	for range 100 {
		f.failed(failed, 0)
	}
	if got := f.failed(failed, 1); got != longestRest/2 {
		t.Errorf("the pause is %v in the end", got)
	}
	if f.taken(&answer{}); f.failed(failed, 0) != firstRest {
		t.Error("a success does not count")
	}
}

func TestTheHeaderOfACopy(t *testing.T) {
	for _, test := range []struct{ header, want string }{
		{"", "NATS/1.0\r\nNats-Stream-Source: s 7 f d sub id\r\n\r\n"},
		{"NATS/1.0\r\nA: 1\r\n\r\n", "NATS/1.0\r\nA: 1\r\nNats-Stream-Source: s 7 f d sub id\r\n\r\n"},
		{
			"NATS/1.0\r\nNats-Expected-Stream: x\r\nnats-batch-id: 1\r\nNats-Stream-Source: x 1 > > y\r\nNats-Msg-Id: 1\r\nB: 2\r\n\r\n",
			"NATS/1.0\r\nNats-Msg-Id: 1\r\nB: 2\r\nNats-Stream-Source: s 7 f d sub id\r\n\r\n",
		},
	} {
		m := protocol.Message{Subject: []byte("sub"), Header: len(test.header), Data: []byte(test.header + "payload")}
		data, header := copied(&m, "s f d", 7, "id")
		if got := string(data[:header]); got != test.want || string(data[header:]) != "payload" {
			t.Errorf("of %q: %q, then %q", test.header, got, data[header:])
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	a := answer{Number: 3, Next: 9}
	for i := range 3 {
		a.records = appendRecord(a.records, &log.Record{Offset: uint64(i), Subject: []byte("a"), Header: 1, Data: []byte("data")})
	}
	whole := a.encode()
	for n := range whole {
		got, err := parseAnswer(whole[:n])
		if err == nil {
			records := 0
			err = got.each(func(*log.Record) { records++ })
			if err == nil && records == 3 {
				t.Errorf("%d of %d bytes are an answer", n, len(whole))
			}
		}
		if err != nil && !strings.Contains(err.Error(), "malformed") {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

// TestOnlyFormerSourcesAreForgotten: a batch knows which sources its shard has.
func TestOnlyFormerSourcesAreForgotten(t *testing.T) {
	bills, orders := coordination.StreamSource{Name: "bills"}, coordination.StreamSource{Name: "orders"}
	b := &Batch{Of: bills}
	if !b.OneOf([]coordination.StreamSource{orders, bills}) {
		t.Error("it is of no source")
	}
	for _, test := range []struct {
		source coordination.StreamSource
		want   bool
	}{{bills, true}, {orders, true}, {coordination.StreamSource{Name: "bills", Filter: "a"}, false}} {
		if got := b.Configured(removal.KeyOf(test.source.Index())); got != test.want {
			t.Errorf("%+v is configured: %v", test.source, got)
		}
	}
}

// TestTheNewRecordsOfAStreamThatLostItsEndAreCopied: all from where its log became another one,
// also when it has got beyond what was copied before it is looked at again, and by each leader.
func TestTheNewRecordsOfAStreamThatLostItsEndAreCopied(t *testing.T) {
	a := func(n int) []string { return slices.Repeat([]string{"a"}, n) }
	for _, some := range []int{1, 2, 1000} {
		for _, again := range []bool{false, true} {
			o := &stream{subjects: a(10)}
			var come removal.Source
			f := newFetcher(coordination.StreamSource{})
			next := func(when string, want ...uint64) {
				t.Helper()
				if again { // another leader
					f = newFetcher(coordination.StreamSource{})
				}
				f.epochs = true
				if got := all(t, f, o, &come, some); !slices.Equal(got, want) {
					t.Errorf("%s: copied %v, want %v", when, got, want)
				}
			}
			next("at first", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
			o.lose(8, 3, a(1)...)
			next("it ends before what was copied", 8)
			if f.loss() == nil || come.Epoch != 3 {
				t.Errorf("it says nothing, and has come to %+v", come)
			}
			o.lose(6, 4, a(20)...)
			next("it has got beyond", 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
			o.lose(1, 5, a(2)...)
			next("it has lost everything", 1, 2)
			o.lose(3, 6, a(2)...)
			next("another leader goes on", 3, 4)
			if again && f.loss() != nil {
				t.Error(f.loss())
			}
			o.lose(2, 7, a(9)...)
			o.start = 5
			next("the first ones are gone", 5, 6, 7, 8, 9, 10)
		}
	}
}

// TestRecordsThatDoNotMatchAreLookedAtAgainIfTheyAreOthers: nothing of the end was copied.
func TestRecordsThatDoNotMatchAreLookedAtAgainIfTheyAreOthers(t *testing.T) {
	o := &stream{subjects: slices.Concat([]string{"a", "a"}, slices.Repeat([]string{"b"}, 5))}
	f, come := newFetcher(coordination.StreamSource{Filter: "a"}), removal.Source{}
	f.epochs = true
	all(t, f, o, &come, 10)
	o.lose(4, 2, slices.Repeat([]string{"a"}, 6)...)
	if got := all(t, f, o, &come, 10); !slices.Equal(got, []uint64{4, 5, 6, 7, 8, 9}) || f.loss() != nil {
		t.Errorf("copied %v, %v", got, f.loss())
	}
}

// TestAnOriginWithoutEpochs: a progress or an origin of an earlier version has none. What is known
// is the sequence.
func TestAnOriginWithoutEpochs(t *testing.T) {
	o := &stream{subjects: slices.Repeat([]string{"a"}, 10)}
	f, come := newFetcher(coordination.StreamSource{}), removal.Source{}
	all(t, f, o, &come, 100)
	if come.Epoch != 0 {
		t.Errorf("it has come to %+v although not all brokers know epochs", come)
	}
	o.lose(5, 2, slices.Repeat([]string{"a"}, 10)...)
	f = newFetcher(coordination.StreamSource{})
	f.epochs = true
	if got := all(t, f, o, &come, 100); !slices.Equal(got, []uint64{11, 12, 13, 14}) || come.Epoch != 2 {
		t.Errorf("copied %v, and has come to %+v", got, come)
	}
	o.lose(13, 3, "a")
	if got := all(t, f, o, &come, 100); !slices.Equal(got, []uint64{13}) {
		t.Errorf("copied %v", got)
	}
	f = newFetcher(coordination.StreamSource{Mirrored: true})
	f.epochs, f.next, f.epoch = true, 9, 1
	if q := f.ask(removal.Source{Sequence: 5, Origin: "id"}, "id"); q.LastEpoch != 0 {
		t.Error("the offsets of a mirror would move back")
	}
}

// TestAnswersHaveFewEpochs: they are in the head.
func TestAnswersHaveFewEpochs(t *testing.T) {
	o := &stream{}
	for i := range 1000 {
		o.subjects, o.epochs = append(o.subjects, "a"), append(o.epochs, epoch{uint64(i + 1), 1<<63 + uint64(i)})
	}
	q := question{Origin: "id", Bytes: 1 << 20, Exact: true}
	a := read(o, &q, 1<<20)
	if size := len(a.encode()) - len(a.records); !a.More || a.Next < 10 || size > headBytes {
		t.Errorf("up to %d, with %d bytes beside records", a.Next, size)
	}
	f, come := newFetcher(coordination.StreamSource{}), removal.Source{}
	f.epochs = true
	if got := all(t, f, o, &come, 100); len(got) != 1000 || come.Epoch != 1<<63+999 {
		t.Errorf("%d are copied, up to %+v", len(got), come)
	}
}
