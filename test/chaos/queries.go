package chaos

import (
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// isOn reports whether a change of a subject switches it on: the first, the third, and so on. A
// subject is a member of the live queries while it is on.
func isOn(change uint64) bool { return change%2 == 1 }

// Counts are how often something came to the client of a live query.
type Counts struct {
	News, Dels, Messages, Reopened int
	// Late are messages that were published while their subject was off. A broker that learns of a
	// change late delivers some, before it tells of the change.
	Late int
}

func (c Counts) String() string {
	return fmt.Sprintf("%d new, %d del, %d messages (%d late), opened again %d times", c.News, c.Dels, c.Messages, c.Late, c.Reopened)
}

// Since returns an error if fewer came after before than least.
func (c Counts) Since(before, least Counts) error {
	c.News, c.Dels, c.Messages, c.Reopened = c.News-before.News, c.Dels-before.Dels, c.Messages-before.Messages, c.Reopened-before.Reopened
	if c.News < least.News || c.Dels < least.Dels || c.Messages < least.Messages || c.Reopened < least.Reopened {
		return fmt.Errorf("there were %d new, %d del, %d messages and %d openings, want %d, %d, %d and %d",
			c.News, c.Dels, c.Messages, c.Reopened, least.News, least.Dels, least.Messages, least.Reopened)
	}
	return nil
}

// Told is what the client of a live query was told, and judges it. A message on a subject is a
// Value of the subject's name: its Publisher is the last change of the subject, and its Counter
// that of the subject's messages.
type Told struct {
	Counts
	Ready   bool              // all members were told since the query was opened last
	members map[string]bool   // false: it was one
	heard   map[string]uint64 // the newest message of each subject
}

// NewTold returns that of a client that was told nothing.
func NewTold() *Told { return &Told{members: map[string]bool{}, heard: map[string]uint64{}} }

// Take takes what came next. It returns an error if that was not to come: a message of a subject
// that is no member, or one that was not published on it.
func (t *Told) Take(e *client.QueryEvent) error {
	switch e.Kind {
	case client.EventNew:
		t.News++
		t.members[e.Subject] = true
	case client.EventDel:
		t.Dels++
		t.members[e.Subject] = false
	case client.EventReopened:
		t.Reopened++
		t.Ready = false
	case client.EventReady:
		t.Ready = true
	case client.EventMessage:
		return t.message(e)
	}
	return nil
}

func (t *Told) message(e *client.QueryEvent) error {
	t.Messages++
	v, err := checker.Decode(e.Subject, e.Data)
	if err != nil {
		return fmt.Errorf("a message of %s: %w", e.Subject, err)
	}
	t.heard[e.Subject] = max(t.heard[e.Subject], v.Counter)
	change := uint64(v.Publisher)
	if !isOn(change) {
		t.Late++
	}
	switch is, was := t.members[e.Subject]; {
	case is:
		return nil
	case was:
		return fmt.Errorf("message %d of %s, which was published after change %d, came after the subject had left", v.Counter, e.Subject, change)
	}
	return fmt.Errorf("message %d of %s, which was published after change %d, came although the subject was never told", v.Counter, e.Subject, change)
}

// Members returns the present members in their order.
func (t *Told) Members() (all []string) {
	for name, is := range t.members {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Heard returns the counter of the newest message of a subject that came; 0: none came.
func (t *Told) Heard(subject string) uint64 { return t.heard[subject] }

// CompareMembers returns an error if a client knows other members than there are. Both are in their
// order.
func CompareMembers(got, want []string) error {
	missing, ghosts := lacking(got, want), lacking(want, got)
	if len(missing)+len(ghosts) == 0 {
		return nil
	}
	return fmt.Errorf("of %d members it was not told of %d (%q), and it was told of %d others (%q)", len(want), len(missing), missing, len(ghosts), ghosts)
}

// lacking returns what is in the second list and not in the first. Both are in their order.
func lacking(of, in []string) (all []string) {
	for _, name := range in {
		if _, is := slices.BinarySearch(of, name); !is {
			all = append(all, name)
		}
	}
	return all
}
