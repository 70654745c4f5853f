package route

import (
	"container/list"
	"net"
	"sync"
)

// greeting holds the accepted connections without an accepted hello: strangers, and those that have
// shown a certificate of the cluster. Each kind has room for maxGreeting. A newcomer is never
// refused: the oldest of a full room is closed for it. So strangers that send nothing can't keep a
// member out, and a member's handshake is at stake only while maxGreeting strangers come within it.
type greeting struct {
	mu    sync.Mutex
	rooms [2]list.List // of *guest, the oldest first: strangers, and those with a certificate
}

// guest is a connection without an accepted hello.
type guest struct {
	conn    net.Conn
	at      *list.Element
	room    *list.List
	evicted bool
}

// admit adds a stranger.
func (g *greeting) admit(conn net.Conn) *guest {
	new := &guest{conn: conn}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.enter(new, &g.rooms[0])
	return new
}

// vouch notes that a connection has shown a certificate of the cluster.
func (g *greeting) vouch(of *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if of.room != nil {
		of.room.Remove(of.at)
		g.enter(of, &g.rooms[1])
	}
}

// leave removes a connection, and reports whether it was evicted before.
func (g *greeting) leave(of *guest) (evicted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if of.room != nil {
		of.room.Remove(of.at)
		of.room = nil
	}
	return of.evicted
}

// enter adds a connection to a room, and closes the oldest one there if it is full. mu is held.
func (g *greeting) enter(new *guest, room *list.List) {
	if room.Len() >= maxGreeting {
		oldest := room.Remove(room.Front()).(*guest)
		oldest.room, oldest.evicted = nil, true
		oldest.conn.Close()
	}
	new.room, new.at = room, room.PushBack(new)
}

// count returns how many connections are in the rooms.
func (g *greeting) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rooms[0].Len() + g.rooms[1].Len()
}
