package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// story is a faultless stream of two publishers and one consumer: p0/1 p1/1 p0/2 p1/2 ... All
// messages but the last are acknowledged, all are delivered, and the acknowledgements of the first
// half are answered.
type story struct {
	h      *History
	stream []Entry
}

func tell(n int) *story {
	s := &story{h: NewHistory("s")}
	publishers := []int{s.h.NewPublisher(), s.h.NewPublisher()}
	for i := range n {
		v, seq := s.h.Intend(publishers[i%2]), uint64(i+1)
		e := Entry{seq, Encode("s", v)}
		s.stream = append(s.stream, e)
		if i < n-1 {
			s.h.Acked(v, seq)
		}
		s.h.Delivered("c", seq, e.Payload)
		if i < n/2 {
			s.h.Answered("c", seq)
		}
	}
	return s
}

func TestTheJudgeFindsNothingWhereNothingIsWrong(t *testing.T) {
	s := tell(40)
	s.h.Delivered("c", 30, s.stream[29].Payload) // its acknowledgement was not answered, so it may be delivered again
	s.h.Refused(s.h.Intend(1), "no room")
	s.h.Intend(0) // not answered, and not in the stream
	v := s.h.Judge(s.stream)
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	if v.Read != 40 || v.Acked != 39 || v.Recovered != 1 {
		t.Errorf("%s", v)
	}
}

// TestAValueOfAnUnknownConnectionMayStandAnywhere: a value whose connection is unknown may stand
// anywhere. The values around it may not.
func TestAValueOfAnUnknownConnectionMayStandAnywhere(t *testing.T) {
	for _, known := range []bool{false, true} {
		s := tell(6)
		s.h.consumers = map[string]*consumed{}
		a, b := s.h.Intend(0), s.h.Intend(0)
		if !known {
			s.h.Unordered(b)
		}
		s.stream = append(s.stream, Entry{7, Encode("s", b)}, Entry{8, Encode("s", a)})
		if found := s.h.Judge(s.stream).Count(Disorder) > 0; found != known {
			t.Errorf("found %v, want %v", found, known)
		}
	}
}

// TestTheJudgeFindsEveryFault introduces one fault at a time, and expects exactly that one to be
// found.
func TestTheJudgeFindsEveryFault(t *testing.T) {
	without := func(s *story, from, to int) { s.stream = slices.Delete(s.stream, from, to) }
	for _, c := range []struct {
		name  string
		fault func(*story)
		want  []Kind // all that may and must be found
	}{
		{"the front is lost", func(s *story) { without(s, 0, 3) }, []Kind{LostFront, Changed}},
		{"the end is lost", func(s *story) { without(s, 35, 40) }, []Kind{LostEnd, Changed}},
		{"all is lost", func(s *story) { s.stream = nil }, []Kind{LostEnd, Changed}},
		{"a hole", func(s *story) { without(s, 20, 22) }, []Kind{LostMiddle, Gap, Changed}},
		{"the end is lost and written anew", func(s *story) {
			without(s, 38, 40)
			for seq := uint64(39); seq <= 41; seq++ {
				v := s.h.Intend(0)
				s.h.Acked(v, seq)
				s.stream = append(s.stream, Entry{seq, Encode("s", v)})
			}
			s.h.Delivered("c", 41, s.stream[40].Payload)
		}, []Kind{LostMiddle, Changed}},
		{"something else is there", func(s *story) {
			s.stream = append(s.stream, Entry{41, Encode("s", Value{1, 999})})
			s.h.Delivered("c", 41, s.stream[40].Payload)
		}, []Kind{Unexpected}},
		{"of another stream", func(s *story) {
			s.stream = append(s.stream, Entry{41, Encode("other", Value{1, 1})})
		}, []Kind{Garbled}},
		{"a byte is wrong", func(s *story) {
			i := slices.IndexFunc(s.stream, func(e Entry) bool { return len(e.Payload) > 50 })
			s.stream[i].Payload[45] ^= 4
		}, []Kind{Garbled, LostMiddle, Changed}},
		{"a message twice", func(s *story) {
			s.stream = append(s.stream, Entry{41, s.stream[39].Payload})
			s.h.Delivered("c", 41, s.stream[39].Payload)
		}, []Kind{Twice}},
		{"two changed places", func(s *story) {
			s.stream[37].Payload, s.stream[35].Payload = s.stream[35].Payload, s.stream[37].Payload
		}, []Kind{Disorder, Moved, Changed}},
		{"all moved up", func(s *story) {
			for i := range s.stream {
				s.stream[i].Seq++
			}
		}, []Kind{Moved, Changed, Skipped}},
		{"refused and there", func(s *story) {
			v := s.h.Intend(0)
			s.h.Refused(v, "no room")
			s.stream = append(s.stream, Entry{41, Encode("s", v)})
			s.h.Delivered("c", 41, s.stream[40].Payload)
		}, []Kind{Unrefused}},
		{"a cursor went back", func(s *story) { s.h.Delivered("c", 5, s.stream[4].Payload) }, []Kind{Redelivered}},
		{"a cursor jumped", func(s *story) {
			v := s.h.Intend(0)
			s.h.Acked(v, 41)
			s.stream = append(s.stream, Entry{41, Encode("s", v)})
		}, []Kind{Skipped}},
		{"what was delivered changed", func(s *story) { s.h.Delivered("c", 38, s.stream[38].Payload) }, []Kind{Changed}},
		{"what was never there was delivered", func(s *story) { s.h.Delivered("c", 41, Encode("s", s.h.Intend(0))) }, []Kind{Changed}},
		{"garbage was delivered", func(s *story) { s.h.Delivered("c", 12, []byte("?")) }, []Kind{Garbled}},
	} {
		s := tell(40)
		c.fault(s)
		v := s.h.Judge(s.stream)
		for kind, n := range v.count {
			if !slices.Contains(c.want, kind) {
				t.Errorf("%s: %d %q found: %v", c.name, n, kind, v.samples[kind])
			}
		}
		for _, kind := range c.want {
			if v.Count(kind) == 0 {
				t.Errorf("%s: nothing %q found", c.name, kind)
			} else if err := v.Err(); err == nil || !strings.Contains(err.Error(), string(kind)) {
				t.Errorf("%s: the error is %v", c.name, err)
			}
		}
	}
}

func TestOnlyReportedLossIsExcused(t *testing.T) {
	s := tell(40)
	s.stream = slices.Delete(s.stream, 20, 24) // 21 to 24
	if err := s.h.Judge(s.stream, Range{21, 25}).Err(); err != nil {
		t.Errorf("told in full: %v", err)
	}
	v := s.h.Judge(s.stream, Range{21, 24})
	if v.Count(LostMiddle) != 1 || v.Count(Gap) != 1 {
		t.Errorf("told but for one: %v", v.Err())
	}
}

func TestAcksAfterAPowerCutDoNotCount(t *testing.T) {
	s := tell(40)
	before := s.h.Progress()
	s.h.Unplug(true)
	v := s.h.Intend(0)
	s.h.Acked(v, 41)
	s.h.Delivered("c", 2, []byte("?"))
	s.h.Answered("c", 40)
	s.h.Unplug(false)
	if now := s.h.Progress(); now != before {
		t.Errorf("%+v became %+v", before, now)
	}
	s.stream = append(s.stream, Entry{41, Encode("s", v)})
	s.h.Delivered("c", 41, Encode("s", v))
	if err := s.h.Judge(s.stream).Err(); err != nil {
		t.Errorf("what was sent meanwhile may be there: %v", err)
	}
}

func TestEveryBitOfAValueIsChecked(t *testing.T) {
	for counter := range uint64(64) {
		v := Value{Publisher: 3, Counter: counter + 1}
		payload := Encode("orders", v)
		if got, err := Decode("orders", payload); err != nil || got != v {
			t.Fatalf("%s: got %s, %v", v, got, err)
		}
		for at := 0; at < len(payload); at += 1 + len(payload)/50 {
			payload[at] ^= 1
			if got, err := Decode("orders", payload); err == nil && got == v {
				t.Fatalf("%s: byte %d is wrong and it is still %s", v, at, got)
			}
			payload[at] ^= 1
		}
	}
	if a, b := fmt.Sprint(Encode("s", Value{1, 12})), fmt.Sprint(Encode("s", Value{11, 2})); a == b {
		t.Error("two values are the same")
	}
}
