package work

import "slices"

// Bounded is a queue with a bound. It is behind while more than its bound waits in it.
type Bounded interface {
	// Wait blocks while the queue is behind. It returns at once if the queue has ended.
	Wait()
}

// Behind is the queues that some messages went to and that were behind then. Whoever sent the
// messages calls Wait before it sends more. The zero Behind is empty, and takes no memory. It is
// not safe for concurrent use.
type Behind struct{ queues []Bounded }

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
}

// Any reports whether there is a queue to wait for.
func (b *Behind) Any() bool { return len(b.queues) > 0 }

// Wait waits for each queue in turn until none is behind, and leaves b empty.
func (b *Behind) Wait() {
	for _, q := range b.queues {
		q.Wait()
	}
	b.Clear()
}

// Clear forgets the queues.
func (b *Behind) Clear() {
	clear(b.queues)
	b.queues = b.queues[:0]
}

// Take returns the queues, and leaves b empty.
func (b *Behind) Take() Behind {
	taken := Behind{b.queues}
	b.queues = nil
	return taken
}
