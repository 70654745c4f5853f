package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// following is `carillon attributes query` while it runs.
type following struct {
	*testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	errs   strings.Builder
}

func (s shell) follows(args ...string) *following {
	s.Helper()
	f := &following{T: s.T, cmd: exec.Command(os.Args[0], append([]string{"attributes", "query", "--timeout", patient, "--server", s.server}, args...)...)}
	f.cmd.Env, f.cmd.Stderr = append(os.Environ(), asCarillon+"=1"), &f.errs
	out, err := f.cmd.StdoutPipe()
	testutil.Must(s, err)
	f.stdout = bufio.NewReader(out)
	testutil.Must(s, f.cmd.Start())
	s.Cleanup(func() { _ = f.cmd.Process.Kill() })
	return f
}

func (f *following) prints(want ...string) {
	f.Helper()
	stuck := time.AfterFunc(2*testutil.Patience, func() { _ = f.cmd.Process.Kill() })
	defer stuck.Stop()
	for _, line := range want {
		got, err := f.stdout.ReadString('\n')
		if got != line+"\n" {
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait() // which is when errs may be read
			f.Fatalf("printed %q, want %q (%v)\n%s", got, line, err, f.errs.String())
		}
	}
}

// stops presses Ctrl-C, which ends it well.
func (f *following) stops() {
	f.Helper()
	testutil.Must(f, f.cmd.Process.Signal(os.Interrupt))
	stuck := time.AfterFunc(2*testutil.Patience, func() { _ = f.cmd.Process.Kill() })
	defer stuck.Stop()
	rest, _ := f.stdout.ReadString(0)
	if err := f.cmd.Wait(); err != nil || rest != "" {
		f.Errorf("after Ctrl-C: %v, and it prints %q\n%s", err, rest, f.errs.String())
	}
}

// TestALiveQueryFromTheCommandLine: members and messages are printed as they come, until Ctrl-C.
func TestALiveQueryFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("attributes set sensors.7 room=410 floor:=4")
	s.does("attributes set sensors.8 room=411")
	some := s.follows(`attributes.room == "410"`, "--content", "json.n == 7")
	text, lines := s.follows(`attributes.room == "410"`), s.follows("--syntax", "cqbs", `room = '410'`, "--filter", "sensors.>", "--output", "json", "--messages=false")
	text.prints("new      sensors.7  floor:=4 room=410")
	lines.prints(`{"event":"new","subject":"sensors.7","attributes":{"floor":4,"room":"410"},"initial":true}`, `{"event":"ready"}`)
	s.does("attributes set sensors.8 room=410")
	s.does("pub sensors.8", "a\x1b[2Jb")
	some.prints("new      sensors.7  floor:=4 room=410", "new      sensors.8  room=410")
	s.does("pub sensors.8", `{"n":7}`)
	some.prints(`message  sensors.8  {"n":7}`)
	some.stops()
	s.does("attributes set other room=410")
	s.does("attributes delete sensors.7")
	text.prints("new      sensors.8  room=410", "message  sensors.8  a [2Jb", `message  sensors.8  {"n":7}`, "new      other  room=410", "del      sensors.7")
	lines.prints(`{"event":"new","subject":"sensors.8","attributes":{"room":"410"}}`, `{"event":"del","subject":"sensors.7"}`)
	text.stops()
	lines.stops()
	if got := text.errs.String(); !strings.HasPrefix(got, "matching subjects: 1; ") {
		t.Errorf("said %q", got)
	}
	s.fails(exitFailure, "(BadRequest)", "attributes query", "attributes.room = 410")
	s.fails(exitUsage, "choose cel or cqbs", "attributes query --syntax sql x")
	s.fails(exitUsage, "leave out one", "attributes query --messages=false --content json.n==7")
	s.fails(exitUsage, "takes one condition", "attributes query a b")
	s.fails(exitUsage, "write a condition", "attributes query --syntax cqbs")
}

// TestEventsAreLines: each kind of event has a line in JSON.
func TestEventsAreLines(t *testing.T) {
	var got strings.Builder
	for _, e := range []client.QueryEvent{
		{Kind: client.EventMessage, Subject: "a", Reply: "r", Header: map[string][]string{"K": {"v"}}, Data: []byte(`{"n":1}`)},
		{Kind: client.EventMessage, Subject: "a", Data: []byte("x")},
		{Kind: client.EventReopened},
	} {
		testutil.Must(t, followPrinters["json"](&got, &e))
		testutil.Must(t, followPrinters["text"](&got, &e))
	}
	want := []string{
		`{"event":"message","subject":"a","reply":"r","header":{"K":["v"]},"json":{"n":1}}`, `message  a  {"n":1}`,
		`{"event":"message","subject":"a","data":"eA=="}`, `message  a  x`, `{"event":"reopened"}`, "",
	}
	if lines := strings.Split(got.String(), "\n"); !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}
