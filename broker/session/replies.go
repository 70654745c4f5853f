package session

import (
	"slices"
	"sync"
	"time"
)

// replies are the reply subjects of messages that a client got, and which it may publish to
// although it has no other right to. The loop adds them, and the reader takes them.
type replies struct {
	mu     sync.Mutex
	most   int           // messages for each; below 0: any number
	within time.Duration // below 0: any time
	open   map[string]*openReply
	order  []*openReply // the oldest first
	bytes  int          // of the subjects in open
}

type openReply struct {
	subject string // empty: it is not in open any more
	left    int
	until   time.Time
}

// maxReplies and maxReplyBytes bound the reply subjects that are remembered for a connection.
// Beyond them the oldest are forgotten. Inboxes have less than 100 bytes, and all take about 1 MiB;
// but whoever sends the messages chooses the subjects, of up to 4 KiB.
const (
	maxReplies    = 4096
	maxReplyBytes = 512 << 10
)

// bound changes the bounds, for later messages.
func (r *replies) bound(most int, within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most, r.within = most, within
}

// add notes that the client gets a message with this reply subject.
func (r *replies) add(reply []byte) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Used-up entries pile up in order while the oldest entry is still open.
	if len(r.order) >= 2*maxReplies {
		r.order = slices.DeleteFunc(r.order, func(one *openReply) bool { return one.left == 0 })
	}
	for len(r.order) > 0 {
		oldest := r.order[0]
		room := len(r.open) < maxReplies && r.bytes+len(reply) <= maxReplyBytes
		if oldest.left != 0 && room && (r.within < 0 || now.Before(oldest.until)) {
			break
		}
		r.forget(oldest)
		r.order[0] = nil
		r.order = r.order[1:]
	}
	if r.open == nil {
		r.open = make(map[string]*openReply)
	}
	if before := r.open[string(reply)]; before != nil {
		before.left = 0 // its place in order is too old
		r.forget(before)
	}
	one := &openReply{subject: string(reply), left: r.most, until: now.Add(r.within)}
	r.open[one.subject] = one
	r.order = append(r.order, one)
	r.bytes += len(one.subject)
}

func (r *replies) forget(one *openReply) {
	if r.open[one.subject] == one {
		delete(r.open, one.subject)
		r.bytes -= len(one.subject)
		one.subject = ""
	}
}

// take reports whether a message may be published to a reply subject, and counts it.
func (r *replies) take(to []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.open[string(to)]
	if one == nil || one.left == 0 || r.within >= 0 && !time.Now().Before(one.until) {
		return false
	}
	if one.left > 0 {
		if one.left--; one.left == 0 {
			r.forget(one)
		}
	}
	return true
}
