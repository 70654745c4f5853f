package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestALocalMemberKeepsItsData(t *testing.T) {
	t.Parallel()
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25))
	for name, dir := range map[string]string{"short": shortDir(t), "too long for a socket": deep, "no part of a URL": filepath.Join(shortDir(t), "50%,#1")} {
		t.Run(name, func(t *testing.T) {
			for life := range 2 {
				local, err := StartLocal(t.Context(), dir, testLogger())
				if err != nil {
					t.Fatal(err)
				}
				client, err := coordination.Open(coordination.Config{Endpoints: local.Endpoints(), Cluster: "local/dev"})
				if err != nil {
					t.Fatal(err)
				}
				if life == 0 {
					if err := client.ClaimOwner(t.Context(), "me"); err != nil {
						t.Fatal(err)
					}
				}
				if owner, err := client.Owner(t.Context()); owner != "me" || err != nil {
					t.Fatalf("life %d: owner %q, %v", life, owner, err)
				}
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("others may enter %s: %v %v", dir, info.Mode(), err)
				}
				if _, err := StartLocal(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "another process") {
					t.Errorf("a second one in the same directory: %v", err)
				}
				if _, err := client.Owner(t.Context()); err != nil {
					t.Errorf("the refused second one harmed the first: %v", err)
				}
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				socket := local.socket
				if err := local.Close(); err != nil {
					t.Fatal(err)
				}
				<-local.Done()
				if _, err := os.Stat(socket); err == nil {
					t.Errorf("the socket %s is left behind", socket)
				}
			}
		})
	}
}

// TestALocalMemberThatIsStoppedWhileItStarts: a member that is stopped before its first write does
// not prevent the next start.
func TestALocalMemberThatIsStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := shortDir(t)
	if local, err := StartLocal(ctx, dir, nil); err == nil {
		// It may have been ready before it looked; then it is a member like any other.
		if err := local.Close(); err != nil {
			t.Fatal(err)
		}
	}
	local, err := StartLocal(t.Context(), dir, nil)
	if err != nil {
		t.Fatalf("after an interrupted start: %v", err)
	}
	if err := local.Close(); err != nil {
		t.Fatal(err)
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
