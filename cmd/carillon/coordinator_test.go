package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestTheCoordinatorRunsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	ports := testutil.FreePorts(t, 3)
	tlsDir := t.TempDir()
	testca.New(t).Issue(t, tlsDir)
	args := []string{
		"coordinator", "--name", "c-0", "--data", filepath.Join(t.TempDir(), "data"), "--tls-dir", tlsDir,
		"--client-listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--peer-listen", fmt.Sprintf("127.0.0.1:%d", ports[1]),
		"--http-listen", fmt.Sprintf("127.0.0.1:%d", ports[2]), "--advertise-host", "localhost", "--cluster-token", "uid",
		"--initial-cluster", fmt.Sprintf("c-0=https://localhost:%d", ports[1]), "--log-level", "error",
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	code := make(chan int, 1)
	go func() { code <- run(ctx, args) }()

	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(testutil.Patience); ; time.Sleep(20 * time.Millisecond) {
		answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[2]))
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not become ready: %v", err)
		}
	}
	stop()
	select {
	case got := <-code:
		if got != 0 {
			t.Errorf("it ended with %d", got)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("it did not end")
	}
}

func TestCoordinatorRefusesWrongFlags(t *testing.T) {
	good := []string{
		"coordinator", "--name", "c-0", "--data", "d", "--tls-dir", filepath.Join(t.TempDir(), "none"), "--advertise-host", "c-0.cs",
		"--initial-cluster", "c-0=https://c-0.cs:2380", "--cluster-token", "uid",
	}
	if got := run(t.Context(), good); got != exitFailure {
		t.Errorf("without certificates it ends with %d, want %d", got, exitFailure)
	}
	for _, wrong := range [][]string{
		{"--initial-cluster", "c-1=https://c-1.cs:2380"}, {"--client-listen", "2379"}, {"--log-level", "loud"}, {"--name="}, {"--nonsense"}, {"extra"},
	} {
		if got := run(t.Context(), append(good[:len(good):len(good)], wrong...)); got != exitUsage {
			t.Errorf("with %q it ends with %d, want %d", wrong, got, exitUsage)
		}
	}
	if got := run(t.Context(), good[:3]); got != exitUsage {
		t.Errorf("without its flags it ends with %d, want %d", got, exitUsage)
	}
}
