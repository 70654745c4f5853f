package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// TestABusyLaptopIsNoWarning: warnings of a slow etcd are not shown at the default level of dev,
// and are shown at level info.
func TestABusyLaptopIsNoWarning(t *testing.T) {
	t.Parallel()
	slow := func(level slog.Level, laptop bool) string {
		var log bytes.Buffer
		dir := shortDir(t)
		socket := filepath.Join(dir, "etcd.sock")
		cfg := localEtcd(dir, socket)
		cfg.WarningApplyDuration, cfg.WarningUnaryRequestDuration = 1, 1
		member, err := startServer(cfg, slogCore{
			log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})), laptop: laptop,
		})
		if err != nil {
			t.Fatal(err)
		}
		<-member.etcd.Server.ReadyNotify()
		client, err := coordination.Open(coordination.Config{Endpoints: []string{"unix://" + socket}, Cluster: "local/dev"})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.ClaimOwner(t.Context(), "me"); err != nil {
			t.Fatal(err)
		}
		if _, err := member.etcd.Server.LeaseRevoke(t.Context(), &etcdserverpb.LeaseRevokeRequest{ID: 1}); err == nil {
			t.Fatal("a lease that nobody was granted was ended")
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := member.stop(); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	if said := slow(slog.LevelWarn, true); said != "" {
		t.Errorf("who didn't ask was told:\n%s", said)
	}
	asked, cluster := slow(slog.LevelInfo, true), slow(slog.LevelInfo, false)
	for _, what := range []string{"apply request took too long", "request stats"} {
		if !strings.Contains(asked, `level=INFO msg="`+what) || strings.Contains(asked, "level=WARN") {
			t.Errorf("who asked wasn't told of %q:\n%s", what, asked)
		}
		if !strings.Contains(cluster, `level=WARN msg="`+what) {
			t.Errorf("who runs a cluster wasn't warned of %q:\n%s", what, cluster)
		}
	}
}

func TestALaptopIsWarnedOfCorruptionAndNotOfLoad(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	etcd := zap.New(slogCore{log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), laptop: true, closing: new(atomic.Bool)})
	etcd.Warn("slow fdatasync")
	etcd.Warn("8e9e05c52164694d A tick missed to fire. Node blocks too long!")
	etcd.Warn("3931b7c5e1d3aeb1 cannot campaign at term 1 since there are still pending configuration changes to apply")
	given := fmt.Errorf("applyTxn: failed Range: %w", fmt.Errorf("rangeKeys: context cancelled: %w", context.Canceled))
	etcd.Error("unexpected error during readonly txn", zap.Error(given))
	if said := log.String(); said != "" {
		t.Errorf("of a busy machine, or a request that was given up:\n%s", said)
	}
	etcd.Error("unexpected error during readonly txn", zap.Error(errors.New("the file is corrupt")))
	etcd.Error("slow fdatasync") // whatever it comes to mean
	etcd.Warn("message exceeded backend quota; raising alarm")
	etcd.Warn("timed out waiting for read index response (local node might have slow network)")
	etcd.With(zap.String("path", "0.snap")).Warn("snap file is corrupt")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, want := range []string{"the file is corrupt", `level=ERROR msg="slow fdatasync"`, "exceeded backend quota", "timed out waiting", "path=0.snap"} {
		if len(lines) != 5 || !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "from=etcd") {
			t.Fatalf("it was told:\n%s\nwithout %q", log.String(), want)
		}
	}
}
