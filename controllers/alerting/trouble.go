package alerting

import (
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// trouble is why something can't be read, and since when. The zero value: it can.
type trouble struct {
	since time.Time
	why   string // what people are told; empty: nothing yet
	told  time.Time
}

// note takes the outcome of an attempt.
func (t *trouble) note(err error, now time.Time) {
	if err == nil {
		*t = trouble{}
		return
	}
	if t.since.IsZero() {
		t.since = now
	}
	if now.Sub(t.since) >= unreadAfter && (t.why == "" || now.Sub(t.told) >= tellAgain) {
		t.why, t.told = cause(err), now
	}
}

// cause returns an error as one line for people. Ports, which change, are left out of it.
func cause(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return cut(op.Op + ": " + op.Err.Error())
	}
	text := quoted(err.Error())
	return text[1 : len(text)-1]
}

// unread has why the alerts of Views can't be read, by UID. Without an entry it is not known. An
// empty text: they can.
type unread struct {
	mu    sync.Mutex
	views map[types.UID]said
}

// said is what people are told of a View.
type said struct {
	why  string
	told time.Time // when that was no empty text for the first time, or another one
}

func (u *unread) of(view types.UID) (why string, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	is, known := u.views[view]
	return is.why, known
}

// set reports whether it is news. A trouble within tellAgain of another one is none yet: a Broker
// that fails now and then would have the status of each of its Views written each time.
func (u *unread) set(view types.UID, why string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.views == nil {
		u.views = map[types.UID]said{}
	}
	was, known := u.views[view]
	if known && was.why == why || why != "" && !was.told.IsZero() && now.Sub(was.told) < tellAgain {
		return false
	}
	is := said{why, was.told}
	if why != "" {
		is.told = now
	}
	u.views[view] = is
	return true
}

// keep forgets all other Views.
func (u *unread) keep(views map[types.UID]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for view := range u.views {
		if !views[view] {
			delete(u.views, view)
		}
	}
}
