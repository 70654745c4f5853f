package view

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
)

// counting is a view of the number of messages by key and second.
func counting() Spec {
	return Spec{By: "json.k", Window: Window{Tumbling: time.Second, Time: "json.t"}, Values: map[string]string{"n": "count()"}}
}

// at is a record of the key whose time is so many seconds after 1970, and that is stored then.
func at(seconds float64, key string) *filter.Record {
	return &filter.Record{Subject: []byte("s"), Time: int64(seconds * 1e9), Data: fmt.Appendf(nil, `{"t":%g,"k":%q}`, seconds, key)}
}

func add(t testing.TB, s *Shard, records ...*filter.Record) {
	t.Helper()
	for _, r := range records {
		if err := s.Add(s.Next(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func owner(t testing.TB, v *View, shards ...uint32) *Owner {
	t.Helper()
	o, err := v.NewOwner(shards)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func take(t testing.TB, o *Owner, shard uint32, s *Shard) {
	t.Helper()
	b, err := s.HandOver(o.Wanted(shard))
	if err == nil {
		err = o.Take(shard, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	begins(t, o)
}

// begins has an owner of empty outputs begin, once it can.
func begins(t testing.TB, o *Owner) {
	t.Helper()
	if o.Heard() && !o.begun {
		if err := o.Begin(nil); err != nil {
			t.Fatal(err)
		}
	}
}

func acked(t testing.TB, o *Owner, shard uint32, s *Shard) {
	t.Helper()
	ack, ok := o.Ack(shard)
	if !ok {
		t.Fatal("no ack")
	}
	if err := s.Ack(ack); err != nil {
		t.Fatal(err)
	}
}

// closed returns the windows that an owner closes.
func closed(o *Owner) string {
	var all []string
	for _, r := range o.Close() {
		line := fmt.Sprintf("%g-%g", float64(r.Start)/1e9, float64(r.End)/1e9)
		for _, v := range append(r.Keys, r.Values...) {
			line += " " + v.String()
		}
		all = append(all, line)
	}
	return strings.Join(all, ", ")
}

func closes(t testing.TB, o *Owner, want string) {
	t.Helper()
	if got := closed(o); got != want {
		t.Errorf("closed: %s\nwant:   %s", got, want)
	}
}

// TestAWindowClosesAtItsEnd: not a nanosecond earlier, in all shards, and not later.
func TestAWindowClosesAtItsEnd(t *testing.T) {
	v := compiled(t, counting())
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	add(t, a, at(0.5, "x"), at(1, "x"))
	add(t, b, at(0.25, "x"), at(0.999999999, "x"))
	take(t, o, 0, a)
	closes(t, o, "")
	take(t, o, 1, b)
	closes(t, o, "")
	if err := b.Advance(b.Next(), 1e9); err != nil {
		t.Fatal(err)
	}
	take(t, o, 1, b)
	closes(t, o, "0-1 x 3")
	add(t, a, at(0.999999999, "x"))
	if c := a.Counts(); c.Late != 1 || c.Records != 3 {
		t.Errorf("%+v", c)
	}
	if o.Watermark() != 1e9+1 {
		t.Errorf("the watermark is %d", o.Watermark())
	}
}

// TestOffsetsAscend: with gaps, and without repetitions. An advance has its place.
func TestOffsetsAscend(t *testing.T) {
	s := compiled(t, counting()).NewShard()
	for offset, want := range []string{7: "", 8: "was added before", 9: "", 10: ""} {
		if offset < 7 {
			continue
		}
		if offset == 8 {
			offset = 7
		}
		if err := s.Add(uint64(offset), at(1, "x")); (err == nil) != (want == "") {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if s.Advance(10, 1) == nil || s.Advance(11, 1) != nil || s.Counts().Records != 3 {
		t.Errorf("%+v", s.Counts())
	}
}

// TestRecordsThatAreNotAddedAreCounted: each for its own reason. None makes others late.
func TestRecordsThatAreNotAddedAreCounted(t *testing.T) {
	spec := counting()
	spec.Filter = Filter{Subjects: []string{"s", "u.>"}, Where: "json.k != 'no'"}
	spec.Values["sum"] = "sum(json.n)"
	s := compiled(t, spec).NewShard()
	other := at(1, "x")
	other.Subject = []byte("t")
	ahead := at(4000, "x")
	ahead.Time = 1e9
	keyless := at(1, "x")
	keyless.Data = []byte(`{"t":1,"k":{}}`)
	add(t, s, at(1, "x"), other, at(1, "no"), ahead, keyless, &filter.Record{Subject: []byte("u.1"), Data: []byte("{")}, at(1.5, "x"))
	if got, want := s.Counts(), (Counts{Records: 4, Failed: 1, NoTime: 1, NoKey: 1, NoValue: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s.Watermark() != 1.5e9 {
		t.Errorf("the watermark is %d", s.Watermark())
	}
}

// TestAnIdleShardIsPassedOver: after the time, as far as a message may still be under way.
func TestAnIdleShardIsPassedOver(t *testing.T) {
	last := time.Unix(100, 0)
	v := compiled(t, hotRooms())
	if to, ok := v.IdleTo(last.Add(30*time.Second-1), last); ok {
		t.Errorf("advanced to %d", to)
	}
	if to, ok := v.IdleTo(last.Add(30*time.Second), last); !ok || to != 90e9 {
		t.Errorf("advanced to %d, %v", to, ok)
	}
	if _, ok := compiled(t, counting()).IdleTo(last.Add(time.Hour), last); ok {
		t.Error("a view without an idle time passes over a shard")
	}
}

// TestKeysBeyondTheBoundAreRefused: and counted, the same by a shard that was decoded, and whenever
// closed windows were moved. Others are counted on.
func TestKeysBeyondTheBoundAreRefused(t *testing.T) {
	v := compiled(t, counting())
	s := v.NewShard()
	for i := range maxOpen / 2 {
		add(t, s, at(0.5, fmt.Sprint(i)))
	}
	add(t, s, at(1.1, "x")) // the others are closed, and were not moved
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.DecodeShard(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxOpen {
		add(t, again, at(1.5, fmt.Sprint(i)))
	}
	add(t, again, at(1.6, "7"))
	if c := again.Counts(); c.Refused != 1 || c.Late != 0 || again.open.Len() != maxOpen {
		t.Errorf("%+v, %d windows are open", c, again.open.Len())
	}
}

// TestAShardPausesUntilItsWindowsAreAcknowledged: it adds nothing, and loses nothing.
func TestAShardPausesUntilItsWindowsAreAcknowledged(t *testing.T) {
	v := compiled(t, counting())
	s, o := v.NewShard(), owner(t, v, 0)
	n, results := 0, 0
	var err error
	for ; err == nil && n <= 2*maxHeld; n++ {
		err = s.Add(uint64(n), at(float64(n/1000), fmt.Sprint(n)))
	}
	if n--; err != ErrPaused || n != maxHeld || s.Next() != uint64(n) {
		t.Fatalf("after %d windows: %v", n, err)
	}
	if b, err := s.Encode(); err != nil {
		t.Fatal(err)
	} else if s, err = v.DecodeShard(b); err != nil || s.Add(uint64(n), at(90, "x")) != ErrPaused {
		t.Fatal(err)
	}
	o.most = 2 * maxHeld
	b, err := s.handOver(begin, 1<<30)
	if err == nil {
		err = o.Take(0, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	begins(t, o)
	results += len(o.Close())
	acked(t, o, 0, s)
	if results != maxHeld-1000 || s.Held() != 1000 {
		t.Errorf("%d results, and %d windows are held", results, s.Held())
	}
	add(t, s, at(90, "x"))
}

// TestALeaderThatReadsAgainForgetsWhatIsDone: an acknowledgement holds for windows that it closes
// later.
func TestALeaderThatReadsAgainForgetsWhatIsDone(t *testing.T) {
	v := compiled(t, counting())
	s, o := v.NewShard(), owner(t, v, 0)
	add(t, s, at(0, "x"), at(1, "x"), at(2, "x"))
	take(t, o, 0, s)
	closes(t, o, "0-1 x 1, 1-2 x 1")
	again := v.NewShard()
	acked(t, o, 0, again)
	add(t, again, at(0, "x"), at(1, "x"), at(2, "x"))
	take(t, o, 0, again)
	closes(t, o, "")
	if again.Held() != 1 {
		t.Errorf("%d windows are held", again.Held())
	}
	add(t, again, at(3, "x"))
	take(t, o, 0, again)
	closes(t, o, "2-3 x 1")
}

// TestAShardIsAheadByClosedWindowsThatAreNotAcknowledged: not by those that are open, nor by
// sessions that go on elsewhere. So is one that is restored.
func TestAShardIsAheadByClosedWindowsThatAreNotAcknowledged(t *testing.T) {
	spec := counting()
	spec.Window = Window{Session: time.Second, Time: "json.t"}
	v := compiled(t, spec)
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	add(t, a, at(0, "x"))
	if n := a.Ahead(); n != 0 {
		t.Errorf("with an open window it is ahead by %d bytes", n)
	}
	add(t, a, at(3, "y"), at(6, "z"))
	add(t, b, at(0.5, "x"), at(1.4, "x"), at(2.3, "x"), at(3.2, "x"), at(4.1, "x"))
	if n := a.Ahead(); n == 0 || n != a.closed.Size() || a.closed.Len() != 2 {
		t.Errorf("with %d closed windows it is ahead by %d bytes", a.closed.Len(), n)
	}
	take(t, o, 0, a)
	take(t, o, 1, b)
	closes(t, o, "3-4 y 1")
	acked(t, o, 0, a)
	if n := a.Ahead(); n != 0 || a.closed.Len() == 0 {
		t.Errorf("with %d sessions that go on it is ahead by %d bytes", a.closed.Len(), n)
	}
	add(t, a, at(9, "z"))
	encoded, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	restored, err := v.DecodeShard(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if n := restored.Ahead(); n == 0 || n != a.Ahead() {
		t.Errorf("restored it is ahead by %d bytes, and before by %d", n, a.Ahead())
	}
}

// TestASessionThatNeverEndsTakesOneWindow: what a shard and the owner hold of it is joined, while
// it goes on in another shard.
func TestASessionThatNeverEndsTakesOneWindow(t *testing.T) {
	spec := counting()
	spec.Window = Window{Session: time.Second, Time: "json.t"}
	v := compiled(t, spec)
	a, b, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	for i := range 100 {
		add(t, a, at(float64(3*i), "x"))
		for j := range 6 {
			add(t, b, at(float64(3*i)+float64(j)/2, "x"))
		}
		take(t, o, 0, a)
		take(t, o, 1, b)
		closes(t, o, "")
		acked(t, o, 0, a)
		acked(t, o, 1, b)
	}
	if a.Held() > 4 || b.Held() != 1 || o.pending.Len() != 1 {
		t.Errorf("%d and %d windows are held, and %d are pending", a.Held(), b.Held(), o.pending.Len())
	}
	next := owner(t, v, 0, 1) // with what the shards still hold
	for shard, s := range []*Shard{a, b} {
		if err := s.Advance(s.Next(), 500e9); err != nil {
			t.Fatal(err)
		}
		take(t, next, uint32(shard), s)
	}
	closes(t, next, "0-300.5 x 700")
}

// TestADamagedValueIsRefused: each flipped bit and each missing byte of a checkpoint, a hand-over
// and an acknowledgement.
func TestADamagedValueIsRefused(t *testing.T) {
	v := compiled(t, counting())
	for kind, b := range encodings(t, v) {
		if decode(v, kind, b) != nil {
			t.Fatalf("kind %x is refused", kind)
		}
		for i := range 8 * len(b) {
			damaged := bytes.Clone(b)
			damaged[i/8] ^= 1 << (i % 8)
			if decode(v, kind, damaged) == nil {
				t.Fatalf("kind %x: bit %d is flipped", kind, i)
			}
		}
		for n := range b {
			if decode(v, kind, b[:n]) == nil {
				t.Fatalf("kind %x: cut to %d bytes", kind, n)
			}
		}
	}
	if _, err := v.DecodeShard(make([]byte, 10)); !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// encodings returns one of each kind.
func encodings(t testing.TB, v *View) map[byte][]byte {
	s, other, o := v.NewShard(), v.NewShard(), owner(t, v, 0, 1)
	add(t, s, at(0, "x"), at(1, "y"), at(1.5, "x"), at(2, "x"), at(5, "x"))
	add(t, other, at(0, "x"), at(0.5, "x"), at(1, "x"), at(1.5, "x"))
	take(t, o, 0, s)
	take(t, o, 1, other)
	o.Close()
	acked(t, o, 0, s)
	all := map[byte][]byte{}
	var err error
	if all[checkpointKind], err = s.Encode(); err != nil {
		t.Fatal(err)
	}
	if all[handoverKind], err = s.HandOver(begin); err != nil {
		t.Fatal(err)
	}
	var ok bool
	if all[ackKind], ok = o.Ack(0); !ok {
		t.Fatal("no ack")
	}
	return all
}

func decode(v *View, kind byte, b []byte) (err error) {
	switch kind {
	case checkpointKind:
		_, err = v.DecodeShard(b)
	case handoverKind:
		_, err = v.decodeHandover(b)
	default:
		_, err = v.decodeAck(b)
	}
	return err
}

// FuzzDecode: whatever the bytes, with a right head and checksum, nothing crashes: a shard that is
// decoded encodes to the same, and goes on, and an owner takes what it decodes.
func FuzzDecode(f *testing.F) {
	var views []*View
	for _, w := range []Window{{}, counting().Window, {Session: time.Second, Time: "json.t"}} {
		spec := counting()
		spec.Window = w
		v := compiled(f, spec)
		for kind, b := range encodings(f, v) {
			f.Add(len(views), kind, b[9:len(b)-4])
		}
		views = append(views, v)
	}
	f.Fuzz(func(t *testing.T, n int, kind byte, body []byte) {
		v := views[uint(n)%uint(len(views))]
		b, err := v.seal(kind, body)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case checkpointKind:
			s, err := v.DecodeShard(b)
			if err != nil {
				return
			}
			if again, err := s.Encode(); err != nil || s.done.upTo == begin && !bytes.Equal(again, b) {
				t.Fatalf("decoded %x\nencoded %x: %v", b, again, err)
			}
			if err := s.Add(max(s.Next(), 1)-1, at(1, "x")); err == nil && s.Next() > 1 {
				t.Fatal("a record is added twice")
			}
			_ = s.Add(s.Next(), at(1, "x"))
			if _, err := s.HandOver(begin); err != nil {
				t.Fatal(err)
			}
		case handoverKind:
			o := owner(t, v, 0, 1)
			_ = o.Take(0, b)
			_ = o.Take(1, b)
			begins(t, o)
			o.Close()
			o.Ack(0)
		case ackKind:
			s := v.NewShard()
			add(t, s, at(1, "x"), at(9, "x"))
			_ = s.Ack(b)
			_ = s.Ack(b)
		}
	})
}
