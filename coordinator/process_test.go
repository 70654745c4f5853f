package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// asMember makes this test's program one member, so that it can be killed and frozen.
const asMember = "CARILLON_TEST_COORDINATOR"

func TestMain(m *testing.M) {
	if text := os.Getenv(asMember); text != "" {
		var config Config
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			panic(err)
		}
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Run(ctx, config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// etcd leaves idle connections between members to their read timeout of 5 s.
	testutil.RunWithoutLeaks(m)
}

// spawn starts the member as a process of its own; end and kill stop it.
func (m *testMember) spawn() {
	m.t.Helper()
	config := m.config
	config.Logger = nil
	text, err := json.Marshal(config)
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asMember+"="+string(text))
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.process, m.done = cmd.Process, make(chan error, 1)
	done := m.done
	go func() { done <- cmd.Wait() }()
	m.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Process.Signal(syscall.SIGCONT) // a test that failed may have left it frozen
	}
}

// kill ends it as a power loss does.
func (m *testMember) kill() {
	m.t.Helper()
	m.stop = nil
	_ = m.process.Kill()
	<-m.done
}

func (c *testCluster) spawn() {
	c.t.Helper()
	for _, m := range c.members {
		m.spawn()
	}
	for _, m := range c.members {
		m.waitReady()
	}
}

// leader finds the member that leads.
func (c *testCluster) leader() *testMember {
	c.t.Helper()
	var name string
	eventually.ForTrue(c.t, "somebody leads", func() bool {
		name = c.all().Health(context.Background()).Leader
		return name != ""
	})
	return c.members[slices.IndexFunc(c.members, func(m *testMember) bool { return m.config.Name == name })]
}

func (c *testCluster) all() *coordination.Client {
	c.t.Helper()
	return c.client(0, 1, 2)
}

// TestBrokersOutliveTheLeaderOfTheCoordinators: the leader of the coordinators dies, and later
// another one freezes with its connections open. Brokers stay registered throughout, and see all
// changes.
func TestBrokersOutliveTheLeaderOfTheCoordinators(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.spawn()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })

	incarnations := make(chan int64, 16)
	join := func(id string, joined func(int64)) {
		client := c.all()
		running.Go(func() {
			self := coordination.Broker{ID: id, Name: id, Client: "h:1", Route: "h:2", HTTP: "h:3"}
			if err := client.Join(ctx, self, joined); err != nil {
				t.Errorf("Join of %s ended with %v", id, err)
			}
		})
	}
	join("a", func(i int64) { incarnations <- i })
	<-incarnations
	var mu sync.Mutex
	var views [][]coordination.Broker
	watcher := c.all()
	running.Go(func() {
		_ = watcher.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
			mu.Lock()
			defer mu.Unlock()
			views = append(views, state.Brokers)
		})
	})
	sees := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(views) > 0 && len(views[len(views)-1]) == n
		}
	}
	eventually.ForTrue(t, "a is seen", sees(1))

	dead := c.leader()
	dead.kill()
	join("b", func(int64) {})
	eventually.ForTrue(t, "b is seen after the leader died", sees(2))
	dead.spawn()
	dead.waitReady()

	frozen := c.leader()
	if err := frozen.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	join("c", func(int64) {})
	eventually.ForTrue(t, "c is seen while the leader is frozen", sees(3))
	select {
	case i := <-incarnations:
		t.Errorf("a lost its lease and came back as %d", i)
	default:
	}
	mu.Lock()
	for i := 1; i < len(views); i++ {
		if len(views[i]) < len(views[i-1]) {
			t.Errorf("the members seen went from %v to %v", views[i-1], views[i])
		}
	}
	mu.Unlock()

	// A leader that wakes up may for a moment believe that it still leads, and that leases
	// ran out which others renewed; etcd looks whether it was ticking lately, and a thaw is
	// a tick. A broker that this hits registers again by itself.
	if err := frozen.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	frozen.waitReady()
	for since := time.Now(); time.Since(since) < time.Second; time.Sleep(20 * time.Millisecond) {
		if !sees(3)() {
			since = time.Now()
			eventually.ForTrue(t, "all are members after the thaw", sees(3))
		}
	}
}

// TestRejoiningSurvivesBeingKilled: a member with an empty volume is killed repeatedly while it
// rejoins.
func TestRejoiningSurvivesBeingKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.spawn()
	c.claim(0, "me")
	before := c.voters()
	m := c.members[2]
	m.kill()
	m.wipe()
	for _, life := range []time.Duration{20, 60, 120, 250, 500, 1000, 2000} {
		m.spawn()
		time.Sleep(life * time.Millisecond)
		m.kill()
	}
	m.spawn()
	m.waitReady()
	c.wantOwner(2, "me")
	if after := c.voters(); len(after) != 3 || after["c-2"] == before["c-2"] {
		t.Fatalf("voters were %v and are %v", before, after)
	}
	client := c.all()
	var members []coordination.Member
	testutil.Eventually(t, "the members are listed", func() (err error) {
		members, err = client.Members(context.Background())
		return err
	})
	if len(members) != 3 {
		t.Errorf("members are %v; want nothing left of the attempts that were killed", members)
	}
}
