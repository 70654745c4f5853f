package flow

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAWindowNeverExceedsItsLimitByMoreThanOneMessage sends whatever the window permits, and
// answers requests sooner or later, some twice and some that were never made.
func TestAWindowNeverExceedsItsLimitByMoreThanOneMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		w.Open()
		unconfirmed, covered, last, token := 0, 0, 0, uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if w.Confirm(w.Token() + 1) {
					t.Fatal("an answer to no request counts")
				}
			case 1:
				if before := w.Token(); w.Confirm(before) != (before != 0) || w.Confirm(before) {
					t.Fatal("an answer does not count once")
				} else if before != 0 {
					unconfirmed -= covered
				}
			default:
				if !w.Full() {
					last = rapid.IntRange(0, 1<<20).Draw(t, "bytes")
					w.Add(last)
					unconfirmed += last
				} else if w.Token() == 0 && !w.Due() {
					t.Fatal("it is full, and no request is under way or due")
				}
				if w.Due() {
					token++
					w.Ask(token)
					covered = unconfirmed
				}
			}
			if w.Limit() > LastWindow || unconfirmed-last > w.Limit() || w.Limit()-w.Room() != unconfirmed {
				t.Fatalf("%d of %d bytes are not confirmed, the last message has %d", unconfirmed, w.Limit(), last)
			}
		}
	})
}

func TestWithoutFlowControlNothingIsAsked(t *testing.T) {
	var w Window
	w.Add(1 << 30)
	if w.Full() || w.Due() || w.Limit() != 0 {
		t.Errorf("%+v", w)
	}
}

// TestAPaceKeepsItsRate: a second of deliveries takes a second, however late each is, up to Burst.
func TestAPaceKeepsItsRate(t *testing.T) {
	p := Pace{Bits: 8000} // 1,000 bytes a second
	now := int64(time.Hour)
	began := now
	for range 10 {
		p.Sent(100, now)
		now = p.Next + int64(Burst)/2
	}
	if took := time.Duration(now - began); took < time.Second-Burst || took > time.Second+Burst {
		t.Errorf("ten deliveries of a tenth of a second take %v", took)
	}
	p.Bits = 0
	if p.Sent(1<<30, now); p.Next != 0 {
		t.Error("it has a pace without a limit")
	}
}
