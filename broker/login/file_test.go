//go:build linux || darwin

package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// logged is a log that several goroutines use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(part))
}

// TestAPipeInPlaceOfUsers is refused at the start. In place of a file that was read it is logged
// once, and neither the users of before nor later changes wait for whoever might write to it.
func TestAPipeInPlaceOfUsers(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "users.json"), filepath.Join(dir, "link")
	write := func(names ...string) {
		t.Helper()
		var doc identity.Document
		for _, name := range names {
			doc.Users = append(doc.Users, identity.User{Name: name})
		}
		text, err := json.Marshal(doc)
		testutil.Must(t, err)
		testutil.Must(t, os.WriteFile(path+".new", text, 0o600))
		testutil.Must(t, os.Rename(path+".new", path))
	}
	pipe := func() {
		t.Helper()
		testutil.Must(t, syscall.Mkfifo(path+".new", 0o600))
		testutil.Must(t, os.Rename(path+".new", path))
	}
	testutil.Must(t, os.Symlink(path, link))

	pipe()
	refused := make(chan error, 1)
	go func() {
		_, err := (&File{Path: link}).Read()
		refused <- err
	}()
	select {
	case err := <-refused:
		if irregular := (*env.IrregularError)(nil); !errors.As(err, &irregular) {
			t.Errorf("a pipe at the start: %v", err)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("a start waits for a pipe")
	}

	write("ann")
	f := &File{Path: link}
	_, err := f.Read()
	testutil.Must(t, err)
	log := &logged{}
	ctx, cancel := context.WithCancel(t.Context())
	applied, done := make(chan *identity.Table), make(chan struct{})
	pipe() // the file was just written, so it is read at the next look
	go func() {
		defer close(done)
		f.Follow(ctx, slog.New(slog.NewTextHandler(log, nil)), func(table *identity.Table) { applied <- table })
	}()
	testutil.EventuallyTrue(t, "the pipe is logged", func() bool { return log.count("is a pipe") > 0 })
	write("ann", "bob")
	select {
	case table := <-applied:
		if table.Len() != 2 {
			t.Errorf("there are %d users", table.Len())
		}
	case <-time.After(testutil.Patience):
		t.Fatal("the next file is not read")
	}
	if n := log.count("is a pipe"); n != 1 {
		t.Errorf("the pipe is logged %d times", n)
	}
	cancel()
	<-done
}
