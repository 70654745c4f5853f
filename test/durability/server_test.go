//go:build e2e && linux

package durability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// server is a process with JetStream that can be killed and restarted, with the same address and
// data.
type server struct {
	t       *testing.T
	url     string
	command func() *exec.Cmd
	log     *os.File
	process *exec.Cmd
	exited  chan struct{}
	exit    error
}

// carillon returns a `carillon dev` with its data in dir. It is not started yet.
func carillon(t *testing.T, dir string) *server {
	t.Helper()
	program, err := built()
	testutil.Must(t, err)
	address := testutil.FreeAddress(t)
	return newServer(t, address, func() *exec.Cmd {
		return exec.Command(program, "dev", "--data", dir, "--listen", address)
	})
}

// peer returns a nats-server with its data in dir.
func peer(t *testing.T, dir, config string) *server {
	t.Helper()
	address := testutil.FreeAddress(t)
	file := filepath.Join(t.TempDir(), "nats.conf")
	testutil.Must(t, os.WriteFile(file, fmt.Appendf(nil, "listen: %s\njetstream { store_dir: %q\n%s\n}\n", address, dir, config), 0o600))
	return newServer(t, address, func() *exec.Cmd { return exec.Command(os.Getenv("DURABILITY_PEER"), "-c", file) })
}

func newServer(t *testing.T, address string, command func() *exec.Cmd) *server {
	t.Helper()
	log, err := os.CreateTemp(runDir, "log-")
	testutil.Must(t, err)
	s := &server{t: t, url: "nats://" + address, command: command, log: log}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			all, _ := os.ReadFile(log.Name())
			t.Logf("the server's log ends with:\n%s", bytes.TrimSpace(all[max(0, len(all)-6000):]))
		}
		testutil.Must(t, log.Close())
	})
	return s
}

// start starts the process, and does not wait until it is ready.
func (s *server) start() {
	s.t.Helper()
	s.process = s.command()
	s.process.Stdout, s.process.Stderr = s.log, s.log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it is killed with the test
	testutil.Must(s.t, s.process.Start())
	s.exited = make(chan struct{})
	process, exited := s.process, s.exited
	go func() {
		s.exit = process.Wait()
		close(exited)
	}()
}

// kill kills the process.
func (s *server) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		<-s.exited
		s.process = nil
	}
}

// stop ends the process by SIGTERM.
func (s *server) stop() {
	s.t.Helper()
	testutil.Must(s.t, s.process.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("the server still runs %v after SIGTERM", patience)
	}
	s.process = nil
	if s.exit != nil {
		s.t.Errorf("after SIGTERM the server ended with: %v", s.exit)
	}
}

// alive fails if the process has ended by itself.
func (s *server) alive() {
	s.t.Helper()
	select {
	case <-s.exited:
		s.t.Fatalf("the server ended by itself: %v", s.exit)
	default:
	}
}

// connect returns a client that waits for the server.
func (s *server) connect(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := checker.Connect(s.url, "test")
	testutil.Must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(5*time.Second))
	testutil.Must(t, err)
	return nc, js
}

// create creates a history's stream and consumers as soon as the server is ready.
func (s *server) create(js jetstream.JetStream, h *checker.History, consumers ...string) {
	s.t.Helper()
	testutil.Eventually(s.t, "create stream "+h.Stream, func() error {
		s.alive()
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancel()
		err := h.CreateStream(ctx, js, consumers...)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, nats.ErrTimeout) {
			s.t.Fatal(err)
		}
		return err
	})
}

// progress waits for so many more acks and answers than before.
func (s *server) progress(h *checker.History, before checker.Progress, acked, answered int) {
	s.t.Helper()
	testutil.Eventually(s.t, fmt.Sprintf("%d acknowledged messages and %d answered acknowledgements", acked, answered), func() error {
		s.alive()
		if now := h.Progress(); now.Acked < before.Acked+acked || now.Answered < before.Answered+answered {
			return fmt.Errorf("%s (%+v before)", h, before)
		}
		return nil
	})
}

// judge drains the consumers, reads the stream, and compares it with the history.
func (s *server) judge(js jetstream.JetStream, h *checker.History, consumers ...string) *checker.Verdict {
	s.t.Helper()
	if err := h.Drain(soon(s.t), js, consumers...); err != nil {
		s.t.Errorf("%v", err)
	}
	// Requests of a client that has not noticed the server's end get no answer.
	testutil.Eventually(s.t, "stream "+h.Stream+" is served", func() error {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancel()
		_, err := js.Stream(ctx, h.Stream)
		return err
	})
	entries, err := h.Read(soon(s.t), js)
	if err != nil {
		s.t.Errorf("%v", err)
	}
	v := h.Judge(entries)
	if len(consumers) > 0 || v.Err() != nil {
		s.t.Logf("%s; %s", h, v)
	}
	return v
}
