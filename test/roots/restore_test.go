package roots

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// program builds the command.
func program(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "carillon")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/carillon").CombinedOutput(); err != nil {
		t.Fatalf("build carillon: %v: %s", err, out)
	}
	return path
}

// stopWait is how long a coordinator may take to stop, before it is killed: the bound of its own
// stop, on a busy machine.
const stopWait = 60 * time.Second

// spawn starts a coordinator as a process of its own, by the command that pods run. Its stop is
// what a kubelet does.
func (c *cluster) spawn(n int) {
	c.t.Helper()
	health := fmt.Sprintf("127.0.0.1:%d", c.ports[3*n+2])
	cmd := exec.Command(c.program, "coordinator", "--name", fmt.Sprintf("c-%d", n), "--data", c.data[n],
		"--tls-dir", c.dirs[coordinatorTLS], "--peer-tls-dir", c.dirs[peerTLS],
		"--client-listen", fmt.Sprintf("127.0.0.1:%d", c.clientPort(n)), "--peer-listen", fmt.Sprintf("127.0.0.1:%d", c.peerPort(n)),
		"--http-listen", health, "--advertise-host", "localhost", "--initial-cluster", c.initialCluster(), "--cluster-token", clusterToken)
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	testutil.Must(c.t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	p := &process{address: health, stop: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-done:
			if err != nil {
				c.t.Errorf("coordinator %d: %v", n, err)
			}
		case <-time.After(stopWait):
			c.t.Errorf("coordinator %d did not stop within %v, and is killed", n, stopWait)
			_ = cmd.Process.Kill()
			<-done
		}
	})}
	c.coordinators[n] = p
	c.t.Cleanup(p.stop)
}

// save is `etcdctl snapshot save`, with the certificate of the coordinators.
func (c *cluster) save() (file string) {
	c.t.Helper()
	file = filepath.Join(c.t.TempDir(), "snapshot.db")
	testutil.Eventually(c.t, "a snapshot is saved", func() error {
		_, err := snapshot.NewV3(zap.NewNop()).Save(within(c.t), c.etcdctlConfig(names[coordinatorTLS], 0), file)
		return err
	})
	return file
}

// restore is `etcdutl snapshot restore` of all coordinators, as docs/operations.md has it, while
// brokers and publishers run. The last coordinators stop without a quorum.
func (c *cluster) restore(file string) {
	c.t.Helper()
	for _, p := range c.coordinators {
		p.stop()
	}
	for n := range c.coordinators {
		dir := filepath.Join(c.data[n], "etcd")
		testutil.Must(c.t, os.RemoveAll(dir))
		testutil.Must(c.t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: file, OutputDataDir: dir, Name: fmt.Sprintf("c-%d", n), PeerURLs: []string{fmt.Sprintf("https://localhost:%d", c.peerPort(n))},
			InitialCluster: c.initialCluster(), InitialClusterToken: clusterToken,
		}))
	}
	for n := range c.coordinators {
		c.spawn(n)
	}
	c.whole()
}

// admitted waits until the brokers are registered, and the operator's own user reads and writes.
func (c *cluster) admitted() {
	c.t.Helper()
	c.registrations()
	operator := c.as(build.FieldOwner)
	testutil.Eventually(c.t, "the operator writes its keys", func() error { return operator.ClaimOwner(within(c.t), "me") })
}

// TestARestoredEtcdHasTheUsersOfItsBackup: one of before there were users gets them again in the
// same way, and one of after asks for them at once. Brokers and the operator get in again, and no
// acknowledged record is lost.
func TestARestoredEtcdHasTheUsersOfItsBackup(t *testing.T) {
	c := newCluster(t, true)
	c.program = program(t)
	for n := range c.coordinators {
		c.spawn(n)
	}
	c.whole()
	for n := range c.brokers {
		c.broker(n, false)
	}
	c.linked()
	stop := c.load()
	c.acks("before")
	without := c.save()
	c.grant()
	c.restrict()
	with := c.save()
	c.acks("by users")
	for _, b := range []struct {
		of, file string
		users    bool
	}{{"before there were users", without, false}, {"with users", with, true}} {
		c.restore(b.file)
		if state := c.state(); state.Enabled != b.users || (len(state.Lacks) == 0) != b.users {
			t.Errorf("a backup of %s has %+v", b.of, state)
		}
		c.acks("after the restore of a backup of " + b.of)
		c.admitted()
		c.grant()
		c.restrict()
		c.acks("by users again")
		c.admitted()
		c.linked()
	}
	acked := stop()
	c.holds(acked)
}
