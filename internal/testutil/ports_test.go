package testutil

import (
	"net"
	"testing"
)

// TestPortsAreGivenOnce: a port stays with the test that got it, also while nothing listens there.
func TestPortsAreGivenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		for _, port := range FreePorts(t, 10) {
			if seen[port] {
				t.Fatalf("port %d was given twice", port)
			}
			seen[port] = true
			if reserved, err := reservePort(port); err == nil {
				_ = reserved.Close()
				t.Errorf("port %d is not reserved", port)
			}
			ln, err := net.Listen("tcp", loopback(port))
			Must(t, err)
			Must(t, ln.Close())
		}
	}
}

func TestPortsAreGivenBack(t *testing.T) {
	ports, release, err := ReservePorts(10)
	Must(t, err)
	release()
	again := 0
	for _, port := range ports { // another process may have been faster, but not ten times
		if reserved, err := reservePort(port); err == nil {
			again++
			_ = reserved.Close()
		}
	}
	if again == 0 {
		t.Errorf("none of the ports %v can be reserved again", ports)
	}
}

func TestPortsInUseAreNotReserved(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer ln.Close()
	if _, err := reservePort(ln.Addr().(*net.TCPAddr).Port); err == nil {
		t.Error("a port that is listened on was reserved")
	}
}
