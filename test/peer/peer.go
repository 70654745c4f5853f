// Package peer runs nats-server, for tests that hold us to what it does. Nothing of it outlives the
// test.
package peer

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long it may take to begin.
const patience = 20 * time.Second

// Server is a nats-server that takes clients.
type Server struct {
	Address string // host:port, on a port that was free
	cmd     *exec.Cmd
}

// Start runs the nats-server at path, with more arguments, until the test ends, and returns when it
// is ready.
func Start(t testing.TB, path string, args ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{cmd: exec.CommandContext(ctx, path, append([]string{"-a", "127.0.0.1", "-p", "-1"}, args...)...)}
	said, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(patience, cancel)
	lines, log := bufio.NewScanner(said), ""
	for ready := false; !ready; {
		if !lines.Scan() {
			cancel()
			t.Fatalf("nats-server did not begin within %v (%v):\n%s", patience, s.cmd.Wait(), log)
		}
		log += lines.Text() + "\n"
		if _, address, found := strings.Cut(lines.Text(), "Listening for client connections on "); found {
			s.Address = address
		}
		ready = strings.HasSuffix(lines.Text(), "Server is ready")
	}
	giveUp.Stop()
	read := make(chan struct{})
	go func() { // it must not wait for somebody to read what it logs
		defer close(read)
		_, _ = io.Copy(io.Discard, said)
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		_ = s.cmd.Wait()
	})
	return s
}

// URL is for clients.
func (s *Server) URL() string { return "nats://" + s.Address }

// Signal sends it a signal.
func (s *Server) Signal(what os.Signal) error { return s.cmd.Process.Signal(what) }
