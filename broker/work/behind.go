package work

import (
	"slices"
	"time"
)

// Bounded is a queue with a bound. It is behind while more than its bound waits in it.
type Bounded interface {
	// Wait blocks while the queue is behind. It returns at once if the queue has ended.
	Wait()
}

const (
	// refusalPause is how long a connection waits for each of its requests that was refused: it gets
	// at most a thousand refusals a second, which take some ten microseconds each.
	refusalPause = time.Millisecond
	// longPause is the pause that is made at once, and not at the end of what was read.
	longPause = 10 * refusalPause
	// maxPause bounds a pause, in which what else the client has sent waits.
	maxPause = 500 * time.Millisecond
)

// Behind is the queues that some messages went to and that were behind then, and a pause if some
// were requests that were refused for want of room. Whoever sent the messages calls Wait before it
// sends more. The zero Behind is empty, and takes no memory. It is not safe for concurrent use.
type Behind struct {
	queues []Bounded
	pause  time.Duration
}

// Refused adds the pause for so many requests that were refused.
func (b *Behind) Refused(requests int) {
	b.pause = min(b.pause+time.Duration(requests)*refusalPause, maxPause)
}

// Pauses reports whether the pause is long enough to be made before the next message.
func (b *Behind) Pauses() bool { return b.pause >= longPause }

// Add adds a queue.
func (b *Behind) Add(q Bounded) {
	if !slices.Contains(b.queues, q) {
		b.queues = append(b.queues, q)
	}
}

// Join adds the queues of another Behind, which it leaves as it is.
func (b *Behind) Join(other Behind) {
	for _, q := range other.queues {
		b.Add(q)
	}
	b.pause = min(b.pause+other.pause, maxPause)
}

// Any reports whether there is something to wait for.
func (b *Behind) Any() bool { return len(b.queues) > 0 || b.pause > 0 }

// Pause returns the pause, and takes it from b. Who calls TakeOf makes it.
func (b *Behind) Pause() time.Duration {
	pause := b.pause
	b.pause = 0
	return pause
}

// Wait waits for each queue in turn until none is behind, and leaves b empty.
func (b *Behind) Wait() {
	for _, q := range b.queues {
		q.Wait()
	}
	b.Clear()
}

// Clear forgets the queues and the pause.
func (b *Behind) Clear() {
	clear(b.queues)
	b.queues, b.pause = b.queues[:0], 0
}

// Take returns what is in b, and leaves b empty.
func (b *Behind) Take() Behind {
	taken := *b
	*b = Behind{}
	return taken
}
