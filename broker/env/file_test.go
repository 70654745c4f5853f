//go:build linux || darwin

package env_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// soon fails the test if do waits, as the opening of a pipe does.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(testutil.Patience):
		t.Fatalf("%s: it waits", what)
	}
}

// TestReadFileWaitsForNobody: anything but a file is refused, also behind a link, and a link to a
// file is read.
func TestReadFileWaitsForNobody(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	testutil.Must(t, os.WriteFile(in("file"), []byte("content"), 0o600))
	testutil.Must(t, os.Symlink(in("file"), in("link")))
	testutil.Must(t, syscall.Mkfifo(in("pipe"), 0o600))
	testutil.Must(t, os.Symlink(in("pipe"), in("link-to-pipe")))
	for path, want := range map[string]string{
		in("pipe"): "is a pipe", in("link-to-pipe"): "is a pipe", dir: "is a folder", os.DevNull: "is a device",
	} {
		soon(t, path, func() {
			_, _, err := env.ReadFile(path, 100)
			if irregular := (*env.IrregularError)(nil); !errors.As(err, &irregular) || !strings.Contains(err.Error(), want+": give a regular file") {
				t.Errorf("%s: %v", path, err)
			}
		})
	}
	for name, limit := range map[string]int64{"file": 100, "link": 7} {
		content, about, err := env.ReadFile(in(name), limit)
		if err != nil || string(content) != "content" || about.Size() != 7 {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	if content, _, err := env.ReadFile(in("file"), 3); err != nil || string(content) != "con" {
		t.Errorf("with a limit: %q, %v", content, err)
	}
	if _, _, err := env.ReadFile(in("missing"), 3); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestASocketIsNoFile has a path of its own: that of a socket is short.
func TestASocketIsNoFile(t *testing.T) {
	dir, err := os.MkdirTemp("", "s")
	testutil.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	testutil.Must(t, err)
	defer ln.Close()
	if _, _, err := env.ReadFile(filepath.Join(dir, "s"), 3); err == nil || !strings.Contains(err.Error(), "is a socket") {
		t.Errorf("a socket: %v", err)
	}
}

// TestAPipeInPlaceOfACertificate is refused at the start. Later it is counted, and the last good
// certificate stays.
func TestAPipeInPlaceOfACertificate(t *testing.T) {
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	node := load(t, dir)
	until := node.NotAfter()
	file := filepath.Join(dir, env.CertFile)
	testutil.Must(t, os.Remove(file))
	testutil.Must(t, syscall.Mkfifo(file, 0o600))
	soon(t, "a running broker", func() {
		if got := node.NotAfter(); !got.Equal(until) {
			t.Errorf("the certificate is good until %v, want %v", got, until)
		}
		irregular := (*env.IrregularError)(nil)
		if n, err := node.ReloadFailures(); n != 1 || !errors.As(err, &irregular) {
			t.Errorf("%d failures, the last one %v", n, err)
		}
	})
	soon(t, "a start", func() {
		if _, err := env.LoadTLS(dir); err == nil || !strings.Contains(err.Error(), "is a pipe") {
			t.Errorf("it starts: %v", err)
		}
	})
}
