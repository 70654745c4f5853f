package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/carillon-mq/carillon/broker/env"
)

// manifestFile is the file that holds a log's manifest, in two slots of one size.
//
// A change is written to one slot and synced, which commits it. Then it is written to the other
// slot, without a sync. The next change is written to that other slot first. So one slot is always
// durable, a change costs one sync and no rename, and at rest both slots are equal (the second may
// have a higher Durable):
//
//  1. A crash tears one slot at most, and the other one has the manifest before the change.
//  2. A slot that is damaged at rest costs nothing.
//  3. A change needs no space on the disk, unless the manifest outgrows its slots. Then a larger
//     file replaces the file: created beside it, synced, renamed.
//
// Rejected: a file that each change replaces by renaming, as meta.json was. It can't be replaced on
// a full disk, and costs two syncs that wait for the file system's journal.
type manifestFile struct {
	fsys env.FS
	dir  string

	// now is the last committed manifest. It must not be changed.
	now atomic.Pointer[Manifest]
	// free is how many more segments and epochs fit into a slot, and slot is its size in bytes.
	free, slot atomic.Int64

	// mu is held from the write of a change until its commit or abandonment. The committer holds it
	// while it writes and syncs a round, however long that takes. It comes before the log's mu.
	mu       gate
	size     int64 // of a slot; 0: no file yet
	sequence uint64
	safe     int   // the slot that is known to be durable
	unsure   bool  // the slot safe may not be synced: this process has not written it
	named    bool  // see Manifest.Named
	length   int64 // of the last committed manifest, without its state

	// The change under way.
	next       *Manifest
	nextLength int64
	file       env.File // nil: it is parked, or next is durable already
	data       []byte   // nil: next is durable already
}

// gate is a lock that may be held for long. Its waiters block on a channel, so a bubble of package
// synctest counts them as durably blocked, and time advances.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

const (
	manifestName = "manifest"
	// manifestNew is the name of a larger manifest file that is being written. The next opening
	// removes one that a crash has left.
	manifestNew = manifestName + ".new"
	// smallestSlot is a block of the file system, so that the slots share no block.
	smallestSlot = 4 << 10
	// largestManifest bounds the size of a manifest that is read: a log of 100 TB in segments of 64
	// MiB needs as much.
	largestManifest = 256 << 20
	// stateRoom is the part of a slot that is reserved for the state (Copy, Aside and Bad), so that
	// a change of state needs no room on the disk.
	stateRoom = 2 << 10
	// listingSize is the largest size of a segment or an epoch in a manifest.
	listingSize = 96
)

// slotFor returns the slot size for a manifest of structure bytes without its state, with space to
// grow.
func slotFor(structure int64) int64 {
	size := int64(smallestSlot)
	for size < structure+structure/4+stateRoom {
		size *= 2
	}
	return size
}

// structure returns the length of a manifest without its state. data is the encoded manifest.
func structure(m *Manifest, data []byte) int64 {
	if len(m.Copy) == 0 && len(m.Aside) == 0 && len(m.Bad) == 0 && m.AsideBefore == 0 {
		return int64(len(data))
	}
	// It is a part of data, so encoding it can't fail.
	state, _ := json.Marshal(&Manifest{Copy: m.Copy, Aside: m.Aside, Bad: m.Bad, AsideBefore: m.AsideBefore})
	none, _ := json.Marshal(&Manifest{})
	return int64(len(data) - len(state) + len(none))
}

func (f *manifestFile) path() string { return filepath.Join(f.dir, manifestName) }

// adopt uses the manifest that readManifest returned.
func (f *manifestFile) adopt(m *Manifest, at slotAt) error {
	f.size, f.sequence, f.safe, f.unsure, f.named = at.size, at.sequence, at.slot, true, m.Named
	f.take(m, at.structure)
	if !at.torn {
		return nil
	}
	// A crash interrupted a change. The manifest is made durable before anything relies on it.
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replace(m)
}

// slotAt says which slot of a manifest file was used.
type slotAt struct {
	size     int64
	slot     int
	sequence uint64
	torn     bool // the other slot differs, or is invalid

	structure int64
}

// readManifest reads the manifest in a log's directory. The error is fs.ErrNotExist if there is
// none, and a *CorruptError if neither slot is valid.
func readManifest(fsys env.FS, dir string) (m *Manifest, at slotAt, err error) {
	path := filepath.Join(dir, manifestName)
	file, err := fsys.Open(path)
	if err != nil {
		return nil, at, err
	}
	var data []byte
	size, err := file.Size()
	if err == nil && size <= largestManifest {
		data = manifestBuffer(size)
		defer keepBuffer(data)
		err = readFull(file, data, 0)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, at, err
	}
	if size > largestManifest {
		return nil, at, &CorruptError{File: path, Reason: fmt.Sprintf("it can't have %d bytes", size)}
	}
	at.size = size / 2
	same := bytes.Equal(data[:at.size], data[at.size:2*at.size])
	var reason error
	var other *Manifest
	for slot := range 2 {
		if same && m != nil {
			break
		}
		found, sequence, err := decodeSlot(data[int64(slot)*at.size : int64(slot+1)*at.size])
		switch {
		case errors.Is(err, errNewer):
			return nil, at, fmt.Errorf("%s: %w", path, err)
		case err != nil:
			reason = err
		case m == nil || sequence > at.sequence:
			m, other, at.slot, at.sequence = found, m, slot, sequence
		default:
			other = found
		}
	}
	if m == nil {
		return nil, at, &CorruptError{File: path, Reason: reason.Error()}
	}
	at.structure = structure(m, bytes.TrimRight(data[int64(at.slot)*at.size:int64(at.slot+1)*at.size], "\x00"))
	at.torn = !same && (other == nil || !sameBut(other, m))
	return m, at, nil
}

// manifestBuffers has buffers for manifests of the smallest size. A broker that starts reads tens
// of thousands.
var manifestBuffers = sync.Pool{New: func() any { return new([2 * smallestSlot]byte) }}

func manifestBuffer(size int64) []byte {
	if size == 2*smallestSlot {
		return manifestBuffers.Get().(*[2 * smallestSlot]byte)[:]
	}
	return make([]byte, size)
}

func keepBuffer(data []byte) {
	if len(data) == 2*smallestSlot {
		manifestBuffers.Put((*[2 * smallestSlot]byte)(data))
	}
}

// sameBut reports whether two manifests differ at most in Durable, which may be higher in the
// second slot.
func sameBut(a, b *Manifest) bool {
	bare := *a
	bare.Durable = b.Durable
	x, err := encodeSlot(&bare, 0)
	y, otherErr := encodeSlot(b, 0)
	return err == nil && otherErr == nil && string(x) == string(y)
}

// take makes m the committed manifest. n is its length without its state.
func (f *manifestFile) take(m *Manifest, n int64) {
	f.now.Store(m)
	f.length = n
	f.slot.Store(f.size)
	f.free.Store((f.size - stateRoom - n) / listingSize)
}

// replace durably replaces the manifest by next. mu is held.
func (f *manifestFile) replace(next *Manifest) error {
	if err := f.write(next, 0); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		f.abandon()
		return err
	}
	f.commit(0)
	return nil
}

// write begins a change: it writes next to the slot that isn't safe. room is the slot size that an
// append has reserved, or 0. On an error nothing has changed. mu is held.
func (f *manifestFile) write(next *Manifest, room int64) error {
	next.Named = f.named
	data, err := encodeSlot(next, f.sequence+1)
	if err != nil {
		return err
	}
	n := structure(next, data)
	if room > f.size {
		return f.grow(next, manifestRoom(room), room)
	}
	if n > f.size-stateRoom || int64(len(data)) > f.size {
		err := f.grow(next, manifestNew, slotFor(n))
		if err == nil {
			return nil
		}
		// A change that makes the manifest hardly longer, for example a trim, needs no space.
		if !errors.Is(err, syscall.ENOSPC) || n > f.length+listingSize || int64(len(data)) > f.size {
			return err
		}
	}
	file, err := f.fsys.Open(f.path())
	if err != nil {
		return err
	}
	fail := func(err error) error { return errors.Join(err, file.Close()) }
	if f.unsure {
		if err := f.rewriteIn(file); err != nil {
			return fail(err)
		}
		if err := file.Sync(); err != nil {
			return fail(&syncError{err})
		}
		f.unsure = false
	}
	if _, err := file.WriteAt(data, int64(1-f.safe)*f.size); err != nil {
		return fail(&syncError{err}) // which manifest a crash would leave is unknown
	}
	f.next, f.file, f.data, f.nextLength = next, file, data, n
	return nil
}

// rewrite writes the slot safe again, so that a sync of the whole file system makes it durable. mu
// is held.
func (f *manifestFile) rewrite() error {
	file, err := f.fsys.Open(f.path())
	if err != nil {
		return err
	}
	return errors.Join(f.rewriteIn(file), file.Close())
}

// rewriteIn writes the same bytes to the same place. If they are durable already, they can't be
// torn; otherwise the other slot is durable.
func (f *manifestFile) rewriteIn(file env.File) error {
	same, err := encodeSlot(f.now.Load(), f.sequence)
	if err != nil {
		return err
	}
	if _, err := file.WriteAt(same, int64(f.safe)*f.size); err != nil {
		return &syncError{err}
	}
	return nil
}

// sync makes the change durable. mu is held.
func (f *manifestFile) sync() error {
	if f.data == nil {
		return nil
	}
	if err := f.unpark(); err != nil {
		return &syncError{err}
	}
	if err := f.file.Sync(); err != nil {
		return &syncError{err}
	}
	return nil
}

// park closes the file of a change until it is synced or committed. The kernel reports an error of
// write-back in between to the next descriptor of the file. mu is held.
func (f *manifestFile) park() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

func (f *manifestFile) unpark() (err error) {
	if f.file == nil {
		f.file, err = f.fsys.Open(f.path())
	}
	return err
}

// commit makes a durable change the committed manifest, and writes it to the other slot, there with
// at least this Durable. mu is held.
func (f *manifestFile) commit(durable uint64) {
	next := f.next
	if f.data != nil {
		f.safe, f.sequence = 1-f.safe, f.sequence+1
		data, sequence := f.data, f.sequence
		if durable > next.Durable {
			more := *next
			more.Durable = durable
			if again, err := encodeSlot(&more, sequence+1); err == nil && int64(len(again)) <= f.size {
				next, data, sequence = &more, again, sequence+1
			}
		}
		// An error is harmless: the other slot is durable, and the next change writes this one.
		err := f.unpark()
		if err == nil {
			_, err = f.file.WriteAt(data, int64(1-f.safe)*f.size)
		}
		if err == nil {
			f.sequence = sequence
		}
	}
	f.take(next, f.nextLength)
	f.abandon()
}

// abandon ends a change. mu is held.
func (f *manifestFile) abandon() {
	if f.file != nil {
		_ = f.file.Close() // an error of its bytes was returned by Sync
	}
	f.next, f.file, f.data = nil, nil, nil
}

// grow replaces the file by one with larger slots. Both slots hold next, which is durable then. mu
// is held.
func (f *manifestFile) grow(next *Manifest, name string, size int64) error {
	if err := f.put(next, name, size); err != nil {
		return err
	}
	if err := f.fsys.SyncDir(f.dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// put is grow without the sync of the directory.
func (f *manifestFile) put(next *Manifest, name string, size int64) (err error) {
	path := filepath.Join(f.dir, name)
	file, err := f.fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = f.fsys.Create(path)
	}
	if err != nil {
		return err
	}
	data, err := encodeSlot(next, f.sequence+1)
	if err == nil && int64(len(data)) > size {
		err = fmt.Errorf("a manifest of %d bytes doesn't fit into slots of %d", len(data), size)
	}
	if err == nil {
		err = writeSlots(file, data, size)
	}
	if err == nil {
		if err = file.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("no room for a larger manifest: %w; free space, enlarge the volume or shorten the retention", err)
		}
		return errors.Join(err, f.fsys.Remove(path))
	}
	if err := f.fsys.Rename(path, f.path()); err != nil {
		return err
	}
	f.size, f.sequence, f.safe, f.unsure = size, f.sequence+1, 0, false
	f.next, f.nextLength = next, structure(next, data)
	return nil
}

// writeSlots writes both slots in full. Space that is only reserved may cost the file system more
// when it is first written.
func writeSlots(file env.File, data []byte, size int64) error {
	if err := errors.Join(file.Truncate(2*size), file.Preallocate(2*size)); err != nil {
		return err
	}
	both := make([]byte, 2*size)
	copy(both, data)
	copy(both[size:], data)
	_, err := file.WriteAt(both, 0)
	return err
}

// manifestRoom returns the name of the file with slots of this size that an append has reserved.
// The next opening removes one that a crash has left.
func manifestRoom(size int64) string { return fmt.Sprintf("%s.%d.room", manifestName, size) }

// create creates the first file, or replaces an invalid one. When it returns, its name is durable,
// and so are the names of all files that were placed in the directory before.
func (f *manifestFile) create(m *Manifest) error {
	m.Named = f.named
	data, err := encodeSlot(m, 0)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.put(m, manifestNew, slotFor(structure(m, data))); err != nil {
		return err
	}
	if err := f.fsys.SyncDir(f.dir); err != nil {
		return &syncError{err}
	}
	f.commit(0)
	return nil
}

// reserve creates a file for slots of this size, for the committer.
func (f *manifestFile) reserve(size int64) error {
	path := filepath.Join(f.dir, manifestRoom(size))
	file, err := f.fsys.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Preallocate(2*size), file.Close()); err != nil {
		return errors.Join(err, f.fsys.Remove(path))
	}
	return nil
}
