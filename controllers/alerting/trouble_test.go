package alerting

import (
	"errors"
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
