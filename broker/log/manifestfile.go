package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/carillon-mq/carillon/broker/env"
)

// manifestFile is the file that holds a log's manifest, in two slots of one size.
//
// A change is written to one slot and synced, which commits it; then the other slot gets it as
// well, without a sync. The next change goes to that other slot. So there is always one slot that
// is known to be safe, a change costs one sync and no name, and at rest both slots say the same
// (the second may have a higher Durable):
//
//  1. A crash tears one slot at most, and the other one says what was committed before.
//  2. A slot that is damaged at rest costs nothing.
//  3. A change needs no room on the disk, unless the manifest outgrows its slots. Then a larger
//     file takes the place of the file: made beside it, synced, renamed.
//
// A file that is replaced by renaming, as meta.json was, is the simpler way. It can't be replaced
// on a full disk, and costs two syncs that wait for the file system's journal.
type manifestFile struct {
	fsys env.FS
	dir  string

	// now is the manifest that was committed last. It must not be changed.
	now atomic.Pointer[Manifest]
	// free is how many more segments and epochs fit, and slot how large a slot is.
	free, slot atomic.Int64

	// mu is held from the writing of a change until it is committed or abandoned; by the committer,
	// from when it writes a round until it has synced it, however long that takes. It comes before
	// the log's mu.
	mu       gate
	size     int64 // of a slot; 0: there is no file yet
	sequence uint64
	safe     int   // the slot that is known to be safe
	unsure   bool  // what safe holds may not be synced: it was read, or written before this life
	named    bool  // meta.json is safe, or will be with this file: see Manifest.Named
	length   int64 // of what was committed last, without its state

	// The change under way.
	next       *Manifest
	nextLength int64
	file       env.File // nil: it is parked, or next is safe already
	data       []byte   // nil: next is safe already
}

// gate is a lock that may be held for long. Waiting for it is waiting for a channel, so time passes
// meanwhile in tests in a bubble of package synctest.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

const (
	manifestName = "manifest"
	// manifestNew is a larger manifest file that is being written. After a crash the next opening
	// removes it.
	manifestNew = manifestName + ".new"
	// smallestSlot is the block of a file system, so that the slots share none.
	smallestSlot = 4 << 10
	// largestManifest bounds the size of a manifest that is read: a log of 100 TB in segments of 64
	// MiB needs as much.
	largestManifest = 256 << 20
	// stateRoom is the part of a slot that is reserved for the state (Copy, Aside and Bad), so that
	// a change of state needs no room on the disk.
	stateRoom = 2 << 10
	// listingSize is how long a segment or an epoch in a manifest is, at most.
	listingSize = 96
)

// slotFor returns the size of a slot for a manifest of so many bytes beside its state, with some
// room to grow.
func slotFor(structure int64) int64 {
	size := int64(smallestSlot)
	for size < structure+structure/4+stateRoom {
		size *= 2
	}
	return size
}

// structure is how long a manifest of so many bytes is without its state.
func structure(m *Manifest, data []byte) int64 {
	if len(m.Copy) == 0 && len(m.Aside) == 0 && len(m.Bad) == 0 && m.AsideBefore == 0 {
		return int64(len(data))
	}
	// It was encoded in data, so there is no error.
	state, _ := json.Marshal(&Manifest{Copy: m.Copy, Aside: m.Aside, Bad: m.Bad, AsideBefore: m.AsideBefore})
	none, _ := json.Marshal(&Manifest{})
	return int64(len(data) - len(state) + len(none))
}

func (f *manifestFile) path() string { return filepath.Join(f.dir, manifestName) }

// adopt takes over what readManifest returned.
func (f *manifestFile) adopt(m *Manifest, at slotAt) error {
	f.size, f.sequence, f.safe, f.unsure, f.named = at.size, at.sequence, at.slot, true, m.Named
	f.take(m, at.structure)
	if !at.torn {
		return nil
	}
	// A change was under way. Nothing is done by it before it is safe.
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replace(m)
}

// slotAt is which slot of a manifest file was believed.
type slotAt struct {
	size     int64
	slot     int
	sequence uint64
	torn     bool // the other one says something else, or can't be believed

	structure int64
}

// readManifest reads the manifest in a log's directory: fs.ErrNotExist if there is none and a
// *CorruptError if neither slot can be believed.
func readManifest(fsys env.FS, dir string) (m *Manifest, at slotAt, err error) {
	path := filepath.Join(dir, manifestName)
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, at, err
	}
	if info.Size > largestManifest {
		return nil, at, &CorruptError{File: path, Reason: fmt.Sprintf("it can't have %d bytes", info.Size)}
	}
	file, err := fsys.Open(path)
	if err != nil {
		return nil, at, err
	}
	data := make([]byte, info.Size)
	if err := errors.Join(readFull(file, data, 0), file.Close()); err != nil {
		return nil, at, err
	}
	at.size = info.Size / 2
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

// sameBut says whether two manifests differ at most in what the second slot may say more.
func sameBut(a, b *Manifest) bool {
	bare := *a
	bare.Durable = b.Durable
	x, err := encodeSlot(&bare, 0)
	y, otherErr := encodeSlot(b, 0)
	return err == nil && otherErr == nil && string(x) == string(y)
}

// take makes m the committed manifest; n is its size without its state.
func (f *manifestFile) take(m *Manifest, n int64) {
	f.now.Store(m)
	f.length = n
	f.slot.Store(f.size)
	f.free.Store((f.size - stateRoom - n) / listingSize)
}

// replace changes the manifest, safely. mu is held.
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

// write begins a change: it writes the slot that isn't needed. room is the size of the slots that
// an append has reserved, or 0. On an error nothing has changed. mu is held.
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
		// A change that makes the manifest hardly longer, a trim say, can be made on a full disk,
		// too.
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
		// The same bytes in the same place: they can't be torn if they are safe already, and if
		// they aren't, those in the other slot are.
		same, err := encodeSlot(f.now.Load(), f.sequence)
		if err != nil {
			return fail(err)
		}
		if _, err := file.WriteAt(same, int64(f.safe)*f.size); err != nil {
			return fail(&syncError{err})
		}
		if err := file.Sync(); err != nil {
			return fail(&syncError{err})
		}
		f.unsure = false
	}
	if _, err := file.WriteAt(data, int64(1-f.safe)*f.size); err != nil {
		return fail(&syncError{err}) // which of the two a crash would leave isn't known any more
	}
	f.next, f.file, f.data, f.nextLength = next, file, data, n
	return nil
}

// sync makes the change safe. mu is held.
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

// commit takes over a change that is safe, and writes it to the other slot, in which it may say
// that the log is durable as far as an offset. mu is held.
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
		// If this fails, the slot that was synced is as good; and this one is written anew by the
		// next change.
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

// grow puts a file with larger slots in the place of the one there is. Both slots hold next, which
// is safe by that. mu is held.
func (f *manifestFile) grow(next *Manifest, name string, size int64) error {
	if err := f.put(next, name, size); err != nil {
		return err
	}
	if err := f.fsys.SyncDir(f.dir); err != nil {
		return &syncError{err}
	}
	return nil
}

// put is grow without making the file's name safe.
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

// writeSlots writes both slots in full: the room of a file that is only reserved may cost the file
// system more when it is first written.
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

// manifestRoom names the file whose room an append has reserved for slots of some size. After a
// crash the next opening removes it.
func manifestRoom(size int64) string { return fmt.Sprintf("%s.%d.room", manifestName, size) }

// create makes the first file, or replaces one that cannot be believed. Its name is safe once it
// returns, as are those of all files that were placed in the directory before.
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

// reserve makes a file for slots of some size, which the committer then uses.
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
