package testutil

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Tests take ports from this range. It lies below the range from which systems choose the local
// ports of outgoing connections and of listeners on port 0, and above the one of `carillon dev`:
// neither takes a port between the moment in which a test learns of it and the one in which a
// server listens on it.
const (
	lowestPort, highestPort = 30000, 32767
	portTries               = 1000
)

// FreePorts returns n TCP ports of 127.0.0.1 that nothing listens on. They are the test's until it
// ends: no other caller gets them, in this process or in another one, while servers stop and start
// again there.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports, release, err := ReservePorts(n)
	Must(t, err)
	t.Cleanup(release)
	return ports
}

// FreeAddress returns a free port as FreePorts does, as HOST:PORT.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return loopback(FreePorts(t, 1)[0])
}

// ReservePorts is FreePorts for callers without a test. The ports are theirs until release is
// called.
func ReservePorts(n int) (ports []int, release func(), err error) {
	var reserved []net.PacketConn
	release = func() {
		for _, r := range reserved {
			_ = r.Close()
		}
	}
	for range portTries {
		if len(ports) == n {
			return ports, release, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		r, err := reservePort(port)
		if err != nil {
			continue
		}
		ports, reserved = append(ports, port), append(reserved, r)
	}
	release()
	return nil, nil, fmt.Errorf("reserve %d ports between %d and %d: none is free after %d tries", n, lowestPort, highestPort, portTries)
}

// reservePort holds the UDP port of the same number, which no server of ours uses, as a lock
// between processes that does not outlive them.
func reservePort(port int) (net.PacketConn, error) {
	reserved, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return nil, errors.Join(err, reserved.Close())
	}
	return reserved, ln.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
