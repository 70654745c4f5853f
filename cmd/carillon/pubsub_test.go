package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// command runs one command line to its end.
func command(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), asCarillon+"=1"), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestPublishedMessagesArePrinted: sub prints what pub publishes.
func TestPublishedMessagesArePrinted(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir(), "--token", "secret")
	defer dev.stop()
	for output, want := range map[string]string{
		"text": "greet.world (reply to answers)\n  Kind: a\n  Kind: b\nhello\n",
		"json": `{"subject":"greet.world","reply":"answers","header":{"Kind":["a","b"]},"data":"aGVsbG8="}` + "\n",
		"raw":  "hello\n",
	} {
		type result struct {
			out, errs string
			code      int
		}
		done := make(chan result, 1)
		go func() {
			var r result
			r.out, r.errs, r.code = command(t, "", "sub", "greet.>", "--server", dev.url, "--token", "secret", "--count", "1", "--timeout", testutil.Patience.String(), "--output", output)
			done <- r
		}()
		// Whether the other terminal is there yet shows only when it has a message.
		for deadline := time.Now().Add(testutil.Patience); ; {
			out, errs, code := command(t, "hello", "pub", "greet.world", "--server", dev.url, "--token", "secret", "--header", "Kind:a", "--header", "Kind: b", "--reply", "answers")
			if code != 0 || out != "published 1 × 5 bytes to greet.world\n" {
				t.Fatalf("pub: %d %q %q", code, out, errs)
			}
			select {
			case r := <-done:
				if r.code != 0 || r.out != want {
					t.Errorf("%s: %d %q %q, want %q", output, r.code, r.out, r.errs, want)
				}
			default:
				if time.Now().Before(deadline) {
					continue
				}
				t.Fatal("nothing arrived")
			}
			break
		}
	}
}

func TestErrorsOfPubAndSubAreReported(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir(), "--token", "secret")
	defer dev.stop()
	server := []string{"--server", dev.url, "--token", "secret"}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pub", "a", "b", "--server", dev.url}, exitFailure, "refuses these credentials"},
		{[]string{"pub", "a", "b", "--server", "nats://127.0.0.1:1"}, exitFailure, "is the server running"},
		{append(server, "pub", "a.*", "b"), exitUsage, "not a subject to publish to"},
		{append(server, "pub", "a", "b", "c"), exitUsage, "at most one message"},
		{append(server, "pub", "a", "b", "--header", "x"), exitUsage, "NAME:VALUE"},
		{append(server, "pub", "a", "b", "--count", "0"), exitUsage, "at least one"},
		{append(server, "pub", "a", strings.Repeat("x", 100<<10), "--count", "1"), 0, ""},
		{append(server, "sub"), exitUsage, "at least one subject"},
		{append(server, "sub", "a..b"), exitUsage, "subscribe to"},
		{append(server, "sub", "a", "--output", "xml"), exitUsage, "text, json or raw"},
		{append(server, "sub", "a", "--count", "1", "--timeout", "50ms"), exitFailure, "0 of 1 messages"},
		{append(server, "sub", "a", "--timeout", "50ms"), 0, ""},
	} {
		args := tc.args
		if args[0] == "--server" { // the command comes first
			args = append(append([]string{}, args[4:]...), server...)
		}
		_, errs, code := command(t, "", args...)
		if code != tc.code || !strings.Contains(errs, tc.want) {
			t.Errorf("carillon %.80q: exit code %d, want %d and %q:\n%.300s", args, code, tc.code, tc.want, errs)
		}
	}
	big := strings.Repeat("x", 9<<20)
	if _, errs, code := command(t, big, append([]string{"pub", "a"}, server...)...); code != exitFailure || !strings.Contains(errs, "longer than the 8388608 bytes") {
		t.Errorf("a message that is too long: %d %q", code, errs)
	}
}
