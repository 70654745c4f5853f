package env_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// TestADirectoryHasOneProcess: one process owns a directory, and the next one gets it as soon as
// the first is killed.
func TestADirectoryHasOneProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if os.Getenv("LOCK_DIR") != "" {
		if _, err := env.LockDir(t.Context(), os.Getenv("LOCK_DIR")); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("locked\n")
		select {}
	}
	other := exec.Command(os.Args[0], "-test.run=^TestADirectoryHasOneProcess$")
	other.Env = append(os.Environ(), "LOCK_DIR="+dir)
	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill() })
	if _, err := said.Read(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := env.LockDir(once, dir); !errors.As(err, new(*env.InUseError)) {
		t.Fatalf("the error is %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = other.Process.Kill() })
	limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := env.LockDir(limit, dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}
