package main

import (
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
)

func TestTheHandshakeBeforeINFOMayHaveAWait(t *testing.T) {
	for text, want := range map[string]struct {
		first session.First
		wait  time.Duration
	}{
		"no":    {session.FirstNo, 0},
		"auto":  {session.FirstAuto, 0},
		"300ms": {session.FirstAuto, 300 * time.Millisecond},
		"2s":    {session.FirstAuto, 2 * time.Second},
		"3s":    {"3s", 0},
		"0s":    {"0s", 0},
	} {
		if first, wait := parseFirst(text); first != want.first || wait != want.wait {
			t.Errorf("%s is %s with %v", text, first, wait)
		}
	}
}
