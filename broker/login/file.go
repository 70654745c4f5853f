package login

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/identity"
)

// File is a file with a document of users in JSON. Anything but a regular file, such as a pipe, is
// refused: it is read again and again.
type File struct {
	Path string
	seen os.FileInfo // of what was read last
	// young: when it was read, the file had just been written, so a later write may have left it
	// the same size and time.
	young bool
	sum   [32]byte // SHA-256 of what was read last
}

// look is how often a file is looked at: who loses a right loses it within a second.
const look = 500 * time.Millisecond

// coarse is more than the steps in which file systems count the time of a write: those of FAT are
// two seconds.
const coarse = 3 * time.Second

// Read reads and checks the users. An error names the file.
func (f *File) Read() (*identity.Table, error) {
	text, err := f.text()
	if err != nil {
		return nil, f.named(err)
	}
	return f.table(text)
}

func (f *File) named(err error) error { return fmt.Errorf("users in %s: %w", f.Path, err) }

// table returns the users of a document.
func (f *File) table(text []byte) (*identity.Table, error) {
	doc, err := identity.Parse(text)
	if err != nil {
		return nil, f.named(err)
	}
	t, err := doc.Table()
	if err != nil {
		return nil, f.named(err)
	}
	return t, nil
}

// Document reads the users. An error names the file.
func (f *File) Document() (*identity.Document, error) {
	text, err := f.text()
	if err != nil {
		return nil, f.named(err)
	}
	doc, err := identity.Parse(text)
	if err != nil {
		return nil, f.named(err)
	}
	return doc, nil
}

// text reads the file.
func (f *File) text() ([]byte, error) {
	text, about, err := env.ReadFile(f.Path, identity.MaxDocument+1)
	if err != nil {
		f.seen = nil // it is read again
		return nil, err
	}
	f.seen, f.young = about, time.Since(about.ModTime()) < coarse
	f.sum = sha256.Sum256(text)
	return text, nil
}

// changed reports whether the file may be another one than was read. A missing one is.
func (f *File) changed() bool {
	about, err := os.Stat(f.Path)
	return err != nil || f.seen == nil || f.young || !os.SameFile(f.seen, about) || f.seen.Size() != about.Size() || !f.seen.ModTime().Equal(about.ModTime())
}

// Follow passes the users to apply whenever the file changes, until ctx ends. While the file is
// wrong, it logs each new mistake, and the last good users stay.
func (f *File) Follow(ctx context.Context, log *slog.Logger, apply func(*identity.Table)) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	applied := f.sum
	judged := applied // what was parsed last; zero: since then the file was unreadable
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !f.changed() {
			continue
		}
		var t *identity.Table
		text, err := f.text()
		switch {
		case err != nil:
			err, judged = f.named(err), [32]byte{}
		case judged == f.sum:
			continue // a file with a time in the future is read at each look
		default:
			judged = f.sum
			t, err = f.table(text)
		}
		switch {
		case err == nil && f.sum == applied:
			said = ""
		case err == nil:
			said, applied = "", f.sum
			log.Info("Read the users again", "file", f.Path)
			apply(t)
		case err.Error() != said:
			said = err.Error()
			log.Error("The file of users is wrong; those of before stay", "error", err)
		}
	}
}
