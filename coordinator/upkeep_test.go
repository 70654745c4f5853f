package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// quietEtcd starts an etcd without upkeep, which the test does by hand, and a client of it.
func quietEtcd(t *testing.T) (*upkeep, *clientv3.Client) {
	t.Helper()
	dir := t.TempDir()
	cfg := localEtcd(dir, filepath.Join(dir, "etcd.sock"))
	cfg.QuotaBackendBytes = 16 << 20
	s, err := startServer(cfg, slogCore{log: slog.New(slog.DiscardHandler), laptop: true})
	testutil.Must(t, err)
	t.Cleanup(func() { testutil.Must(t, s.stop()) })
	<-s.etcd.Server.ReadyNotify()
	s.stopUpkeep()
	s.upkeep.Wait()
	client, err := clientv3.New(clientv3.Config{Logger: zap.NewNop(), Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}})
	testutil.Must(t, err)
	t.Cleanup(func() { client.Close() })
	return &upkeep{etcd: s.etcd.Server, log: slog.New(slog.DiscardHandler), quota: cfg.QuotaBackendBytes, kept: keptUnderPressure}, client
}

// TestAFullDatabaseGetsOutOfThatByItself: values that are written again and again fill the quota.
// The history goes, the file shrinks, writes are taken again, and what is there stays.
func TestAFullDatabaseGetsOutOfThatByItself(t *testing.T) {
	u, client := quietEtcd(t)
	_, err := client.Put(t.Context(), "kept", "value")
	testutil.Must(t, err)
	data := make([]byte, 128<<10)
	write := func() error {
		_, _ = rand.Read(data)
		_, err := client.Put(t.Context(), "large", string(data))
		return err
	}
	for err = write(); err == nil; err = write() {
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	testutil.Eventually(t, "writes are taken again", func() error {
		u.step(t.Context())
		return write()
	})
	got, err := client.Get(t.Context(), "kept")
	testutil.Must(t, err)
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("what was there is %v", got.Kvs)
	}
	// etcd compacts in the background, so how much history was left when writes were taken again
	// differs. The next steps halve it, and rewrite the file once a minute.
	testutil.Eventually(t, "the file is small", func() error {
		u.rewritten = time.Time{}
		u.step(t.Context())
		if db := u.etcd.Backend(); db.Size() > u.quota/2 || len(u.etcd.Alarms()) > 0 {
			return fmt.Errorf("it has %d bytes, and there are alarms: %v", db.Size(), u.etcd.Alarms())
		}
		return nil
	})
}

// TestAnAlarmOfAMemberThatIsGoneIsTakenBack: it was replaced while it had no room.
func TestAnAlarmOfAMemberThatIsGoneIsTakenBack(t *testing.T) {
	u, client := quietEtcd(t)
	_, err := u.etcd.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 4711, Alarm: etcdserverpb.AlarmType_NOSPACE})
	testutil.Must(t, err)
	if _, err = client.Put(t.Context(), "key", "value"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	u.step(t.Context())
	_, err = client.Put(t.Context(), "key", "value")
	testutil.Must(t, err)
}

// TestACompactionThatFailsIsTriedAgain, and keeps as much the next time.
func TestACompactionThatFailsIsTriedAgain(t *testing.T) {
	u, client := quietEtcd(t)
	for range keptUnderPressure {
		_, err := client.Put(t.Context(), "key", "value")
		testutil.Must(t, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	u.compact(over)
	if u.compacted != 0 || u.kept != keptUnderPressure {
		t.Fatalf("it counts as compacted to %d, and %d are kept the next time", u.compacted, u.kept)
	}
	to := u.etcd.KV().Rev() - keptUnderPressure
	u.compact(t.Context())
	if u.compacted != to {
		t.Errorf("compacted to %d, want %d", u.compacted, to)
	}
}

// TestMembersRewriteInTurns: each once in a round, and none while another one does, in whatever
// order they list the members.
func TestMembersRewriteInTurns(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	got := map[types.ID]int{}
	for i := range 30 {
		now := begin.Add(time.Duration(i) * time.Second)
		one := turnOf([]types.ID{7, 3, 5}, now)
		if other := turnOf([]types.ID{3, 5, 7}, now); other != one {
			t.Errorf("second %d is the turn of %d and %d", i, one, other)
		}
		got[one]++
	}
	if len(got) != 3 || got[3] != 10 || got[5] != 10 || got[7] != 10 {
		t.Errorf("seconds of each member: %v", got)
	}
	u, _ := quietEtcd(t)
	if !u.hasTurn(time.Now()) {
		t.Error("a member alone has no turn")
	}
}
