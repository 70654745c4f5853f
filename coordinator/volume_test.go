package coordinator

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// TestAMemberThatWasKilledBeforeItsFirstWriteBeginsAgain: a process that is killed between creating
// its log and the first write leaves a member without any members, which would wait for a leader
// for ever.
func TestAMemberThatWasKilledBeforeItsFirstWriteBeginsAgain(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	walDir := filepath.Join(dir, etcdDir, "member", "wal")
	if err := os.MkdirAll(filepath.Dir(walDir), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := wal.Create(nil, walDir, []byte("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if has, err := (&volume{dir: dir}).hasMember(); has || err != nil {
		t.Fatalf("there is said to be a member: %v %v", has, err)
	}
	local, err := StartLocal(t.Context(), dir, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Close(); err != nil {
		t.Fatal(err)
	}
	if has, err := (&volume{dir: dir}).hasMember(); !has || err != nil {
		t.Fatalf("after it began there is said to be no member: %v %v", has, err)
	}
	if _, err := os.Stat(filepath.Join(dir, asideDir, "member", "wal")); err != nil {
		t.Errorf("the files of the first start were not set aside: %v", err)
	}
}
