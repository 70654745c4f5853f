package work

// Share is what one connection has in a FairQueue, or one user with all of its connections. It is
// valid while an item of it waits or runs.
type Share[T any] struct {
	client         Client
	user           *Share[T]  // of a connection
	connections    ranking[T] // of a user: those with items
	oldest, newest *Queued[T] // of a connection
	items, bytes   int        // that wait
	running        int
	turn           uint64 // the least one is served first
	at             [orders]int
	next           *Share[T] // of spare ones
}

// empty reports whether nothing of the share waits or runs.
func (s *Share[T]) empty() bool { return s.items == 0 && s.running == 0 }

// reset makes the share an empty one, with the memory of its rankings.
func (s *Share[T]) reset() {
	*s = Share[T]{connections: s.connections}
	for i, all := range s.connections {
		if cap(all) > keptConnections {
			s.connections[i] = nil
		}
	}
}

// keptConnections bounds for how many connections an empty share keeps memory.
const keptConnections = 8
