//go:build e2e && linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/disk"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// patience bounds every wait of a test. A passing test never waits that long; the proof of the
// judge does, for conditions that do not come.
var patience = 90 * time.Second

// clientOptions make clients detect within seconds that no server answers.
var clientOptions = []nats.Option{nats.PingInterval(time.Second), nats.MaxPingsOutstanding(3)}

var (
	folder *disk.Folder // of this run; all its files and mounts are below it
	lan    *network
	seed   uint64
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv("CHAOS_INSIDE") == "" {
		return 0, errors.New("these tests take networks and disks apart, and run in namespaces of their own: call test/chaos/run")
	}
	if folder, err = disk.NewFolder(os.Getenv("CHAOS_DIR"), "carillon-chaos-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, folder.Remove()) }()
	if lan, err = newNetwork(); err != nil {
		return 0, err
	}
	if seed, err = checker.Seed("CHAOS_SEED"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// binary builds carillon once.
var binary = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("CHAOS_PROGRAM"); program != "" {
		return program, nil
	}
	return build("carillon")
})

// build builds carillon, with additional arguments for the compiler.
func build(name string, args ...string) (string, error) {
	path := filepath.Join(folder.Dir, name)
	args = append([]string{"build", "-ldflags", "-s -w", "-o", path}, args...)
	cgo := "0"
	if os.Getenv("CHAOS_RACE") != "" {
		args, cgo = append(args, "-race"), "1"
	}
	cmd := exec.Command("go", append(args, "../../cmd/carillon")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build carillon: %w: %s", err, out)
	}
	return path, nil
}

// setting parses an environment variable.
func setting[T any](t *testing.T, name string, def T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	v, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// chosenKinds returns the faults that CHAOS_FAULTS names, or all.
func chosenKinds(t *testing.T) (chosen []Kind) {
	t.Helper()
	text := os.Getenv("CHAOS_FAULTS")
	if text == "" {
		return Kinds
	}
	for name := range strings.SplitSeq(text, ",") {
		known := false
		for _, k := range Kinds {
			if string(k) == name {
				chosen, known = append(chosen, k), true
			}
		}
		if !known {
			t.Fatalf("CHAOS_FAULTS: %q is none of %v", name, Kinds)
		}
	}
	return chosen
}

// within repeats check until it returns nil. After the limit it returns its last error.
func within(limit time.Duration, what string, check func() error) error {
	return testutil.Within(limit, 50*time.Millisecond, what, check)
}
