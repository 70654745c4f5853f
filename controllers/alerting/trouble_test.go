package alerting

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestTroubleIsToldWhenItLasts: and not again with each change of its text.
func TestTroubleIsToldWhenItLasts(t *testing.T) {
	start, one, two := time.Unix(1000, 0), errors.New("one\nline"), errors.New("two")
	var is trouble
	for i, step := range []struct {
		after time.Duration
		err   error
		want  string
	}{
		{0, one, ""}, {unreadAfter - 1, one, ""}, {unreadAfter, one, `one\nline`}, {unreadAfter + 1, two, `one\nline`},
		{unreadAfter + tellAgain, two, "two"}, {unreadAfter + tellAgain + 1, nil, ""}, {unreadAfter + tellAgain + 2, one, ""},
	} {
		is.note(step.err, start.Add(step.after))
		if is.why != step.want {
			t.Errorf("step %d: people are told %q, want %q", i, is.why, step.want)
		}
	}
	lost := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 4711}, Addr: &net.TCPAddr{Port: 1}, Err: errors.New("connection reset")}
	if got := cause(errors.Join(lost)); got != "read: connection reset" {
		t.Errorf("the cause is %q", got)
	}
}

// TestABrokerThatFailsNowAndThenHasFewStatusesWritten: the end of a trouble is told at once, and
// another one not before its time. It is told then, if it lasts.
func TestABrokerThatFailsNowAndThenHasFewStatusesWritten(t *testing.T) {
	start, news := time.Unix(1000, 0), 0
	var u unread
	for i := range 1000 {
		now, why := start.Add(time.Duration(i)*time.Hour/1000), ""
		if i%3 > 0 {
			why = fmt.Sprint("trouble ", i)
		}
		if u.set("1", why, now) {
			news++
		}
		if got, known := u.of("1"); !known || why == "" && got != "" {
			t.Fatalf("step %d: people are told %q, %v", i, got, known)
		}
	}
	if most := 2 * int(time.Hour/tellAgain+1); news > most || news < most/2 {
		t.Errorf("%d times it is news, want some %d", news, most)
	}
	if last := start.Add(time.Hour + tellAgain); !u.set("1", "last", last) || u.set("1", "last", last.Add(tellAgain)) {
		t.Error("a trouble that lasts is not told once")
	}
}
