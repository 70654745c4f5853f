package dedup

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
)

// Unread is damage in a log behind which ids of its Window may stand. Another replica may have
// them.
type Unread struct {
	Damage *log.CorruptError
	at     int64 // no record there was stored later, on the clock's Mono
}

// Unread returns the damage that may hide ids. The lock is held. The caller must not change it.
func (w *Window) Unread() []Unread { return w.unread }

// hide notes records that could not be read, none of which was stored after a moment.
func (w *Window) hide(damage []*log.CorruptError, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range damage {
		if at >= w.since {
			w.unread = append(w.unread, Unread{d, at})
		}
	}
}

// forgetUnread forgets damage whose records were all stored before a moment, or stand from an
// offset on. The lock is held.
func (w *Window) forgetUnread(before int64, from uint64) {
	if len(w.unread) > 0 {
		w.unread = slices.DeleteFunc(w.unread, func(u Unread) bool { return u.at < before || u.Damage.From >= from })
	}
}
