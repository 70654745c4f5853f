package session

import "time"

// Condition decides which messages a Feed delivers. The loop of the Feed's client calls it, so it
// must be quick, and neither block nor call the Hub. Calls for one Feed never overlap.
type Condition interface {
	// Judge reports whether a message is delivered. Its slices are valid during the call.
	Judge(subject, header, payload []byte) bool
	// Work returns about how many bytes Judge passes over for a message with so many bytes of
	// headers and of payload.
	Work(header, payload int) int
	// TooSlow is called once, when the conditions of the client's Feeds take too much of the loop.
	// Nothing is delivered by this Feed any more. The owner closes it.
	TooSlow()
}

// Bounds of what the conditions of one client's Feeds pass over, since what does not match is not
// bounded by what the client reads. At a byte per nanosecond it is a quarter of a core, about what
// the loop spends on a client that reads as much. The time is measured once in judgedBytes, so a
// machine without time to spare makes the bound wider, and a burst of judgedBytes is always
// allowed.
const (
	judgedBytes = 64 << 20
	judgedTime  = 250 * time.Millisecond
)

// Only has the Feed deliver only messages that a Condition accepts. Call it before the first member
// is added.
func (f *Feed) Only(c Condition) { f.only = c }

// judge reports whether a message is delivered to the members of a Feed with a Condition. It is
// judged where it is delivered, and in order: no queue is needed that holds messages back, and a
// notice that removes the member is still behind it.
func (l *loop) judge(f *Feed, m *visible) bool {
	if f.slow {
		return false
	}
	c := f.to.conn
	if c.judged += f.only.Work(m.Header, len(m.Data)-m.Header); c.judged > judgedBytes {
		now := time.Now()
		early := now.Sub(c.judgedSince) < judgedTime
		c.judged, c.judgedSince = 0, now
		if early {
			f.slow = true
			f.only.TooSlow()
			return false
		}
	}
	return f.only.Judge(m.Subject, m.Data[:m.Header], m.Data[m.Header:])
}
