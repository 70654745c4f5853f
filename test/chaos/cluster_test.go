//go:build e2e && linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// cluster is three coordinators and three or four brokers, each a process with a network namespace
// and a volume of its own. One broker's volume is a disk whose faults the test controls.
type cluster struct {
	t         *testing.T
	dir       string
	network   *network
	processes []*process // by node
	bootstrap string     // the file that says that etcd has formed
	endpoints []string   // of etcd
	ca        *testca.CA // of all certificates

	nc      *nats.Conn // a client that connects to any broker
	js      jetstream.JetStream
	streams []string // the streams that have to become whole
	spared  []string // ids of Topics whose files are not damaged

	mu      sync.Mutex
	members [brokers]bool // the brokers that are, or should be, present
	flipped [brokers]bool // the brokers with a flipped bit in a file
	harms   harms
	notes   []string
	began   time.Time
}

const (
	volumeMegabytes = 384
	// answerTime is how long the test itself waits for one answer.
	answerTime = 5 * time.Second
)

// startNodes starts the processes of all nodes, each with a volume and a network of its own.
func startNodes(t *testing.T, w *network, o worldOptions) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp(folder.Dir, "world-")
	testutil.Must(t, err)
	c := &cluster{t: t, dir: dir, network: w, began: time.Now(), bootstrap: filepath.Join(dir, "bootstrapped"), ca: testca.New(t)}
	var ips []net.IP
	var initial []string
	for n := range clients {
		ips = append(ips, net.ParseIP(address(n)))
		if n >= brokers {
			initial = append(initial, fmt.Sprintf("%s=https://%s:2380", nodeName(n), address(n)))
			c.endpoints = append(c.endpoints, fmt.Sprintf("https://%s:2379", address(n)))
		}
	}
	for _, user := range []string{brokerUser, coordinatorUser} {
		testutil.Must(t, os.Mkdir(c.tls(user), 0o700))
		c.ca.Issue(t, c.tls(user), testca.Options{Subject: user, IPs: ips, NotAfter: time.Now().Add(240 * time.Hour)})
	}
	t.Cleanup(c.remove)
	for n := range clients {
		at := filepath.Join(dir, nodeName(n))
		volume, err := newVolume(dir, at, o.megabytes, n == o.faulty)
		testutil.Must(t, err)
		log, err := os.Create(at + ".log")
		testutil.Must(t, err)
		p := &process{node: n, volume: volume, logFile: log, note: c.note}
		data := filepath.Join(at, "data")
		if n < brokers {
			testutil.Must(t, p.shiftClock(c.clockFile(n), 0))
			p.env = []string{"CARILLON_TEST_CLOCK=" + c.clockFile(n)}
			p.args = []string{o.program, "broker", "--name", nodeName(n), "--cluster", clusterName, "--data", data,
				"--client-advertise", address(n) + ":4222", "--route-advertise", address(n) + ":6222", "--http-advertise", address(n) + ":8222",
				"--etcd-endpoints", strings.Join(c.endpoints, ","), "--tls-dir", c.tls(brokerUser), "--lame-duck", "100ms"}
		} else {
			p.args = []string{o.program, "coordinator", "--name", nodeName(n), "--data", data, "--tls-dir", c.tls(coordinatorUser), "--advertise-host", address(n),
				"--initial-cluster", strings.Join(initial, ","), "--cluster-token", "chaos", "--bootstrapped-file", c.bootstrap}
		}
		if level := os.Getenv("CHAOS_LOG"); level != "" {
			p.args = append(p.args, "--log-level", level)
		}
		c.processes = append(c.processes, p)
	}
	for n := range clients {
		if n < founders {
			c.members[n] = true
		}
		if n < founders || n >= brokers {
			testutil.Must(t, c.processes[n].start())
		}
	}
	c.connect()
	return c
}

// tls returns the folder with the certificate of a user of etcd.
func (c *cluster) tls(user string) string { return filepath.Join(c.dir, "tls-"+user) }

// there returns the brokers that are, or should be, present.
func (c *cluster) there() (nodes []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, is := range c.members {
		if is {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (c *cluster) clockFile(n int) string { return filepath.Join(c.dir, nodeName(n)+".clock") }

func (c *cluster) url(n int) string { return "nats://" + address(n) + ":4222" }

func (c *cluster) urls() string {
	var all []string
	for n := range brokers {
		all = append(all, c.url(n))
	}
	return strings.Join(all, ",")
}

// note logs an event, with the time since the cluster began.
func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf("%s %7.3f ", time.Now().UTC().Format("15:04:05.000"), time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
}

// remove ends all processes and releases all resources. After a failed test it keeps logs and
// volumes in CHAOS_KEEP.
func (c *cluster) remove() {
	for _, p := range c.processes {
		p.kill()
	}
	_ = c.network.cut(nil)
	for n := range clients {
		_ = c.network.narrow([]int{n}, 0, 0)
	}
	if c.t.Failed() {
		for _, n := range c.notes {
			c.t.Log(n)
		}
		if keep := os.Getenv("CHAOS_KEEP"); keep != "" {
			if err := command("", "cp", "-a", c.dir, keep); err != nil {
				c.t.Logf("what happened could not be kept: %v", err)
			} else {
				c.t.Logf("logs and volumes are kept in %s", filepath.Join(keep, filepath.Base(c.dir)))
			}
		}
	}
	for _, p := range c.processes {
		if err := p.volume.Remove(); err != nil {
			c.t.Error(err)
		}
		_ = p.logFile.Close()
	}
	_ = os.RemoveAll(c.dir)
}

var fatal = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|WARNING: DATA RACE)$`)

// crashes returns the panics and fatal errors that ended processes.
func (c *cluster) crashes() (found []string) {
	for _, p := range c.processes {
		all, _ := os.ReadFile(p.logFile.Name())
		for _, at := range fatal.FindAllIndex(all, -1) {
			found = append(found, fmt.Sprintf("%s: %s", nodeName(p.node), all[at[0]:min(len(all), at[0]+3000)]))
		}
		if bytes.Contains(all, []byte("bug:")) {
			found = append(found, nodeName(p.node)+": says that it met a bug of its own")
		}
	}
	return found
}

func (c *cluster) connect() {
	c.t.Helper()
	var err error
	c.nc, err = checker.Connect(c.urls(), "chaos", clientOptions...)
	testutil.Must(c.t, err)
	c.t.Cleanup(c.nc.Close)
	c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(answerTime))
	testutil.Must(c.t, err)
}

// whole waits until all replicas of the streams are in sync and spread evenly over the expected
// brokers. Otherwise it describes the streams.
func (c *cluster) whole() error { return c.wholeWithin(patience) }

func (c *cluster) wholeWithin(patience time.Duration) error {
	return within(patience, "all replicas are in sync", func() error {
		for _, name := range c.streams {
			ctx, cancel := context.WithTimeout(c.t.Context(), answerTime)
			is, err := c.js.Stream(ctx, name)
			cancel()
			if err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
			cluster := is.CachedInfo().Cluster
			told, current := fmt.Sprintf("stream %s: %q leads", name, cluster.Leader), 0
			for _, r := range cluster.Replicas {
				told += fmt.Sprintf(", %s current %v lag %d", r.Name, r.Current, r.Lag)
				if r.Current && !r.Offline {
					current++
				}
			}
			if cluster.Leader == "" || current != replicas-1 || len(cluster.Replicas) != replicas-1 {
				return errors.New(told)
			}
		}
		return c.even()
	})
}

// pauseAll pauses nodes, so that none of them sends anything from one moment on.
func (c *cluster) pauseAll(which []int) error {
	var errs []error
	for _, n := range which {
		errs = append(errs, c.processes[n].pause())
	}
	return errors.Join(errs...)
}

func (c *cluster) startAll(which []int) error {
	var errs []error
	for _, n := range which {
		errs = append(errs, c.processes[n].start())
	}
	return errors.Join(errs...)
}

// inflict causes a fault, ends it, and returns when it is over.
func (c *cluster) inflict(s Step) error {
	c.note("begins: %s", s)
	c.harmed(s)
	defer c.note("is over: %s", s.Kind)
	last := func() { time.Sleep(s.For) }
	switch s.Kind {
	case Kill:
		for _, n := range s.Nodes {
			c.processes[n].kill()
		}
		last()
		return c.startAll(s.Nodes)
	case Etcd:
		if !s.Still {
			for _, n := range s.Nodes {
				c.processes[n].kill()
			}
			last()
			return c.startAll(s.Nodes)
		}
		fallthrough
	case Pause:
		err := c.pauseAll(s.Nodes)
		last()
		for _, n := range s.Nodes {
			c.processes[n].resume()
		}
		return err
	case Partition:
		err := c.network.cut(s.Cuts)
		last()
		return errors.Join(err, c.network.cut(nil))
	case Power:
		return c.cutPower(s, last)
	case Full:
		var errs []error
		for _, n := range s.Nodes {
			free, err := c.processes[n].volume.Fill("ballast", 256<<10)
			if errs = append(errs, err); err == nil {
				defer func() { _ = free() }()
			}
		}
		last()
		return errors.Join(errs...)
	case Failing:
		p := c.processes[s.Nodes[0]]
		err := p.volume.Fail()
		last()
		p.kill()
		return errors.Join(err, p.remount(), p.start())
	case Hang:
		disk := c.processes[s.Nodes[0]].volume.(faultyVolume)
		disk.Hang()
		last()
		disk.Release()
		return nil
	case Recover:
		p := c.processes[s.Nodes[0]]
		disk := p.volume.(faultyVolume)
		disk.FailSyncs(true)
		last()
		disk.FailSyncs(false)
		p.kill()
		return p.start()
	case Narrow:
		err := c.network.narrow(s.Nodes, s.Rate, s.By)
		last()
		return errors.Join(err, c.network.narrow(s.Nodes, 0, 0))
	case Slow:
		disk := c.processes[s.Nodes[0]].volume.(faultyVolume)
		disk.Slow(s.By)
		last()
		disk.Slow(0)
		return nil
	case Flip, Lost:
		p := c.processes[s.Nodes[0]]
		p.down.Lock() // a rolling change may restart it meanwhile
		defer p.down.Unlock()
		p.kill()
		damage := flip
		if s.Kind == Lost {
			damage = lose
		}
		what, err := damage(p.volume.Path(), s.Nodes[0], s.Moment, c.spared)
		c.note("%s: %s", s.Kind, what)
		c.mu.Lock()
		c.flipped[s.Nodes[0]] = true
		c.mu.Unlock()
		last()
		return errors.Join(err, p.start())
	case Rollback:
		return c.rollBack(s, last)
	case Clock:
		var errs []error
		for i, n := range s.Nodes {
			errs = append(errs, c.processes[n].shiftClock(c.clockFile(n), s.Shifts[i]))
		}
		return errors.Join(errs...)
	case Scale:
		if s.Joins {
			return c.join(s)
		}
		return c.leave(s)
	case Roll:
		for _, n := range s.Nodes {
			if err := errors.Join(c.processes[n].again(), c.wholeWithin(changeTime())); err != nil {
				return fmt.Errorf("a rolling change, at %s: %w", nodeName(n), err)
			}
			c.note("%s was started again", nodeName(n))
		}
		return nil
	}
	return fmt.Errorf("nobody knows how to %q", s.Kind)
}

// cutPower cuts the power of nodes at once. They are paused first, so that none of them reports a
// sync that is lost; unsynced data is dropped; and they are killed.
func (c *cluster) cutPower(s Step, last func()) error {
	errs := []error{c.pauseAll(s.Nodes)}
	for _, n := range s.Nodes {
		errs = append(errs, c.processes[n].volume.CutPower())
	}
	for _, n := range s.Nodes {
		c.processes[n].kill()
	}
	last()
	for _, n := range s.Nodes {
		errs = append(errs, c.processes[n].remount(), c.processes[n].start())
	}
	return errors.Join(errs...)
}
