package coordinator

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAFullDatabaseGetsOutOfThatByItself: values that are written again and again fill the quota.
// The history goes, the file shrinks, writes are taken again, and what is there stays.
func TestAFullDatabaseGetsOutOfThatByItself(t *testing.T) {
	dir := t.TempDir()
	cfg := localEtcd(dir, filepath.Join(dir, "etcd.sock"))
	cfg.QuotaBackendBytes = 16 << 20
	s, err := startServer(cfg, slogCore{log: slog.New(slog.DiscardHandler), laptop: true})
	testutil.Must(t, err)
	defer func() { testutil.Must(t, s.stop()) }()
	<-s.etcd.Server.ReadyNotify()
	s.stopUpkeep() // so that it comes to that
	s.upkeep.Wait()
	client, err := clientv3.New(clientv3.Config{Logger: zap.NewNop(), Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}})
	testutil.Must(t, err)
	defer client.Close()
	_, err = client.Put(t.Context(), "kept", "value")
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
	u := &upkeep{etcd: s.etcd.Server, log: slog.New(slog.DiscardHandler), quota: cfg.QuotaBackendBytes, kept: keptUnderPressure}
	testutil.Eventually(t, "writes are taken again", func() error {
		u.step(t.Context())
		return write()
	})
	got, err := client.Get(t.Context(), "kept")
	testutil.Must(t, err)
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		t.Errorf("what was there is %v", got.Kvs)
	}
	if db := s.etcd.Server.Backend(); db.Size() > cfg.QuotaBackendBytes/2 || len(s.etcd.Server.Alarms()) > 0 {
		t.Errorf("the file has %d bytes, and there are alarms: %v", db.Size(), s.etcd.Server.Alarms())
	}
}
