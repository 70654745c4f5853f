package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of faults.
const (
	FaultKill  = "kill"  // SIGKILL; somebody else starts it again
	FaultPause = "pause" // SIGSTOP, and later SIGCONT
	FaultCut   = "cut"   // from the network, by a command
	// FaultOther is a fault elsewhere than at the leader's broker, caused by a command: of etcd,
	// for example.
	FaultOther = "other"
)

// A Fault is what happens to the broker that leads.
type Fault struct {
	Kind string
	// For is how long it is paused or cut off; of a kill, how long is watched at least.
	For time.Duration
	// Command does it instead of a signal: it is run by sh with KIND and the broker's name behind
	// it, and later, unless the kind is kill, with heal and the name.
	Command string
}

const (
	commandTimeout = 30 * time.Second
	// commandOutput bounds how much of what a command that failed said is repeated.
	commandOutput = 400
)

func (f Fault) check() error {
	switch f.Kind {
	case FaultKill, FaultPause:
	case FaultCut, FaultOther:
		if f.Command == "" {
			return fmt.Errorf("only a command can do the fault %q; give --fault-command", f.Kind)
		}
	default:
		return fmt.Errorf("fault is %q; give %s, %s, %s or %s", f.Kind, FaultKill, FaultPause, FaultCut, FaultOther)
	}
	return nil
}

// Processes finds the process of a broker of this machine by the name that the broker has.
type Processes struct {
	// Pattern is the path of files that hold a process id: %s stands for the broker's name, %d for
	// the number at its end.
	Pattern string
	PIDs    map[string]int
}

// ParseProcesses reads a pattern, and name=pid pairs with commas between them; either may be empty.
func ParseProcesses(pattern, pairs string) (Processes, error) {
	p := Processes{Pattern: pattern}
	if pattern != "" && strings.Count(pattern, "%d")+strings.Count(pattern, "%s") == 0 {
		return p, fmt.Errorf("the pattern %q has neither %%d (the number at the end of a broker's name) nor %%s (the name)", pattern)
	}
	if pairs == "" {
		return p, nil
	}
	p.PIDs = map[string]int{}
	for _, pair := range strings.Split(pairs, ",") {
		name, number, found := strings.Cut(strings.TrimSpace(pair), "=")
		pid, err := strconv.Atoi(number)
		if !found || name == "" || err != nil || pid < 2 {
			return p, fmt.Errorf("%q is not NAME=PID", pair)
		}
		p.PIDs[name] = pid
	}
	return p, nil
}

func (p Processes) none() bool { return p.Pattern == "" && len(p.PIDs) == 0 }

var numberAtEnd = regexp.MustCompile(`[0-9]+$`)

// find returns the process that the broker is now.
func (p Processes) find(name string) (int, error) {
	if pid, known := p.PIDs[name]; known {
		return pid, nil
	}
	if p.Pattern == "" {
		return 0, fmt.Errorf("which process is broker %q? --pids has %d others", name, len(p.PIDs))
	}
	number := numberAtEnd.FindString(name)
	if number == "" && strings.Contains(p.Pattern, "%d") {
		return 0, fmt.Errorf("the name of broker %q ends in no number, which %%d in %q stands for; use %%s", name, p.Pattern)
	}
	path := strings.ReplaceAll(strings.ReplaceAll(p.Pattern, "%d", number), "%s", name)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("find the process of broker %q: %w", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 || pid == os.Getpid() {
		return 0, fmt.Errorf("find the process of broker %q: %s holds %.20q, which is no process id of one", name, path, text)
	}
	return pid, nil
}

// strike begins the fault and returns what ends it, also if it may have begun only in part.
func (f Fault) strike(ctx context.Context, p Processes, name string) (heal func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	if f.Command != "" {
		heal = func(ctx context.Context) error { return f.command(ctx, "heal", name) }
		if f.Kind == FaultKill {
			heal = nothing
		}
		return heal, f.command(ctx, f.Kind, name)
	}
	pid, err := p.find(name)
	if err != nil {
		return nothing, err
	}
	signal := func(s unix.Signal) error {
		if err := unix.Kill(pid, s); err != nil {
			return fmt.Errorf("send %v to process %d, broker %q: %w", s, pid, name, err)
		}
		return nil
	}
	if f.Kind == FaultKill {
		return nothing, signal(unix.SIGKILL)
	}
	if err := signal(unix.SIGSTOP); err != nil {
		return nothing, err
	}
	return func(context.Context) error { return signal(unix.SIGCONT) }, nil
}

// command runs to its end, also if ctx ends meanwhile: of a command that is killed nobody knows
// what it has done, and healing what it has not done may fail.
func (f Fault) command(ctx context.Context, action, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", f.Command+` "$@"`, "sh", action, name)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s %s: %w: %.*s", f.Command, action, name, err, commandOutput, strings.TrimSpace(said.String()))
	}
	return nil
}
