package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Durability is the promise of a completion: what the records survive when it is called.
type Durability uint8

const (
	// Synced: the records survive a power cut.
	Synced Durability = iota
	// Replicated: the records survive the death of the process.
	Replicated
	// Memory: the records are in memory, and will be written.
	Memory
)

// Completion receives the result of an append, once. The committer calls it, or Append itself if
// the promise is Memory, in the order of the appends. It must not block.
type Completion interface {
	Committed(first, end uint64, err error)
}

// Append is a group of records that is stored as one batch: all of it or nothing.
type Append struct {
	Epoch      uint64
	Records    []Record
	Packed     Packed // instead of Records
	Extensions []Extension
	Durability Durability
	Done       Completion // may be nil
}

func (a *Append) packed() bool { return a.Packed.Count != 0 || len(a.Packed.Records) > 0 }

// size returns the length of the batch, or an error if there can't be one.
func (a *Append) size() (int, error) {
	if !a.packed() {
		return batchSize(a.Records, a.Extensions)
	}
	if len(a.Records) > 0 {
		return 0, errors.New("records are either packed or not; append them one after the other")
	}
	return packedSize(&a.Packed, a.Extensions)
}

// Epoch is an epoch of leadership and the offset where its batches begin.
type Epoch struct {
	Epoch uint64 `json:"epoch"`
	Start uint64 `json:"start"` // offset of its first record
}

// Log is one shard's log on one disk. See the package's comment for its invariants.
type Log struct {
	disk *Disk
	id   Identity
	name string
	dir  string

	upkeep upkeep

	// admin is held during changes of the log's files other than appends. It comes before man's mu
	// and mu.
	admin  sync.Mutex
	man    manifestFile
	secret uint64

	mu       sync.Mutex
	idle     *sync.Cond // the committer has no work for this log
	start    uint64
	end      uint64
	durable  uint64
	epochs   []Epoch
	segments []*segment
	active   *segment // the last of segments, or nil
	recovery Recovery
	failed   error
	closed   bool
	holds    map[*Hold]struct{}
	cuts     uint64 // counts truncations, resets and repairs
	cutting  bool   // a truncation or a reset is under way, so nothing may be appended
	stats    Stats

	watermark atomic.Uint64 // see NoteWatermark

	// What the manifest doesn't have yet.
	generation uint64       // of new files
	segsNew    []SegmentRef // segments with records
	epochsNew  []Epoch
	listing    int // segments and epochs that the committer is writing to the manifest
	// room is the slot size of a larger manifest file that was prepared; 0: there is none.
	room    int64
	removed []SegmentRef // files whose removal may not be durable yet
	beside  besides

	// The newest records, in memory.
	chunk     *chunk // the one being filled, the last of tail
	chunkSize int
	chunkIDs  uint64
	tail      []*chunk

	// Work for the committer.
	queued     bool
	committing bool
	opened     bool // guarded by the disk's mu
	rewritten  bool // opening the log has written its tail again

	pointed atomic.Bool // the journal has this log in its list dirty
	wantOne bool        // a waiter wants a sync
	cover   int         // bytes of batches that the next run is expected to have
	runs    []run
	waiters []waiter
	sealing []*segment

	round commitRound // owned by the committer
}

// run is a contiguous write from one chunk to one file: a run marker and the batches that it
// covers.
type run struct {
	seg        *segment
	c          *chunk
	from       int
	data       []byte // its capacity includes the adjacent next run
	pos        int64
	marker     int   // position of the marker in data: behind the file's header, or 0
	left       int   // bytes of further batches that the marker can cover
	synced     int64 // position up to which the file was synced when the committer took the run
	first, end uint64
}

type waiter struct {
	done       Completion
	first, end uint64
	durability Durability
}

// Name returns the name of the log's directory.
func (l *Log) Name() string { return l.name }

// Offsets returns the first retained offset, the offset that the next record will get, and the
// offset below which all records survive a power cut.
func (l *Log) Offsets() (start, end, durable uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.end, l.durable
}

// NoteWatermark notes that all records below an offset are committed. It must not be called during
// a truncation or a reset.
//
// The journal of sync points records the watermark with its next write, at the latest when the disk
// is idle. So a log that is opened after a crash knows a recent watermark. This costs a write and a
// sync only if the watermark moves after the disk has become idle.
func (l *Log) NoteWatermark(offset uint64) {
	if l.watermark.Swap(offset) == offset || l.pointed.Load() {
		return
	}
	j := l.disk.journal
	j.note(l)
	if j.closed.Load() {
		l.disk.wakeUp()
	}
}

// Watermark returns an offset below which all records are known to be committed; 0: unknown. It
// never exceeds the noted watermark.
func (l *Log) Watermark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.watermark.Load(), l.end)
}

// recallWatermark sets the watermark from the journal, or from the manifest, which has that of the
// last truncation.
func (l *Log) recallWatermark(m *Manifest) {
	known := min(m.Committed, l.end)
	for _, s := range l.segments {
		file := s.file
		if i := slices.IndexFunc(m.Segments, func(r SegmentRef) bool { return r.Base == s.base && r.Generation == s.gen }); i >= 0 && file == 0 {
			file = m.Segments[i].File
		}
		known = max(known, min(l.disk.points.of(l.secret, s.base, file).committed, s.end))
	}
	l.watermark.Store(known)
}

// KnowsEpochs reports whether Epochs is right also where records can't be read: the manifest lists
// an epoch before its records count as durable. It is not if the manifest was lost: then an epoch
// seems to begin with its first readable record.
func (l *Log) KnowsEpochs() bool { return !l.man.now.Load().Rebuilt }

// NoteEpochs durably notes where epochs of the log begin, by the log of another replica that has
// the same records there. Of two beginnings the earlier one counts.
func (l *Log) NoteEpochs(begins []Epoch) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.change(func(m *Manifest) { m.Epochs = mergeEpochs(m.Epochs, begins) }); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epochs = mergeEpochs(l.epochs, begins)
	return nil
}

// EpochAt returns the epoch of a record, whether it can be read or not, and the offset up to which
// the log is of that epoch. That is as right as Epochs (KnowsEpochs). Epoch 0: the log has no such
// record.
func (l *Log) EpochAt(offset uint64) (epoch, until uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset >= l.end {
		return 0, 0
	}
	for _, e := range l.epochs {
		if e.Start > offset {
			return epoch, e.Start
		}
		epoch = e.Epoch
	}
	return epoch, l.end
}

// Extent returns the offsets of the records of an epoch, from from up to and without next; from ==
// next: the log has none. That is as right as Epochs (KnowsEpochs).
func (l *Log) Extent(epoch uint64) (from, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = l.end
	for i, e := range l.epochs {
		if e.Epoch == epoch {
			if i+1 < len(l.epochs) {
				next = l.epochs[i+1].Start
			}
			from = max(e.Start, l.start)
			return min(from, next), next
		}
	}
	return l.end, l.end
}

// Epochs returns the retained epochs and where each begins.
func (l *Log) Epochs() []Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs)
}

// Recovery returns what opening the log found.
func (l *Log) Recovery() Recovery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recovery
}

// writable returns the reason for which appends are refused, or nil. mu is held.
func (l *Log) writable() error {
	if l.closed {
		return ErrClosed
	}
	if l.failed != nil {
		return l.failed
	}
	return l.disk.Failed()
}

// Append gives the records their offsets and hands them to the committer. On an error nothing was
// appended, and Done is not called. The caller may reuse the records' memory afterwards.
func (l *Log) Append(a *Append) (first uint64, err error) {
	size, err := a.size()
	if err != nil {
		return 0, fmt.Errorf("log %s: append: %w", l.name, err)
	}
	l.mu.Lock()
	if err := l.admit(size, a.Epoch); err != nil {
		l.mu.Unlock()
		return 0, err
	}
	first = l.end
	c, at := l.begin(size)
	if a.packed() {
		c.buf = appendPacked(c.buf, a.Epoch, first, &a.Packed, a.Extensions)
	} else {
		c.buf = appendBatch(c.buf, a.Epoch, first, a.Records, a.Extensions)
	}
	l.appended(Batch(c.buf[at:]), a.Durability, a.Done)
	end := l.end
	l.mu.Unlock()
	if a.Durability == Memory && a.Done != nil {
		a.Done.Committed(first, end, nil)
	}
	return first, nil
}

// AppendBatch appends a batch of the leader's log unchanged. Followers use it. The batch must have
// been checked with ParseBatch.
func (l *Log) AppendBatch(b Batch, durability Durability, done Completion) error {
	l.mu.Lock()
	err := l.writable()
	if err == nil && b.Base() != l.end {
		err = &OffsetError{Log: l.name, Base: b.Base(), End: l.end}
	}
	if err == nil {
		err = l.admit(len(b), b.Epoch())
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	c, at := l.begin(len(b))
	c.buf = append(c.buf, b...)
	l.appended(Batch(c.buf[at:]), durability, done)
	l.mu.Unlock()
	if durability == Memory && done != nil {
		done.Committed(b.Base(), b.End(), nil)
	}
	return nil
}

// admit checks whether a batch can be appended, and reserves space on the disk for it. mu is held.
func (l *Log) admit(size int, epoch uint64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if l.cutting {
		return fmt.Errorf("log %s: append: it is being truncated", l.name)
	}
	if n := len(l.epochs); n > 0 && epoch < l.epochs[n-1].Epoch {
		return &EpochError{Log: l.name, Epoch: epoch, Last: l.epochs[n-1].Epoch}
	}
	if l.disk.backlog.Load() > 2*l.disk.opts.Backlog {
		return ErrOverloaded
	}
	need := int64(size + headerSize + runMarkerSize(max(size, l.cover)))
	fits := l.active != nil && l.active.pos+need+l.active.footerRoom() <= l.active.size
	known := len(l.epochs) > 0 && epoch == l.epochs[len(l.epochs)-1].Epoch
	err := error(nil)
	if !fits || !known {
		err = l.reserveListing()
	}
	if err == nil && !fits {
		err = l.roll(need)
	}
	if err == nil {
		return nil
	}
	l.stats.Refused++
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("log %s: append: no room for the next segment: %w; free space, enlarge the volume or shorten the retention", l.name, err)
	}
	return fmt.Errorf("log %s: append: %w", l.name, err)
}

// reserveListing reserves space in the manifest for one more segment and one more epoch, so that a
// full disk refuses an append instead of failing a round. mu is held.
func (l *Log) reserveListing() error {
	slot := l.man.slot.Load()
	size := max(slot, l.room)
	if int64(l.listing+len(l.segsNew)+len(l.epochsNew)+2) <= l.man.free.Load()+(size-slot)/listingSize {
		return nil
	}
	if err := l.man.reserve(2 * size); err != nil {
		return err
	}
	l.room = 2 * size
	return nil
}

// roll makes a segment with space for need bytes the active one. The space is reserved on the disk
// before an append is accepted, so that a full disk refuses an append instead of failing a round.
// mu is held.
func (l *Log) roll(need int64) error {
	size := l.disk.opts.SegmentSmallest
	// A log of cursors is rewritten and trimmed continuously, and stays small.
	if n := len(l.segments); n > 0 && l.id.Part == "" {
		size = min(2*l.segments[n-1].size, l.disk.opts.SegmentLargest)
		size = max(size, l.disk.opts.SegmentSmallest)
	}
	s := newSegment(l.dir, SegmentRef{Base: l.end, Generation: l.generation})
	s.size = max(size, (need+s.footerRoom()+4095)&^4095)
	s.newName, s.file = true, rand.Uint32()|1
	if l.active != nil && l.active.end == l.active.base {
		return l.enlarge(s.size)
	}
	f, err := l.disk.fs.Create(s.path)
	if err != nil {
		return err
	}
	if err := f.Preallocate(s.size); err != nil {
		return errors.Join(err, f.Close(), l.disk.fs.Remove(s.path))
	}
	l.disk.handles.adopt(s, f)
	l.disk.handles.release(s)
	if l.active != nil {
		l.retire()
	}
	l.active = s
	l.segments = append(l.segments, s)
	l.stats.Segments++
	return nil
}

// enlarge reserves more space for an active segment without records. mu is held.
func (l *Log) enlarge(size int64) error {
	f, err := l.disk.handles.acquire(l.active)
	if err != nil {
		return err
	}
	defer l.disk.handles.release(l.active)
	if err := f.Preallocate(l.active.pos + size); err != nil {
		return err
	}
	l.active.size = l.active.pos + size
	return nil
}

// retire queues the active segment for the committer to seal. mu is held.
func (l *Log) retire() {
	l.active.closed = true
	l.sealing = append(l.sealing, l.active)
	l.active = nil
	l.enqueue()
}

// begin returns a chunk with space for a batch of size bytes, and the batch's position in it.
// Before the batch it adds the file's header and a run marker, if they are due. A batch that the
// run's marker can't cover begins another run, which the committer writes together with the
// previous one. mu is held.
func (l *Log) begin(size int) (*chunk, int) {
	c, s := l.chunk, l.active
	marker := runMarkerSize(max(size, l.cover))
	extra := headerSize + marker
	if c == nil || cap(c.buf)-len(c.buf) < size+extra {
		if c != nil && l.chunkSize < usualChunk {
			l.chunkSize *= 2
		}
		c = newChunk(max(size+extra, l.chunkSize))
		l.chunkIDs++
		c.id, c.first, c.end, c.written = l.chunkIDs, l.end, l.end, l.end
		l.chunk = c
		l.tail = append(l.tail, c)
	}
	if n := len(l.runs); n == 0 || l.runs[n-1].c != c || l.runs[n-1].seg != s || l.runs[n-1].left < size {
		from, pos, head := len(c.buf), s.pos, 0
		if pos == 0 {
			c.buf, head = appendHeader(c.buf, l.secret, s.base, s.file), headerSize
		}
		c.buf = reserveMarker(c.buf, marker)
		s.pos += int64(len(c.buf) - from)
		c.retain()
		l.runs = append(l.runs, run{seg: s, c: c, from: from, pos: pos, marker: head, left: runCover(marker) - marker, first: l.end})
	}
	return c, len(c.buf)
}

// appended updates the log's state for a batch that was encoded at the end of the chunk. mu is
// held.
func (l *Log) appended(b Batch, durability Durability, done Completion) {
	s, r := l.active, &l.runs[len(l.runs)-1]
	before := len(r.data)
	if s.end == s.base {
		l.segsNew = append(l.segsNew, SegmentRef{Base: s.base, Generation: s.gen, File: s.file})
	}
	if n := len(l.epochs); n == 0 || b.Epoch() > l.epochs[n-1].Epoch {
		l.epochs = append(l.epochs, Epoch{Epoch: b.Epoch(), Start: b.Base()})
		l.epochsNew = append(l.epochsNew, Epoch{Epoch: b.Epoch(), Start: b.Base()})
		s.epochs = append(s.epochs, Epoch{Epoch: b.Epoch(), Start: b.Base()})
	} else if len(s.epochs) == 0 {
		s.epochs = append(s.epochs, Epoch{Epoch: b.Epoch(), Start: b.Base()})
	}
	marker := r.c.buf[r.from+r.marker:]
	frame(marker[:le.Uint32(marker)]).cover(r.pos+int64(r.marker), s.pos, b)
	s.note(b, s.pos)
	first := l.end
	l.end = b.End()
	r.data, r.end = r.c.buf[r.from:], l.end
	r.left -= len(b)
	r.c.end = l.end
	r.c.note(b)
	l.stats.Appended += uint64(b.Count())
	l.stats.AppendedBytes += uint64(len(b))
	l.disk.backlog.Add(int64(len(r.data) - before))
	l.wantOne = l.wantOne || durability == Synced
	if done != nil && durability != Memory {
		l.waiters = append(l.waiters, waiter{done: done, first: first, end: l.end, durability: durability})
	}
	l.enqueue()
}

// enqueue puts the log on the disk's list of dirty logs. mu is held.
func (l *Log) enqueue() {
	if l.queued {
		return
	}
	l.queued = true
	d := l.disk
	d.mu.Lock()
	d.dirty = append(d.dirty, l)
	d.mu.Unlock()
	d.wakeUp()
}

// WaitRoom blocks while the disk's backlog exceeds Options.Backlog. A publisher that calls it
// before each Append never gets ErrOverloaded.
func (l *Log) WaitRoom(ctx context.Context) error {
	d := l.disk
	if d.backlog.Load() <= d.opts.Backlog {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.room.Broadcast()
	})
	defer stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.backlog.Load() > d.opts.Backlog && ctx.Err() == nil && d.failed == nil && !d.closing {
		d.room.Wait()
	}
	if d.failed != nil {
		return d.failed
	}
	return ctx.Err()
}

// settle waits until no round of this log is queued or under way. mu is held before and after.
func (l *Log) settle() {
	for l.queued || l.committing {
		l.idle.Wait()
	}
}

// Flush waits until all records that were appended before are durable.
func (l *Log) Flush() error {
	l.admin.Lock()
	defer l.admin.Unlock()
	return l.flush()
}

// flush is Flush with admin held.
func (l *Log) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.durable < l.end {
		l.wantOne = true
		l.enqueue()
	}
	l.settle()
	if l.durable < l.end {
		return l.unsafe()
	}
	return nil
}

// unsafe returns the reason that the log's end isn't durable. mu is held.
func (l *Log) unsafe() error {
	if l.failed != nil {
		return l.failed
	}
	if err := l.disk.Failed(); err != nil {
		return err
	}
	return fmt.Errorf("log %s: appended meanwhile", l.name)
}

// SetSpec writes spec and epoch to the manifest, from which lost coordination data can be rebuilt.
func (l *Log) SetSpec(spec []byte, epoch uint64) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.stillOpen(); err != nil {
		return err
	}
	return l.change(func(m *Manifest) { m.Spec, m.Epoch = bytes.Clone(spec), epoch })
}

// Meta returns the log's manifest. The caller must not change its slices.
func (l *Log) Meta() Manifest { return *l.man.now.Load() }

// Close flushes and closes the log. Views that readers hold stay valid.
func (l *Log) Close() error {
	l.endUpkeep()
	l.admin.Lock()
	defer l.admin.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	l.mu.Unlock()
	err := l.flush()
	l.mu.Lock()
	l.settle()
	durable, failed := l.durable, l.failed
	l.dropTail()
	l.keepChecks()
	l.mu.Unlock()
	if err == nil && failed == nil && durable > l.man.now.Load().Durable {
		err = l.change(func(m *Manifest) { m.Durable = max(m.Durable, durable) })
	}
	if why := cmp.Or(failed, err); why != nil {
		l.disk.noteUnclean(why)
	}
	l.dropHandles()
	l.disk.mu.Lock()
	delete(l.disk.logs, l.name)
	l.disk.mu.Unlock()
	return err
}

func (l *Log) dropHandles() {
	for _, s := range l.segments {
		l.disk.handles.forget(s)
	}
}

// dropTail releases the chunks that are kept in memory for readers. mu is held, and no round of the
// log is queued or under way.
func (l *Log) dropTail() {
	for _, c := range l.tail {
		c.release()
	}
	l.tail, l.chunk = nil, nil
}
