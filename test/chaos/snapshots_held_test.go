package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// heldStory returns a part of a snapshot with the records 5 to 9.
func heldStory() *Held {
	h := &Held{Stream: "clicks--1", Start: 5, High: 10, Records: map[uint64][]byte{}}
	for offset := h.Start; offset < h.High; offset++ {
		h.Records[offset] = fmt.Append(nil, "record ", offset)
	}
	return h
}

func TestTheJudgeOfSnapshotsFindsEveryFault(t *testing.T) {
	for name, tc := range map[string]struct {
		acked uint64
		spoil func(h *Held)
		want  string
	}{
		"nothing":                        {9, func(*Held) {}, ""},
		"an acknowledged record outside": {10, func(*Held) {}, "10 was acknowledged before"},
		"a record that is missing":       {9, func(h *Held) { delete(h.Records, 7) }, "has no record 7"},
		"the first one is missing":       {9, func(h *Held) { delete(h.Records, 5) }, "has no record 5"},
		"a record from elsewhere":        {9, func(h *Held) { h.Records[10] = nil }, "has 6 records"},
	} {
		h := heldStory()
		tc.spoil(h)
		got := strings.Join(JudgeHeld(h, tc.acked), "; ")
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, tc := range map[string]struct {
		spoil func(entries []checker.Entry) []checker.Entry
		want  string
	}{
		"nothing":           {func(e []checker.Entry) []checker.Entry { return e }, ""},
		"retention":         {func(e []checker.Entry) []checker.Entry { return e[2:] }, ""},
		"a record was lost": {func(e []checker.Entry) []checker.Entry { return append(e[:2:2], e[3:]...) }, "record 7 of clicks--1 was in a snapshot, and is not there"},
		"its end was lost":  {func(e []checker.Entry) []checker.Entry { return e[:4] }, "record 9 of clicks--1 was in a snapshot, and is not there"},
		"another record":    {func(e []checker.Entry) []checker.Entry { e[1].Payload = []byte("else"); return e }, `was "record 6" in a snapshot, and is "else"`},
	} {
		h := heldStory()
		var entries []checker.Entry
		for offset := h.Start; offset < h.High; offset++ {
			entries = append(entries, checker.Entry{Seq: offset, Payload: h.Records[offset]})
		}
		later, from := byOffset(tc.spoil(entries))
		got := strings.Join(JudgeAgain(h, later, from), "; ")
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("later, %s: %q", name, got)
		}
	}
}
