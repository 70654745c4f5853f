package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-mq/carillon/controllers/pki"
)

// benchStart is how long a benchmark's own cluster may take to start: etcd forms, and three brokers
// register.
const benchStart = 2 * time.Minute

// saidBytes is how much of what its processes have said an error repeats.
const saidBytes = 2 << 10

// benchCluster is brokers and coordinators on loopback, each a process, that a benchmark starts and
// stops.
type benchCluster struct {
	dir          string
	log          string // file with what the processes say
	output       *os.File
	coordinators []*devBroker
	brokers      []*devBroker
	ports        devPorts

	failed                         context.CancelCauseFunc
	endBrokers, endCoordinators    context.CancelFunc
	runningBrokers, runningMembers sync.WaitGroup
}

// startBenchCluster returns when all brokers are ready and know each other.
func startBenchCluster(
	ctx context.Context, parent string, brokers, coordinators int,
) (c *benchCluster, err error) {
	c = &benchCluster{}
	if c.dir, err = os.MkdirTemp(parent, "carillon-bench-"); err != nil {
		return nil, fmt.Errorf("make a folder for the data of brokers (choose one by --data): %w",
			err)
	}
	c.log = filepath.Join(c.dir, "processes.log")
	ctx, c.failed = context.WithCancelCause(ctx)
	err = c.plan(brokers, coordinators)
	if err == nil {
		err = c.start(ctx)
	}
	if err != nil {
		return nil, joinStopped(c.explain(err), c.stop())
	}
	return c, nil
}

// plan chooses all addresses, and the command lines.
func (c *benchCluster) plan(brokers, coordinators int) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start brokers: %w", err)
	}
	tls := filepath.Join(c.dir, devTLSDir)
	if err := c.makeTLS(tls); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if c.output, err = os.Create(c.log); err != nil {
		return err
	}
	all, err := c.ports.free(loopback, 3*coordinators+3*brokers)
	if err != nil {
		return err
	}
	next := func() (address string) {
		address, all = all[0], all[1:]
		return address
	}
	output := &sync.Mutex{}
	process := func(name, http string, arguments ...string) *devBroker {
		return &devBroker{
			name: name, dir: filepath.Join(c.dir,
				name), http: http, program: program, environment: os.Environ(),
			arguments: append(arguments, "--name", name, "--data", filepath.Join(c.dir, name,
				"data"),
				"--tls-dir", tls, "--http-listen", http, "--log-level", "warn"),
			output: &prefixed{mu: output, to: c.output,
				name: name}, log: slog.New(slog.DiscardHandler),
		}
	}
	var clients, peers, members, endpoints []string
	for n := range coordinators {
		clients, peers = append(clients, next()), append(peers, next())
		members = append(members, fmt.Sprintf("coordinator-%d=https://%s", n, peers[n]))
		endpoints = append(endpoints, "https://"+clients[n])
	}
	for n := range coordinators {
		c.coordinators = append(c.coordinators, process("coordinator-"+strconv.Itoa(n), next(),
			"coordinator",
			"--client-listen", clients[n], "--peer-listen", peers[n], "--advertise-host", loopback,
			"--initial-cluster", strings.Join(members, ","), "--cluster-token", "bench"))
	}
	for n := range brokers {
		client, route := next(), next()
		b := process("broker-"+strconv.Itoa(n), next(), "broker", "--cluster", "bench/main",
			"--client-listen", client, "--client-advertise", client, "--route-listen", route, "--route-advertise", route,
			"--etcd-endpoints", strings.Join(endpoints, ","), "--lame-duck", devLameDuck.String(),
			"--disk-stall-limit", "0") // they share one disk, so no other one could lead
		b.client = client
		c.brokers = append(c.brokers, b)
	}
	for _, b := range append(c.coordinators[:coordinators:coordinators], c.brokers...) {
		if err := os.MkdirAll(b.dir, 0o700); err != nil {
			return err
		}
	}
	return c.ports.release(0)
}

// makeTLS makes a CA and the certificate of all processes, which coordinators and links need.
func (c *benchCluster) makeTLS(dir string) error {
	now := time.Now()
	authority, _, err := pki.EnsureAuthority("carillon bench CA", nil, now, rand.Reader)
	if err != nil {
		return err
	}
	leaf := pki.Leaf{Name: "carillon bench", DNSNames: []string{"localhost"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	files, err := authority.EnsureLeaf(leaf, nil, now, rand.Reader)
	if err != nil {
		return err
	}
	return writeFiles(dir, files)
}

// start starts all processes, the coordinators first.
func (c *benchCluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, benchStart,
		fmt.Errorf("brokers and coordinators were not ready after %v", benchStart))
	defer cancel()
	// The processes live until stop, also if ctx ends.
	lives, endMembers := context.WithCancel(context.WithoutCancel(ctx))
	c.endCoordinators = endMembers
	for _, b := range c.coordinators {
		c.runningMembers.Go(func() { b.supervise(lives, c.failed) })
	}
	client := &http.Client{Timeout: devProbeTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}}
	for _, b := range c.coordinators {
		for !b.get(ctx, client, "/healthz/ready", nil) {
			select {
			case <-time.After(devProbe):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		b.ready.Store(true)
	}
	lives, c.endBrokers = context.WithCancel(context.WithoutCancel(ctx))
	for _, b := range c.brokers {
		c.runningBrokers.Go(func() { b.supervise(lives, c.failed) })
	}
	if !awaitCluster(ctx, c.brokers) {
		return context.Cause(ctx)
	}
	return nil
}

// explain adds what the processes said last.
func (c *benchCluster) explain(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	said, _ := os.ReadFile(c.log)
	said = bytes.TrimSpace(said[max(0, len(said)-saidBytes):])
	if len(said) == 0 {
		return fmt.Errorf("start brokers and coordinators: %w", err)
	}
	return fmt.Errorf("start brokers and coordinators: %w\nThey said last:\n%s", err, said)
}

// stop ends the brokers, which end their registrations, then the coordinators, and deletes all
// data.
func (c *benchCluster) stop() (err error) {
	for _, part := range []struct {
		end     context.CancelFunc
		running *sync.WaitGroup
	}{{c.endBrokers, &c.runningBrokers}, {c.endCoordinators, &c.runningMembers}} {
		if part.end != nil {
			part.end()
		}
		part.running.Wait()
	}
	c.failed(nil)
	c.ports.unlock()
	err = c.ports.release(0)
	if c.output != nil {
		err = errors.Join(err, c.output.Close())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// joinStopped adds why the cluster could not be stopped.
func joinStopped(err, stopped error) error {
	if stopped != nil {
		stopped = fmt.Errorf("stop brokers and coordinators: %w", stopped)
	}
	return errors.Join(err, stopped)
}

// urls are those for clients.
func (c *benchCluster) urls() (all []string) {
	for _, b := range c.brokers {
		all = append(all, "nats://"+b.client)
	}
	return all
}

// pids are the processes of the brokers.
func (c *benchCluster) pids() (all []int) {
	for _, b := range c.brokers {
		if pid, err := pidIn(b.dir); err == nil { // else it is being started again
			all = append(all, pid)
		}
	}
	return all
}

// killLeader kills the coordinator that leads, which is started again. On a busy machine it may
// take a while until one leads and says so.
func (c *benchCluster) killLeader(ctx context.Context) error {
	client := &http.Client{Timeout: devProbeTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		for _, b := range c.coordinators {
			if leads(ctx, client, b.http) {
				return killProcess(b)
			}
		}
		select {
		case <-time.After(devProbe):
		case <-ctx.Done():
			return fmt.Errorf("kill the coordinator that leads: none does: %w", context.Cause(ctx))
		}
	}
}

// killProcess kills a process, which is started again.
func killProcess(b *devBroker) error {
	pid, err := pidIn(b.dir)
	if err != nil {
		return fmt.Errorf("kill %s, which leads: %w", b.name, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s, which leads, process %d: %w", b.name, pid, err)
	}
	return nil
}

// leads tells whether a coordinator leads, by its metrics.
func leads(ctx context.Context, client *http.Client, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics",
		nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, longestAnswer))
	return err == nil && bytes.Contains(text, []byte("\netcd_server_is_leader 1\n"))
}

// pidIn returns the process whose folder this is.
func pidIn(dir string) (int, error) {
	text, err := os.ReadFile(pidFile(dir))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
