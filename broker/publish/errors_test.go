package publish

import (
	"fmt"
	"maps"
	"syscall"
	"testing"
)

// TestRefusalsAreCountedByReason: each refusal counts under the reason that operators see.
func TestRefusalsAreCountedByReason(t *testing.T) {
	var r Refusals
	for _, err := range []error{
		&NotServedError{}, &TooLargeError{}, &WrongLastError{}, &WrongLastIDError{}, &NotAfterError{}, &WrongTopicError{},
		&WindowFullError{}, &OutboxFullError{}, &StalledError{}, &UnconfirmedError{}, &RecordsError{},
		&StoreError{Err: fmt.Errorf("append: %w", syscall.ENOSPC)}, &StoreError{Err: syscall.EIO},
	} {
		r.Note(err)
	}
	want := map[string]uint64{"not_served": 2, "too_large": 1, "condition": 4, "window_full": 1, "request": 1, "overloaded": 2, "no_space": 1, "failed": 1}
	if got := r.Counts(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// TestRefusalsByTheLastMessageAreFalsifiable: a refusal waits for a confirmation of the leader if a
// newer leader's record could make it untrue, and only then.
func TestRefusalsByTheLastMessageAreFalsifiable(t *testing.T) {
	for _, err := range []error{&WrongLastError{}, &WrongLastIDError{}, &NotAfterError{}} {
		if !Falsifiable(err) {
			t.Errorf("%T is not falsifiable", err)
		}
	}
	for _, err := range []error{&WrongTopicError{}, &TooLargeError{}, &WindowFullError{}, &StoreError{Err: syscall.EIO}} {
		if Falsifiable(err) {
			t.Errorf("%T is falsifiable", err)
		}
	}
}
