//go:build e2e && linux

package chaos

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// network is a bridge in the namespace of this process, with a namespace for each broker and
// coordinator. All of these are in namespaces that test/chaos/run made for the run, so that nothing
// outlives the run.
type network struct {
	mu   sync.Mutex
	cuts map[int][]int // blocked senders, by receiver
}

// address returns a node's address; clients are this process.
func address(n int) string {
	if n == clients {
		return "10.77.0.1"
	}
	return fmt.Sprintf("10.77.0.%d", 11+n)
}

func command(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func newNetwork() (*network, error) {
	lines := []string{"link set lo up", "link add lan type bridge", "address add " + address(clients) + "/24 dev lan", "link set lan up"}
	for n := range clients {
		name := nodeName(n)
		lines = append(lines, "netns add "+name, "link add eth0 netns "+name+" type veth peer name "+name, "link set "+name+" master lan up",
			"-n "+name+" link set lo up", "-n "+name+" address add "+address(n)+"/24 dev eth0", "-n "+name+" link set eth0 up")
	}
	for _, line := range lines {
		if err := command("", "ip", strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	return &network{cuts: map[int][]int{}}, nil
}

// inside returns the command that runs a program in a node's namespace.
func inside(node int, program string, args ...string) []string {
	return append([]string{"nsenter", "--net=/run/netns/" + nodeName(node), program}, args...)
}

// cut drops exactly the directions that cuts name.
func (w *network) cut(cuts []Cut) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[int][]int{}
	for _, c := range cuts {
		all[c.To] = append(all[c.To], c.From)
	}
	for n := range nodes {
		slices.Sort(all[n])
		if slices.Equal(all[n], w.cuts[n]) {
			continue
		}
		rules := "*filter\n:INPUT ACCEPT [0:0]\n"
		for _, from := range all[n] {
			rules += "-A INPUT -s " + address(from) + " -j DROP\n"
		}
		restore := []string{"iptables-restore", "--wait", "10"}
		if n != clients {
			restore = inside(n, restore[0], restore[1:]...)
		}
		if err := command(rules+"COMMIT\n", restore[0], restore[1:]...); err != nil {
			return err
		}
	}
	w.cuts = all
	return nil
}

// narrow limits the rate at which packets arrive at nodes. It delays packets by at most by, and
// drops the rest; a rate of 0 ends the limit.
func (w *network) narrow(which []int, rate int, by time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, n := range which {
		args := []string{"qdisc", "del", "dev", nodeName(n), "root"}
		if rate > 0 {
			args = []string{"qdisc", "replace", "dev", nodeName(n), "root", "tbf", "rate", fmt.Sprintf("%dkbit", rate), "burst", "16kb", "latency", fmt.Sprintf("%dms", by.Milliseconds())}
		}
		errs = append(errs, command("", "tc", args...))
	}
	return errors.Join(errs...)
}
