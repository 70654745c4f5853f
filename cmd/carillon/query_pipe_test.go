package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAQueryEndsWithTheReaderOfItsPipe: also while nothing matches, so that it prints nothing. It
// ends as what prints into such a pipe does.
func TestAQueryEndsWithTheReaderOfItsPipe(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders")
	s.does("pub --ack orders.a", `{"total":1}`)
	for _, more := range [][]string{
		{"--where", "json.total == 1"},
		{"--aggregate", "count()"}, // prints nothing before its end
	} {
		cmd := exec.Command(os.Args[0],
			append([]string{"query", "orders", "--follow", "--timeout", patient, "--server", s.server}, more...)...)
		var said bytes.Buffer
		cmd.Env, cmd.Stderr = append(os.Environ(), asCarillon+"=1"), &said
		out, err := cmd.StdoutPipe()
		testutil.Must(t, err)
		testutil.Must(t, cmd.Start())
		stuck := time.AfterFunc(2*testutil.Patience, func() { _ = cmd.Process.Kill() })
		if more[0] == "--where" {
			if line, err := bufio.NewReader(out).ReadString('\n'); line == "" {
				t.Errorf("it prints nothing: %v", err)
			}
		}
		testutil.Must(t, out.Close())
		_ = cmd.Wait()
		stuck.Stop()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGPIPE || said.Len() > 0 {
			t.Errorf("%q ends: %v\n%s", more, cmd.ProcessState, said.String())
		}
	}
}

// TestOnlyAPipeWithoutAReaderEndsAQuery: files, and pipes that are read, don't.
func TestOnlyAPipeWithoutAReaderEndsAQuery(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	testutil.Must(t, err)
	defer func() { _ = file.Close() }()
	if pipeOf(file) != nil || pipeOf(new(bytes.Buffer)) != nil {
		t.Error("a file is taken for a pipe")
	}
	r, w, err := os.Pipe()
	testutil.Must(t, err)
	defer func() { _ = w.Close() }()
	if pipeOf(w) != w || readerGone(w) {
		t.Error("a pipe that is read is taken for another")
	}
	testutil.Must(t, r.Close())
	if !readerGone(w) {
		t.Error("its reader is taken to be there")
	}
}
