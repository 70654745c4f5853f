package broker

import (
	"net"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAPortInUseIsReported: the error names the port, and everything claimed before is released.
func TestAPortInUseIsReported(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	client := testutil.FreeAddress(t)
	profile, err := limits.ForProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), Config{
		Name: "b", Cluster: "local/test", Data: t.TempDir(), Profile: profile,
		Client: Address{Listen: client}, HTTP: Address{Listen: taken.Addr().String()},
	})
	if err == nil || !strings.Contains(err.Error(), "HTTP") || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("the error is %v", err)
	}
	again, err := net.Listen("tcp", client)
	if err != nil {
		t.Fatalf("the clients' port was not given back: %v", err)
	}
	again.Close()
}

// TestLinksInPlaintextStayOnTheMachine: whoever links to a broker may do everything.
func TestLinksInPlaintextStayOnTheMachine(t *testing.T) {
	profile, err := limits.ForProfile("small")
	testutil.Must(t, err)
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		err := Run(t.Context(), Config{
			Name: "b", Cluster: "local/test", Data: t.TempDir(), Profile: profile,
			Client: Address{Listen: "127.0.0.1:0"}, Route: Address{Listen: address},
		})
		if err == nil || !strings.Contains(err.Error(), "--tls-dir") {
			t.Errorf("on %s: %v", address, err)
		}
	}
}
