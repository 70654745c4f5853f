package testutil

import (
	"net"
	"time"
)

// Slow returns a connection that brings everything to conn, and from it, after a latency each way.
// It ends when either connection is closed.
func Slow(conn net.Conn, latency time.Duration) net.Conn {
	here, there := net.Pipe()
	go carry(conn, there, latency)
	go carry(there, conn, latency)
	return here
}

// carry writes what it reads after a latency, until either end is closed. Then it closes both.
func carry(from, to net.Conn, latency time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			pieces <- piece{buf[:n], time.Now().Add(latency)}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	from.Close()
	to.Close()
	for range pieces { // until its reader has ended
	}
}
