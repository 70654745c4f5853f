//go:build e2e && linux

package durability

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/disk"
)

// volume is an ext4 file system for one test.
type volume struct {
	*disk.Volume
	t   *testing.T
	dir string
}

const flushed, powerCut = disk.Flushed, disk.PowerCut

// newVolume makes an ext4 file system and mounts it at dir.
func newVolume(t *testing.T, dir string, megabytes int64) *volume {
	t.Helper()
	v, err := disk.New(folder.Dir, dir, megabytes)
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := v.Remove(); err != nil {
			t.Error(err)
		}
	})
	return &volume{v, t, dir}
}

func (v *volume) shutdown(how disk.ShutdownMode) {
	v.t.Helper()
	testutil.Must(v.t, v.Shutdown(how))
}

func (v *volume) sync() {
	v.t.Helper()
	testutil.Must(v.t, v.Sync())
}

// again mounts the volume again when no process uses it.
func (v *volume) again() {
	v.t.Helper()
	testutil.Eventually(v.t, "mount "+v.dir+" again", v.Again)
}

func (v *volume) fill(name string, leave int64) (free func()) {
	v.t.Helper()
	remove, err := v.Fill(name, leave)
	testutil.Must(v.t, err)
	return func() { testutil.Must(v.t, remove()) }
}
