package env_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// hanging is a file system whose syncs and reads hang until they are released.
type hanging struct {
	env.FS
	release chan struct{}
}

type hangingFile struct {
	env.File
	release chan struct{}
}

func (h hanging) Create(path string) (env.File, error) {
	f, err := h.FS.Create(path)
	return hangingFile{f, h.release}, err
}

func (f hangingFile) Sync() error {
	<-f.release
	return f.File.Sync()
}

func (f hangingFile) ReadAt(p []byte, off int64) (int, error) {
	<-f.release
	return f.File.ReadAt(p, off)
}

// TestAHangingOperationIsFound: a hung operation is reported with its name and age, separately from
// a hung read, until both end.
func TestAHangingOperationIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := env.Watch(hanging{crashfs.New(), release})
		if err := w.MkdirAll("dir"); err != nil {
			t.Fatal(err)
		}
		f, err := w.Create(filepath.Join("dir", "file"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ended := make(chan error, 3)
		go func() { ended <- f.Sync() }()
		time.Sleep(time.Second)
		go func() { _, err := f.ReadAt(make([]byte, 1), 0); _ = err; ended <- nil }()
		time.Sleep(time.Second)
		go func() { ended <- f.Sync() }()
		synctest.Wait()
		if _, err := f.WriteAt([]byte("goes on"), 0); err != nil {
			t.Error(err)
		}
		read, other := w.Oldest()
		if want := (env.Operation{Op: "sync", Path: "dir/file", Since: began}); other != want {
			t.Errorf("the oldest operation is %v, want %v", other, want)
		}
		if want := (env.Operation{Op: "read", Path: "dir/file", Since: began.Add(time.Second)}); read != want {
			t.Errorf("the oldest read is %v, want %v", read, want)
		}
		close(release)
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if read, other := w.Oldest(); read.Op != "" || other.Op != "" {
			t.Errorf("all have ended, and these are under way: %v, %v", read, other)
		}
		allocations := testing.AllocsPerRun(100, func() { _, _ = f.WriteAt([]byte("again"), 0) })
		bare, _ := crashfs.New().Create("bare")
		if without := testing.AllocsPerRun(100, func() { _, _ = bare.WriteAt([]byte("again"), 0) }); allocations > without {
			t.Errorf("watching an operation allocates: %v times, %v without", allocations, without)
		}
	})
}
