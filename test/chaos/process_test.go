//go:build e2e && linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a broker or a coordinator through all its lives. While it is wanted, it is restarted
// when it ends, as a kubelet would do.
type process struct {
	node    int
	args    []string
	env     []string
	volume  volume
	logFile *os.File
	note    func(format string, args ...any)

	// down is held by a fault that stops the process and starts it later, and needs it to stay down
	// in between.
	down sync.Mutex

	mu     sync.Mutex
	wanted bool
	still  bool
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	lives  int
	shift  time.Duration // of a broker's clock
}

// restartPause is the pause before a process that ended by itself is restarted.
const restartPause = 300 * time.Millisecond

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	return p.startLocked()
}

func (p *process) startLocked() error {
	if p.cmd != nil {
		return nil
	}
	line := inside(p.node, p.args[0], p.args[1:]...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = p.logFile, p.logFile
	if err := cmd.Start(); err != nil {
		return err
	}
	p.lives++
	fmt.Fprintf(p.logFile, "--- life %d, %s\n", p.lives, time.Now().UTC().Format(time.RFC3339Nano))
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.cmd, p.still = nil, false
		again := p.wanted
		p.mu.Unlock()
		close(ended)
		if again {
			p.note("%s ended by itself: %v", nodeName(p.node), err)
			time.Sleep(restartPause)
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.wanted {
				if err := p.startLocked(); err != nil {
					p.note("%s does not start: %v", nodeName(p.node), err)
				}
			}
		}
	}()
	return nil
}

// kill ends the process at once; it is not restarted.
func (p *process) kill() {
	if cmd, ended := p.unwant(); cmd != nil {
		_ = cmd.Process.Kill()
		<-ended
	}
}

// stop ends the process in order, and waits for that; it is not restarted.
func (p *process) stop() error {
	cmd, ended := p.unwant()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return nil
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-ended
		return fmt.Errorf("%s still ran %v after SIGTERM", nodeName(p.node), patience)
	}
}

// again stops and restarts the process.
func (p *process) again() error {
	p.down.Lock()
	defer p.down.Unlock()
	return errors.Join(p.stop(), p.start())
}

// unwant keeps the process from being restarted when it ends. It returns the running command, if
// there is one.
func (p *process) unwant() (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = false
	return p.cmd, p.ended
}

// pause stops the process until it is resumed: no thread runs, except in a system call that it is
// in.
func (p *process) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	pid := p.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil // it has just died
	}
	p.still = true
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		moving := 0
		for _, file := range threads {
			stat, _ := os.ReadFile(file)
			if at := bytes.LastIndexByte(stat, ')'); at < 0 || !strings.ContainsRune("TtDZX", rune(stat[at+2])) {
				moving++
			}
		}
		if moving == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not stand still", nodeName(p.node))
		}
	}
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.still {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
	p.still = false
}

// remount mounts the process's volume again, with its synced data, when the kernel has released it.
func (p *process) remount() error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = p.volume.Again(); err == nil {
			return nil
		}
	}
	return err
}

// shiftClock writes the file from which a broker takes the offset of its clock.
func (p *process) shiftClock(path string, by time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shift = by
	if err := os.WriteFile(path+".new", fmt.Append(nil, by), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
