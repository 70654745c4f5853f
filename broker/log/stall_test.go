package log

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// hangFS is a file system whose syncs of new files hang from when hang is set until release is
// closed.
type hangFS struct {
	env.FS
	hang          atomic.Bool
	hung, release chan struct{}
}

type hangFile struct {
	env.File
	fs *hangFS
}

func (h *hangFS) Create(path string) (env.File, error) {
	f, err := h.FS.Create(path)
	return hangFile{f, h}, err
}

func (f hangFile) Sync() error {
	if f.fs.hang.Swap(false) {
		close(f.fs.hung)
		<-f.fs.release
	}
	return f.File.Sync()
}

func TestAHungRoundReportsWhenItBegan(t *testing.T) {
	fsys := &hangFS{FS: crashfs.New(), hung: make(chan struct{}), release: make(chan struct{})}
	d := openDisk(t, fsys, "data", small)
	l := openLog(t, d, orders)
	put(t, l, 1)
	if since := d.RoundSince(); !since.IsZero() {
		t.Errorf("all is synced, and a round is under way since %v", since)
	}
	fsys.hang.Store(true)
	began, a := time.Now(), newAck()
	if _, err := l.Append(&Append{Epoch: 1, Records: texts(2, 1), Done: a}); err != nil {
		t.Fatal(err)
	}
	<-fsys.hung
	if since := d.RoundSince(); since.Before(began) || since.After(time.Now()) {
		t.Errorf("the round is under way since %v; it began after %v", since, began)
	}
	close(fsys.release)
	if err := a.wait(t, 1); err != nil {
		t.Fatal(err)
	}
	if since := d.RoundSince(); !since.IsZero() {
		t.Errorf("the round is over, and under way since %v", since)
	}
}
