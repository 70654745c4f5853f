package world

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The seed orders a world's I/O. The Go runtime makes other random choices: which case of a select
// is taken, in which order a map is iterated, when a goroutine is preempted. So worlds run in a
// program whose runtime takes these choices from the seed, too. It is built with go's -overlay,
// from the sources of the toolchain's own runtime with some edits. It has one thread for
// goroutines, each process runs one world, and garbage is collected between steps. Nothing may
// depend on addresses, which differ between processes.
//
// The same runtime lets a bubble's time advance while goroutines wait for a mutex: its holder is in
// the bubble, too, and waits for a disk.

// edit replaces text in one place of a source file. It is an error if the file lacks the old text.
type edit struct{ file, old, new string }

// runtimeEdits are the edits of the toolchain's runtime, below GOROOT.
var runtimeEdits = []edit{
	{"src/runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
	{"src/runtime/rand.go", "		seed[i] = bootstrapRand()\n	}\n	bootstrapRandReseed() // erase key we just extracted\n", "		seed[i] = 1\n	}\n"},
	{"src/runtime/rand.go", "	mp.cheaprand = rand()\n", "	mp.cheaprand = 1\n"},
	{"src/runtime/rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n	if gp := getg(); gp.bubble != nil {\n		return gp.bubble.draw()\n	} else if gp == gp.m.curg {\n		return outside.draw() // packages are initialized by one goroutine, on whichever thread\n	}\n"},
	{"src/runtime/rand.go", "var readRandomFailed bool\n", "var readRandomFailed bool\n\nvar outside synctestBubble\n"},
	{"src/runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := bubbleRand(uint32(norder + 1))"},
	// A select enqueues at its channels in the order of their keys, which are addresses.
	{"src/runtime/select.go", "return uintptr(unsafe.Pointer(c))", "return c.made"},
	{"src/runtime/chan.go", "type hchan struct {\n", "var made uintptr // channels\n\ntype hchan struct {\n	made uintptr\n"},
	{"src/runtime/chan.go", "	c.elemsize = uint16(elem.Size_)\n", "	made++\n	c.made = made\n	c.elemsize = uint16(elem.Size_)\n"},
	{"src/runtime/time.go", "t.rand = cheaprand()", "t.rand = bubbleRand(1 << 31)"},
	{"src/runtime/synctest.go", "	timers  timers\n", "	timers  timers\n	drawn   uint64\n"},
	{"src/runtime/synctest.go", "// changegstatus is called", "// draw is the next number of the bubble's own sequence (splitmix64).\n//\n//go:nosplit\nfunc (bubble *synctestBubble) draw() uint64 {\n	bubble.drawn += 0x9e3779b97f4a7c15\n	z := bubble.drawn\n	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9\n	z = (z ^ z>>27) * 0x94d049bb133111eb\n	return z ^ z>>31\n}\n\n// bubbleRand is for what the runtime decides by chance on behalf of a goroutine.\n//\n//go:nosplit\nfunc bubbleRand(n uint32) uint32 {\n	gp := getg()\n	if gp.bubble == nil && gp.m.curg != nil {\n		gp = gp.m.curg\n	}\n	if gp.bubble == nil {\n		return cheaprandn(n)\n	}\n	return uint32(gp.bubble.draw() % uint64(n))\n}\n\n// changegstatus is called"},
	{"src/runtime/proc.go", "pp.schedtick%61 == 0 && ", "false && "},
	{"src/runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms", "const forcePreemptNS = 1 << 60 // never"},
	{"src/internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 62 // real time decides nothing"},
	{"src/runtime/runtime2.go", "	waitReasonSynctestSelect:        true,\n}", "	waitReasonSynctestSelect:        true,\n	waitReasonSyncMutexLock:         true,\n	waitReasonSyncRWMutexRLock:      true,\n	waitReasonSyncRWMutexLock:       true,\n	waitReasonChanReceive:           true,\n	waitReasonChanSend:              true,\n	waitReasonSelect:                true,\n}"},
}

// Program is a build that runs worlds.
type Program struct{ path string }

// Build makes the program of worlds from the present sources with some mutations. root is the
// repository's folder.
func Build(ctx context.Context, root string, mutations ...Mutation) (*Program, error) {
	goroot, err := toolchain(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the toolchain: %w", err)
	}
	edits := map[string][]edit{} // by path
	for _, e := range runtimeEdits {
		path := filepath.Join(goroot, e.file)
		edits[path] = append(edits[path], e)
	}
	for _, m := range mutations {
		for _, e := range m.Edits {
			path := filepath.Join(root, e.file)
			edits[path] = append(edits[path], e)
		}
	}
	replaced := map[string]string{}
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(edits)) {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, e := range edits[path] {
			if bytes.Count(source, []byte(e.old)) != 1 {
				return nil, fmt.Errorf("%s has %d places that say %q; one is to be replaced: say anew where", path, bytes.Count(source, []byte(e.old)), e.old)
			}
			source = bytes.Replace(source, []byte(e.old), []byte(e.new), 1)
		}
		fmt.Fprintf(sum, "%s %d\n%s", path, len(source), source)
		replaced[path] = string(source)
	}
	// Equal edits share a folder, so that an earlier build is found again.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("carillon-world-%d-%s", os.Getuid(), hex.EncodeToString(sum.Sum(nil)[:8])))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for i, path := range slices.Sorted(maps.Keys(replaced)) {
		file := filepath.Join(dir, strconv.Itoa(i)+"-"+filepath.Base(path))
		if err := writeOnce(file, replaced[path]); err != nil {
			return nil, err
		}
		overlay["Replace"][path] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := writeOnce(filepath.Join(dir, "overlay.json"), string(list)); err != nil {
		return nil, err
	}
	p := &Program{path: filepath.Join(dir, "world.test")}
	build := exec.CommandContext(ctx, filepath.Join(goroot, "bin", "go"), "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", p.path, "./test/world")
	build.Dir = root
	build.Env = append(os.Environ(), "GOROOT="+goroot, "GOTOOLCHAIN=local")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build worlds: %w\n%s", err, out)
	}
	return p, nil
}

// toolchain returns a GOROOT of the toolchain whose files -overlay may replace. It may not replace
// files in the module cache, where fetched toolchains are: those get another path.
func toolchain(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return "", err
	}
	goroot, cache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if !strings.HasPrefix(goroot, cache+string(filepath.Separator)) {
		return goroot, nil
	}
	link := filepath.Join(os.TempDir(), fmt.Sprintf("carillon-goroot-%d-%s", os.Getuid(), filepath.Base(goroot)))
	if err := os.Symlink(goroot, link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return link, nil
}

// writeOnce writes a file unless it has that content already.
func writeOnce(path, text string) error {
	if was, err := os.ReadFile(path); err == nil && string(was) == text {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// request is the input of a process of the program, in worldVariable.
type request struct {
	Seed    uint64
	Faults  []string `json:",omitempty"`
	Found   []Class  `json:",omitempty"`
	Kinds   []string `json:",omitempty"`
	Readers []string `json:",omitempty"`
	Trace   string   `json:",omitempty"` // a file
	Before  int      `json:",omitempty"` // objects of each size that are allocated before
}

const worldVariable = "CARILLON_WORLD"

// worldTime bounds the time of a world. Most take less than a second.
const worldTime = 3 * time.Minute

// resultMark begins the line with a Result.
const resultMark = "RESULT "

// Run runs the world of a seed in a process of its own.
func (p *Program) Run(ctx context.Context, r request) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, worldTime)
	defer cancel()
	asked, err := json.Marshal(r)
	if err != nil {
		return Result{}, err
	}
	cmd := exec.CommandContext(ctx, p.path, "-test.run=^TestOneWorld$", "-test.timeout=10m", "-test.v")
	cmd.Env = append(os.Environ(), worldVariable+"="+string(asked), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1,memprofilerate=0", "GOMEMLIMIT=3GiB") // bounds a world that allocates without end
	out, err := cmd.CombinedOutput()
	for line := range bytes.Lines(out) {
		if rest, ok := bytes.CutPrefix(line, []byte(resultMark)); ok {
			var result Result
			return result, json.Unmarshal(rest, &result)
		}
	}
	if _, what, ok := bytes.Cut(out, []byte("\npanic: ")); ok && ctx.Err() == nil {
		line, _, _ := bytes.Cut(what, []byte("\n"))
		return Result{Broken: "panic: " + string(line), Logs: string(what[:min(len(what), 20_000)])}, nil
	}
	if err == nil {
		err = errors.New("no result")
	}
	return Result{}, fmt.Errorf("seed %d: %w\n%s", r.Seed, err, out[:min(len(out), 20_000)])
}

// parallel is how many worlds run at a time.
func parallel() int { return max(runtime.NumCPU()/2, 1) }
