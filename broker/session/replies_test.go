package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReplySubjectsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replies{most: 2, within: time.Minute}
		r.add([]byte("a"))
		for i, want := range []bool{true, true, false} {
			if r.take([]byte("a")) != want {
				t.Errorf("message %d: %v", i+1, !want)
			}
		}
		r.add([]byte("a"))
		time.Sleep(59 * time.Second)
		if r.add([]byte("b")); !r.take([]byte("a")) {
			t.Error("a was forgotten too early")
		}
		time.Sleep(time.Second)
		if r.take([]byte("a")) || !r.take([]byte("b")) {
			t.Error("a is there, or b is not")
		}
		if r.take([]byte("c")) {
			t.Error("c was never asked for")
		}
	})
}

// TestReplySubjectsAreBounded: whatever a responder answers, and leaves unanswered.
func TestReplySubjectsAreBounded(t *testing.T) {
	r := &replies{most: 1, within: time.Hour}
	r.add([]byte("slow"))
	for i := range 10 * maxReplies {
		of := fmt.Append(nil, i)
		if r.add(of); !r.take(of) {
			t.Fatalf("%s is refused", of)
		}
	}
	if len(r.order) > 2*maxReplies || len(r.open) != 1 {
		t.Errorf("%d are kept in order, %d are open", len(r.order), len(r.open))
	}
	if !r.take([]byte("slow")) {
		t.Error("a slow answer is refused")
	}
	for i := range 3 * maxReplies {
		r.add(fmt.Append(nil, i))
	}
	if len(r.open) > maxReplies || len(r.order) > 2*maxReplies || !r.take(fmt.Append(nil, 3*maxReplies-1)) || r.take([]byte("0")) {
		t.Errorf("%d are open, %d are kept in order, or the wrong ones", len(r.open), len(r.order))
	}
}

// TestLongReplySubjectsAreBounded in bytes, also those that were answered or repeated, and the
// newest ones stay.
func TestLongReplySubjectsAreBounded(t *testing.T) {
	r := &replies{most: 1, within: time.Hour}
	long := strings.Repeat("x", 4000)
	for i := range maxReplies {
		r.add(fmt.Appendf(nil, "%s%d", long, i))
		r.add(fmt.Appendf(nil, "%s%d", long, i))
		if i%2 == 0 && !r.take(fmt.Appendf(nil, "%s%d", long, i)) {
			t.Fatalf("answer %d is refused", i)
		}
	}
	kept, open := 0, 0
	for _, one := range r.order {
		kept += len(one.subject)
	}
	for of := range r.open {
		open += len(of)
	}
	if kept > maxReplyBytes || open != r.bytes || open < maxReplyBytes-2*len(long) {
		t.Errorf("%d bytes are kept, %d are open, counted as %d", kept, open, r.bytes)
	}
	if !r.take(fmt.Appendf(nil, "%s%d", long, maxReplies-1)) || r.take(fmt.Appendf(nil, "%s1", long)) {
		t.Error("the wrong ones are open")
	}
}
