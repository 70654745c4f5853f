//go:build e2e && linux

package durability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/test/disk"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// patience bounds every wait of a test. A passing test never waits that long.
const patience = 40 * time.Second

var (
	folder *disk.Folder
	runDir string // of this run; all its files and mounts are below it
	seed   uint64
)

// dirPrefix is the prefix of the folders of all runs, by which a later run finds them.
const dirPrefix = "carillon-durability-"

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "durability:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if folder, err = disk.NewFolder(os.Getenv("DURABILITY_DIR"), dirPrefix); err != nil {
		return 0, err
	}
	runDir = folder.Dir
	defer func() { err = errors.Join(err, folder.Remove()) }()
	if seed, err = checker.Seed("DURABILITY_SEED"); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// built builds carillon once.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(runDir, "carillon")
	build := exec.Command("go", "build", "-o", path, "../../cmd/carillon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build carillon: %w: %s", err, out)
	}
	return path, nil
})

// moments returns a source of random moments for one test, the same for the same seed.
func moments(t *testing.T) *rand.Rand {
	name := uint64(0)
	for _, c := range t.Name() {
		name = name*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, name))
}

// upTo returns a random duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// rounds returns how often a fault is repeated.
func rounds(t *testing.T, n int) int {
	t.Helper()
	times := 1
	if s := os.Getenv("DURABILITY_ROUNDS"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil || times < 1 {
			t.Fatalf("DURABILITY_ROUNDS is %q, not a number from 1", s)
		}
	}
	return n * times
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
