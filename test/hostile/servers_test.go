//go:build e2e && linux

package hostile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// The memory of the profile small, in bytes, and what the Go runtime gets of it, as
// controllers/build/profile.go gives them to pods.
const (
	brokerMemory, coordinatorMemory = 640 << 20, 256 << 20
	runtimeShare                    = 85 // percent
	maxPayload                      = 8 << 20
)

// servers are one broker or several, of Carillon or of nats-server.
type servers struct {
	target target
	// processes are what is judged, by name: pid and limit.
	processes []process

	started []*exec.Cmd
	logs    []string
	release func() // of ports
}

// process is a process whose memory is judged.
type process struct {
	name  string
	pid   int
	limit int64
}

func runtimeEnv(memory int64) []string {
	return []string{"GOMAXPROCS=1", fmt.Sprint("GOMEMLIMIT=", memory*runtimeShare/100)}
}

// hashes are the users' passwords by bcrypt, for files of users.
var hashes = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for name, password := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
		if err != nil {
			panic(err)
		}
		all[name] = string(hash)
	}
	return all
})

// start starts a process of the brokers' side.
func (s *servers) start(g *groups, dir, name string, memory int64, args ...string) (*exec.Cmd, io.Reader, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the process has its own
	cmd := command(g, "broker", runtimeEnv(memory), args...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.started, s.logs = append(s.started, cmd), append(s.logs, log.Name())
	return cmd, out, nil
}

// stop ends the servers, and waits for them.
func (s *servers) stop() {
	for _, cmd := range s.started {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range s.started {
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	}
	if s.release != nil {
		s.release()
	}
}

// ended returns which of the processes no longer run.
func (s *servers) ended() (all []string) {
	for _, p := range s.processes {
		if _, _, err := resident(p.pid); err != nil {
			all = append(all, p.name+" ended under attack")
		}
	}
	return all
}

// lastWords returns the end of the logs.
func (s *servers) lastWords() string {
	var all strings.Builder
	for _, name := range s.logs {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&all, "%s ends with:\n%s\n", filepath.Base(name), text[max(0, len(text)-3000):])
	}
	return all.String()
}

// addresses returns n addresses of loopback that nothing listens on.
func (s *servers) addresses(n int) ([]string, error) {
	ports, release, err := testutil.ReservePorts(n)
	if err != nil {
		return nil, err
	}
	s.release = release
	all := make([]string, n)
	for i, port := range ports {
		all[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return all, nil
}

// startCarillon starts `carillon dev` with its data below dir.
func startCarillon(g *groups, program, dir string, a attack, brokers int) (s *servers, err error) {
	s = &servers{target: target{Users: a.users, Stream: a.stream}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s.lastWords())
			s.stop()
		}
	}()
	data := filepath.Join(dir, "carillon")
	args := []string{program, "dev", "--data", data, "--profile", "small", "--brokers", strconv.Itoa(brokers)}
	memory := int64(brokerMemory)
	if brokers == 1 {
		memory += coordinatorMemory // they are one process
		at, err := s.addresses(3)
		if err != nil {
			return s, err
		}
		s.target.Clients, s.target.HTTP, s.target.WebSockets = at[:1], at[1:2], at[2:]
		args = append(args, "--listen", at[0], "--http-listen", at[1], "--websocket-listen", at[2])
	} else {
		args = append(args, "--listen", "127.0.0.1:0", "--websocket-listen", "127.0.0.1:0")
	}
	if a.users {
		var list []string
		for name, hash := range hashes() {
			list = append(list, fmt.Sprintf(`{"name":%q,"passwords":[%q]}`, name, hash))
		}
		file := filepath.Join(dir, "users.json")
		if err := os.WriteFile(file, []byte(`{"users":[`+strings.Join(list, ",")+`]}`), 0o600); err != nil {
			return s, err
		}
		args = append(args, "--users", file)
	}
	if a.tls {
		args = append(args, "--tls")
		s.target.CA = filepath.Join(data, "tls", "ca.crt")
	}
	cmd, out, err := s.start(g, dir, "carillon", memory, args...)
	if err != nil {
		return s, err
	}
	stuck := time.AfterFunc(prepareTime, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready: ") {
		return s, fmt.Errorf("carillon said %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // it ends with the process
	if brokers == 1 {
		s.processes = []process{{"broker", cmd.Process.Pid, memory}}
		return s, nil
	}
	s.processes = []process{{"coordinator", cmd.Process.Pid, coordinatorMemory}}
	for n := range brokers {
		if err := s.find(data, n); err != nil {
			return s, err
		}
	}
	return s, nil
}

// find reads the pid and the addresses of a broker of a cluster.
func (s *servers) find(data string, n int) error {
	text, err := os.ReadFile(filepath.Join(data, "broker-"+strconv.Itoa(n), "pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return err
	}
	all := strings.Split(string(arguments), "\x00")
	for flag, into := range map[string]*[]string{
		"--client-listen": &s.target.Clients, "--http-listen": &s.target.HTTP, "--websocket-listen": &s.target.WebSockets, "--route-listen": &s.target.Routes,
	} {
		at := slices.Index(all, flag)
		if at < 0 || at+1 == len(all) {
			return fmt.Errorf("broker %d has no %s: %q", n, flag, all)
		}
		*into = append(*into, all[at+1])
	}
	s.processes = append(s.processes, process{"broker-" + strconv.Itoa(n), pid, brokerMemory})
	return nil
}

// startPeer starts nats-servers with the same limits. With TLS they have the certificate that
// startCarillon has made in dir.
func startPeer(g *groups, program, dir string, a attack, brokers int) (s *servers, err error) {
	s = &servers{target: target{Peer: true, Users: a.users, Stream: a.stream}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, s.lastWords())
			s.stop()
		}
	}()
	at, err := s.addresses(4 * brokers)
	if err != nil {
		return s, err
	}
	t := &s.target
	t.Clients, t.HTTP, t.WebSockets, t.Routes = at[:brokers], at[brokers:2*brokers], at[2*brokers:3*brokers], at[3*brokers:]
	more := ""
	if a.users {
		var list []string
		for name, hash := range hashes() {
			list = append(list, fmt.Sprintf("{user: %q, password: %q}", name, hash))
		}
		more = "authorization { users: [" + strings.Join(list, ", ") + "] }\n"
	}
	if a.tls {
		made := filepath.Join(dir, "carillon", "tls")
		t.CA = filepath.Join(made, "ca.crt")
		more += fmt.Sprintf("tls { cert_file: %q, key_file: %q }\n", filepath.Join(made, "tls.crt"), filepath.Join(made, "tls.key"))
	}
	for n := range brokers {
		name := "peer-" + strconv.Itoa(n)
		text := fmt.Sprintf("server_name: %s\nlisten: %s\nhttp: %s\nmax_payload: %d\nwebsocket { listen: %s, no_tls: true }\njetstream { store_dir: %q }\n%s",
			name, t.Clients[n], t.HTTP[n], maxPayload, t.WebSockets[n], filepath.Join(dir, name), more)
		if brokers > 1 {
			text += fmt.Sprintf("cluster { name: peers, listen: %s, routes: [nats://%s] }\n", t.Routes[n], strings.Join(t.Routes, ", nats://"))
		}
		file := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return s, err
		}
		cmd, out, err := s.start(g, dir, name, brokerMemory, program, "-c", file)
		if err != nil {
			return s, err
		}
		go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
		s.processes = append(s.processes, process{name, cmd.Process.Pid, brokerMemory})
	}
	return s, errors.Join(s.listen(t.Clients), s.listen(t.HTTP))
}

// listen waits until something listens on the addresses.
func (s *servers) listen(all []string) error {
	for _, address := range all {
		err := testutil.Within(prepareTime, 50*time.Millisecond, address+" takes connections", func() error {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				err = conn.Close()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
