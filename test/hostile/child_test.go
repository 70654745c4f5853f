//go:build e2e && linux

package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A process of this suite is this test binary again. It joins the cgroup in envGroup first. Then it
// becomes the program in its arguments, or plays the role in envRole.
const (
	envGroup  = "HOSTILE_CHILD_GROUP"
	envRole   = "HOSTILE_CHILD_ROLE"   // attacker or bystander
	envTarget = "HOSTILE_CHILD_TARGET" // a target in JSON
	envAttack = "HOSTILE_CHILD_ATTACK" // the attacker's
)

// target is what clients know of the servers. Each list has an element per broker.
type target struct {
	Clients, HTTP, WebSockets, Routes []string // host:port

	Peer   bool // it is nats-server
	Users  bool // clients have to name a user and a password
	Stream bool // the bystander publishes to a stream, too
	CA     string
}

// command returns a command of this binary, in the cgroup of a side. It ends with this process.
func command(g *groups, side string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(append(os.Environ(), envGroup+"="+g.of(side)), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// child plays the part of a process that command started. It returns if this is not one.
func child() {
	dir := os.Getenv(envGroup)
	if dir == "" {
		return
	}
	err := join(dir)
	if err == nil {
		err = play()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play() error {
	role := os.Getenv(envRole)
	if role == "" {
		var env []string
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "HOSTILE_CHILD_") {
				env = append(env, v)
			}
		}
		return syscall.Exec(os.Args[1], os.Args[1:], env)
	}
	var t target
	if err := json.Unmarshal([]byte(os.Getenv(envTarget)), &t); err != nil {
		return err
	}
	if role == "bystander" {
		return stand(t, os.Stdin, os.Stdout)
	}
	for _, a := range attacks {
		if a.name == os.Getenv(envAttack) {
			return assault(t, a, os.Stdin, os.Stdout)
		}
	}
	return fmt.Errorf("there is no attack %q", os.Getenv(envAttack))
}

// partner is a running attacker or bystander. It reads lines of words and answers in JSON.
type partner struct {
	cmd    *exec.Cmd
	words  io.WriteCloser
	says   *json.Decoder
	ending bool
}

// startPartner starts an attacker or a bystander.
func startPartner(g *groups, role string, t target, attack string) (*partner, error) {
	about, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	p := &partner{cmd: command(g, role, []string{envRole + "=" + role, envTarget + "=" + string(about), envAttack + "=" + attack})}
	p.cmd.Stderr = os.Stderr
	if p.words, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.says = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", role, err)
	}
	return p, nil
}

// say sends a line.
func (p *partner) say(line string) error {
	_, err := io.WriteString(p.words, line+"\n")
	return err
}

// hear waits for an answer.
func (p *partner) hear(limit time.Duration, into any) error {
	late := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if err := p.says.Decode(into); err != nil {
		return fmt.Errorf("%s: no answer within %s: %w", p.role(), limit, err)
	}
	return nil
}

func (p *partner) role() string {
	for _, v := range p.cmd.Env {
		if role, ok := strings.CutPrefix(v, envRole+"="); ok {
			return role
		}
	}
	return "process"
}

// end ends the process, and waits for it.
func (p *partner) end() {
	if p == nil || p.ending {
		return
	}
	p.ending = true
	_ = p.words.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}
