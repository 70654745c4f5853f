package coordinator

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// save is `etcdctl snapshot save` of one member.
func (m *testMember) save(c *testCluster, to string) {
	m.t.Helper()
	_, port, _ := net.SplitHostPort(m.config.ClientListen)
	config := clientv3.Config{Endpoints: []string{"https://localhost:" + port}, TLS: c.tls.Client("localhost")}
	testutil.Eventually(m.t, "a snapshot is saved", func() error {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
		defer cancel()
		_, err := snapshot.NewV3(zap.NewNop()).Save(ctx, config, to)
		return err
	})
}

// restore is `etcdutl snapshot restore` of a member that is stopped, as docs/operations.md has it.
func (m *testMember) restore(from string, bump uint64) {
	m.t.Helper()
	dir := filepath.Join(m.config.DataDir, etcdDir)
	if err := os.RemoveAll(dir); err != nil {
		m.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(m.config.PeerListen)
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: from, OutputDataDir: dir, Name: m.config.Name, PeerURLs: []string{"https://localhost:" + port},
		InitialCluster: m.config.InitialCluster, InitialClusterToken: m.config.ClusterToken,
		RevisionBump: bump, MarkCompacted: bump > 0,
	}); err != nil {
		m.t.Fatal(err)
	}
}

// TestMembersStartFromARestoredSnapshot: each member starts with the output of `etcdutl snapshot
// restore` of one snapshot. They form a cluster that has the writes before the snapshot, and no
// later ones.
func TestMembersStartFromARestoredSnapshot(t *testing.T) {
	for name, bump := range map[string]uint64{"as it was": 0, "with a later revision": 1_000_000_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			c.spawn()
			create := func(member int, topic string) {
				t.Helper()
				client := c.client(member)
				testutil.Eventually(t, "topic "+topic+" is made", func() error {
					_, err := client.CreateTopic(context.Background(), topic, coordination.TopicSpec{Subjects: []string{topic}, Shards: 1}, coordination.Owner{Kind: coordination.ClientOwner})
					return err
				})
			}
			create(0, "before")
			backup := filepath.Join(t.TempDir(), "snapshot.db")
			c.members[0].save(c, backup)
			create(1, "after")
			for _, m := range c.members {
				m.kill()
				m.restore(backup, bump)
			}
			c.spawn()
			if voters := c.voters(); len(voters) != 3 {
				t.Errorf("the voters are %v", voters)
			}
			for member := range c.members {
				client := c.client(member)
				testutil.Eventually(t, "what was written before the snapshot is there", func() error {
					_, err := client.GetTopic(context.Background(), "before")
					return err
				})
				testutil.Eventually(t, "what was written later is not", func() error {
					_, err := client.GetTopic(context.Background(), "after")
					if _, gone := errors.AsType[*coordination.NotFoundError](err); gone {
						return nil
					}
					return errors.Join(errors.New("topic after is not gone"), err)
				})
			}
			create(2, "after")
			for _, m := range c.members {
				m.kill()
			}
		})
	}
}
