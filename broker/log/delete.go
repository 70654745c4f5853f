package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Delete deletes a closed log for good, for example after its Topic was deleted. It first renames
// the log's directory into deletedDir, which OpenDisk empties. So after a crash the log is complete
// or gone. Deleting a missing log succeeds.
func (d *Disk) Delete(name string) error {
	if filepath.Base(name) != name {
		return fmt.Errorf("%q can't name a log", name)
	}
	d.mu.Lock()
	if d.logs[name] != nil || d.closing || d.failed != nil {
		defer d.mu.Unlock()
		if d.failed != nil {
			return d.failed
		}
		return fmt.Errorf("log %s is open, or the disk is closed; close the log before it is deleted", name)
	}
	d.logs[name] = &Log{name: name, closed: true} // reserves the name while d.mu is not held
	d.mu.Unlock()
	err := d.delete(name)
	d.forgetChecks(name)
	d.mu.Lock()
	delete(d.logs, name)
	d.mu.Unlock()
	return d.noticed(err)
}

func (d *Disk) delete(name string) error {
	err := d.discard(name, shardsDir, func(to string) error { return d.fs.Rename(d.logDir(name), to) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// discard removes what rename moves to a path in deletedDir, out of a directory of the disk. No two
// calls may have the same name at once.
func (d *Disk) discard(name, from string, rename func(to string) error) error {
	to := filepath.Join(d.dir, deletedDir, name)
	if err := d.removeAll(to); err != nil {
		return err
	}
	if err := rename(to); err != nil {
		return err
	}
	for _, dir := range []string{deletedDir, from} {
		if err := d.fs.SyncDir(filepath.Join(d.dir, dir)); err != nil {
			return &syncError{err}
		}
	}
	return d.removeAll(to)
}

// finishDeletions removes what Delete or DeleteAside had moved when the process died.
func (d *Disk) finishDeletions() error {
	names, err := d.fs.List(filepath.Join(d.dir, deletedDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.removeAll(filepath.Join(d.dir, deletedDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes a file, or a directory with everything in it, if it exists. It follows no
// symbolic link. Directories below it were made by a person; they must not keep the disk from being
// opened.
func (d *Disk) removeAll(path string) error {
	err := d.fs.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names, listErr := d.fs.List(path)
	switch {
	case errors.Is(listErr, fs.ErrNotExist):
		return nil
	case listErr != nil: // not a directory
		return err
	}
	for _, name := range names {
		if err := d.removeAll(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return d.fs.Remove(path)
}

// Behind reports that the backlog exceeds Options.Backlog, so publishers should wait; see WaitRoom.
func (d *Disk) Behind() bool { return d.backlog.Load() > d.opts.Backlog }
