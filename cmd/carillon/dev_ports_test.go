package main

import (
	"net"
	"strconv"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestPortsOfAClusterStayItsOwn: no other cluster chooses the ports of a running one, even while
// nothing listens there.
func TestPortsOfAClusterStayItsOwn(t *testing.T) {
	var mine devPorts
	chosen, err := mine.free(loopback, 3)
	testutil.Must(t, err)
	testutil.Must(t, mine.release(0)) // as when all brokers were killed
	port := func(address string) int {
		_, text, err := net.SplitHostPort(address)
		testutil.Must(t, err)
		n, err := strconv.Atoi(text)
		testutil.Must(t, err)
		return n
	}
	var other devPorts
	defer other.unlock()
	for _, address := range chosen {
		ln, err := net.Listen("tcp", address)
		testutil.Must(t, err) // the broker itself gets it
		testutil.Must(t, ln.Close())
		if err := other.lock(port(address)); err == nil {
			t.Errorf("another cluster may choose %s", address)
		}
	}
	// A port that the user names is the user's to share.
	_, err = other.consecutive("listen", chosen[0], 1)
	testutil.Must(t, err)
	testutil.Must(t, other.release(0))

	mine.unlock()
	again := 0
	for _, address := range chosen[1:] { // another process may be faster, but not twice
		if other.lock(port(address)) == nil {
			again++
		}
	}
	if again == 0 {
		t.Errorf("none of %v can be chosen again", chosen[1:])
	}
}
