package log

import (
	"errors"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// commitRound is the part of one log in a round of the committer: runs to write, files to sync.
type commitRound struct {
	runs    []run
	waiters []waiter
	sealing []*segment
	end     uint64   // offset after the last record of the runs
	sync    bool     // last is to be synced
	active  *segment // the log's active segment when the round began
	last    *segment // the file that was written last, with its handle acquired
	lastPos int64    // where the bytes written to last end
	sealed  uint64   // end of the last segment that the round sealed and synced; 0: none
	err     error

	// New entries of the manifest. listing reports that the manifest's mu is held. Segments are
	// written to the manifest when they are durable, see list.
	segments []SegmentRef
	epochs   []Epoch
	room     int64
	listing  bool
	late     bool // they are written to the manifest after the sync of the records, not before
}

// tail is a chunk of a log that stays in memory for readers.
type tail struct {
	log *Log
	id  uint64
	n   int64
}

// run is the committer's loop. Everything appended during one round is the next round. So rounds
// grow with the load and with the latency of the disk, without a timer.
//
// Rejected: a committer per log. With a hundred busy shards, a disk would sync a hundred times
// where one sync is enough.
func (d *Disk) run() {
	defer close(d.done)
	idle := time.NewTimer(closingIdle)
	defer idle.Stop()
	for {
		select {
		case <-d.wake:
		case <-idle.C:
			if d.Failed() != nil {
				continue
			}
			d.journal.close(time.Now(), d.openLogs)
			if d.journal.closed.Store(true); d.journal.waits() { // noted before it was marked as closed
				idle.Reset(closingIdle)
			}
			continue
		case <-d.stop:
			return
		}
		for d.round() {
		}
		if d.journal.waits() {
			d.journal.closed.Store(false)
			idle.Reset(closingIdle)
		}
	}
}

// wakeUp starts a round of the committer unless one is under way.
func (d *Disk) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// round writes and syncs all dirty logs. It returns false if there was none.
func (d *Disk) round() bool {
	d.mu.Lock()
	logs := d.dirty
	d.dirty, d.spare = d.spare[:0], nil
	d.mu.Unlock()
	if len(logs) == 0 {
		d.spare = logs
		return false
	}
	d.rounds.begin()
	if began := time.Now(); began.Sub(d.journal.written) >= pointsEvery && d.Failed() == nil {
		d.journal.write(began, d.openLogs)
	}
	wanted := 0
	d.listing = 0
	for _, l := range logs {
		l.write()
		if l.round.sync {
			wanted++
		}
	}
	d.makeRoom()
	began := time.Now()
	all := wanted >= d.opts.SyncAllFrom && d.syncAll(logs)
	for _, l := range logs {
		if l.round.sync && !all {
			l.syncFiles()
		}
	}
	d.rounds.end()
	if wanted > 0 {
		d.stats.synced(all, wanted, time.Since(began))
	}
	for _, l := range logs {
		l.finish()
	}
	d.evict()
	d.syncIdle()
	if d.opts.Committed != nil {
		d.mu.Lock()
		idle := len(d.dirty) == 0
		d.mu.Unlock()
		d.opts.Committed(idle)
	}
	clear(logs)
	d.spare = logs[:0]
	return true
}

// makeRoom wakes publishers that wait for the backlog to shrink.
func (d *Disk) makeRoom() {
	d.mu.Lock()
	d.room.Broadcast()
	d.mu.Unlock()
}

// syncAll syncs the whole file system for all logs of the round. It returns false if the system
// doesn't support that.
func (d *Disk) syncAll(logs []*Log) bool {
	err := d.Failed()
	if err == nil && d.volume != nil {
		d.rewriteSlots(logs)
	}
	if err == nil {
		if err = d.syncVolume(); errors.Is(err, errors.ErrUnsupported) {
			d.opts.SyncAllFrom = len(logs) + 1<<30
			return false
		}
		if err != nil {
			err = d.fail(err)
		}
	}
	if err == nil {
		err = d.confirm(logs)
	}
	for _, l := range logs {
		if f := &l.round; f.sync && f.err == nil {
			f.err = err
		}
	}
	d.syncLists(logs)
	for _, l := range logs {
		if f := &l.round; f.sync && f.err == nil {
			l.isSafe()
		}
	}
	return true
}

// syncLists lists the new segments of a round in which the whole file system was synced, and syncs
// the manifests: file by file, or the whole file system again if they are many.
func (d *Disk) syncLists(logs []*Log) {
	var listing []*Log
	for _, l := range logs {
		if f := &l.round; f.sync && f.err == nil && f.late {
			l.man.unsure = false // rewriteSlots wrote it, and the file system was synced
			if l.list(f.end); f.err == nil {
				listing = append(listing, l)
			}
		}
	}
	single := listing
	if len(listing) >= d.opts.SyncAllFrom {
		single = listing[:1] // its own sync confirms that of the file system
		if err := d.syncVolume(); err != nil {
			err = d.fail(err)
			for _, l := range listing {
				l.round.err = err
			}
			return
		}
	}
	for _, l := range single {
		l.round.err = d.noticed(l.man.sync())
	}
	if len(single) < len(listing) {
		for _, l := range listing {
			l.round.err = d.Failed()
		}
	}
}

// rewriteSlots writes again the manifests that this process hasn't written yet, for the logs that
// list something after the sync of the whole file system. So that sync makes them durable, and not
// one of each file: a thousand shards that get their first record at once after a start wait for
// two syncs, and waited for a thousand more.
func (d *Disk) rewriteSlots(logs []*Log) {
	for _, l := range logs {
		if f := &l.round; f.sync && f.err == nil && f.late && l.man.unsure {
			l.noticeSlot(l.man.rewrite())
		}
	}
}

// noticeSlot fails the round if a slot of the manifest couldn't be written.
func (l *Log) noticeSlot(err error) {
	if err == nil {
		return
	}
	l.round.err = l.disk.noticed(err)
	l.mu.Lock()
	l.noteFailure()
	l.mu.Unlock()
}

func (d *Disk) syncVolume() error {
	if d.volume == nil {
		return errors.ErrUnsupported
	}
	return d.volume.Sync()
}

// confirm syncs one of the files after a sync of the whole file system: older kernels answer a
// syncfs of an ext4 that has shut down with success, and a file's own sync with an error. The file
// is clean by then, so this costs little.
func (d *Disk) confirm(logs []*Log) error {
	for _, l := range logs {
		if f := &l.round; f.sync && f.err == nil {
			if err := f.last.handle.f.Sync(); err != nil {
				return d.fail(err)
			}
			return nil
		}
	}
	return nil
}

// write takes the runs and the complete segments that the log has queued, writes the runs and seals
// the segments.
func (l *Log) write() {
	f := &l.round
	l.mu.Lock()
	f.runs, l.runs = l.runs, f.runs[:0]
	f.waiters, l.waiters = l.waiters, f.waiters[:0]
	f.sealing, l.sealing = l.sealing, f.sealing[:0]
	f.end, f.sync, f.active, f.last, f.sealed, f.err = l.end, l.wantOne, l.active, nil, 0, l.failed
	f.segments, f.epochs = nil, nil
	bytes := 0
	for i := range f.runs {
		f.runs[i].synced = f.runs[i].seg.synced
		bytes += len(f.runs[i].data)
	}
	l.cover = min(max(bytes, l.cover/2), usualChunk)
	l.queued, l.committing, l.wantOne = false, true, false
	// A round without a sync lists nothing: opening the log finds an unlisted segment by its name.
	lists := (f.sync || len(f.sealing) > 0) && len(l.segsNew)+len(l.epochsNew) > 0
	if lists {
		f.segments, l.segsNew = l.segsNew, nil
		f.epochs, l.epochsNew = l.epochsNew, nil
		l.listing, f.room = len(f.segments)+len(f.epochs), l.room
	}
	l.mu.Unlock()
	if f.err == nil {
		f.err = l.disk.Failed()
	}
	if lists && f.err == nil {
		l.man.mu.Lock()
		f.listing = true
		if f.late = len(f.segments) > 0 || l.man.unsure; !f.late {
			l.list(0) // epochs alone share the sync of the records
		}
	}
	sealed := 0
	for i, next := 0, 0; i < len(f.runs); i = next {
		r := &f.runs[i]
		for ; sealed < len(f.sealing) && f.sealing[sealed].base < r.seg.base; sealed++ {
			l.disk.makeRoom() // sealing syncs a whole segment, and written appends make room already
			l.seal(f.sealing[sealed])
		}
		next = i + 1
		n := len(r.data)
		for ; next < len(f.runs) && f.runs[next].seg == r.seg && f.runs[next].c == r.c; next++ {
			n += len(f.runs[next].data) // adjacent in memory and in the file
		}
		l.writeRuns(f.runs[i:next], r.data[:n])
		l.disk.backlog.Add(-int64(n))
	}
	for ; sealed < len(f.sealing); sealed++ {
		l.seal(f.sealing[sealed])
	}
	l.mu.Lock()
	l.noteFailure()
	if f.err == nil {
		for i := range f.runs {
			r := &f.runs[i]
			r.c.written, r.seg.written = r.end, r.pos+int64(len(r.data))
		}
	}
	if f.sync && f.err == nil && f.last == nil && f.active != nil && max(l.durable, f.sealed) < f.end {
		f.err = l.hold(f.active) // a Flush wants records safe that were appended without a sync
		f.lastPos = f.active.written
	}
	f.sync = f.sync && f.err == nil && f.last != nil
	l.mu.Unlock()
	if f.listing && f.err == nil && !f.sync {
		l.listSealed()
	}
	for i := range f.runs {
		l.disk.keep(l, f.runs[i].c)
		f.runs[i].c.release()
	}
	if f.err != nil || f.sync {
		return
	}
	l.complete(func(w *waiter) bool { return w.durability != Synced })
}

// noteFailure fails the log if its round failed and the disk did not. The content of its files is
// unknown then, so the log has to be opened again. mu is held.
func (l *Log) noteFailure() {
	f := &l.round
	if f.err != nil && l.failed == nil && l.disk.Failed() == nil {
		l.failed = &FailedError{What: "log " + l.name, Err: f.err}
		f.err = l.failed
	}
}

// list writes the segments and epochs that are new in this round to the manifest. Records below
// safe, and the names of their files, are synced already; 0: unknown. They are listed durably once
// the manifest is synced, before the completions of the round are called.
//
// Segments are written to the manifest after the sync of their first records, not before: the disk
// may write a manifest at any time. So a listed segment always had records, and one that is missing
// was lost. The manifest says that these records were durable.
func (l *Log) list(safe uint64) {
	f := &l.round
	next := l.man.now.Load().clone()
	next.list(f.segments, f.epochs)
	next.Durable = max(next.Durable, safe)
	next.tidy()
	if err := l.man.write(next, f.room); err != nil {
		l.noticeSlot(err)
		return
	}
	if l.disk.listing++; l.disk.listing > mostListing {
		l.man.park()
	}
}

// listSealed lists the segments that a round without a sync of its last file has sealed. The others
// are not durable yet, and are listed by a later round.
func (l *Log) listSealed() {
	f := &l.round
	if n := slices.IndexFunc(f.segments, func(r SegmentRef) bool { return r.Base >= f.sealed }); n >= 0 {
		l.mu.Lock()
		l.segsNew = slices.Concat(f.segments[n:], l.segsNew)
		l.mu.Unlock()
		f.segments = f.segments[:n]
	}
	if l.man.next == nil {
		l.list(f.sealed)
	}
	if f.err == nil {
		f.err = l.disk.noticed(l.man.sync())
	}
}

// mostListing bounds how many manifests a round keeps open beside its segments. When 10,000 shards
// get leaders at once, all have a new epoch to list, and the usual limit is 65,536 descriptors.
const mostListing = 1024

// listed commits the change of the manifest that list has written, or abandons it if the round
// failed. mu is not held.
func (l *Log) listed() {
	f := &l.round
	l.mu.Lock()
	durable := l.durable
	l.mu.Unlock()
	if f.err == nil && l.man.next != nil {
		l.man.commit(durable)
	} else {
		l.man.abandon()
	}
	l.man.mu.Unlock()
	l.mu.Lock()
	l.listing = 0
	if l.room <= l.man.slot.Load() {
		l.room = 0
	}
	l.mu.Unlock()
	f.listing, f.late = false, false
}

// hold acquires the handle of s, and makes s the last file of the round.
func (l *Log) hold(s *segment) error {
	if l.round.last == s {
		return nil
	}
	if l.round.last != nil {
		l.disk.handles.release(l.round.last)
		l.round.last = nil
	}
	if _, err := l.disk.handles.acquire(s); err != nil {
		return err
	}
	l.round.last = s
	return nil
}

// writeRuns seals the markers of runs that are adjacent in a chunk and in a file, and writes them
// at once. data is the bytes of all these runs.
func (l *Log) writeRuns(runs []run, data []byte) {
	f, s, pos := &l.round, runs[0].seg, runs[0].pos
	if f.err != nil {
		return
	}
	if f.err = l.hold(s); f.err != nil {
		return
	}
	for i := range runs {
		r := &runs[i]
		sealMarker(r.data[r.marker:], runMarker{log: l.secret, at: r.pos + int64(r.marker), synced: r.synced, first: r.first, end: r.end})
	}
	l.disk.handles.setDirty(s, true)
	if f.err = l.writeZeros(s, pos, len(data)); f.err != nil {
		return
	}
	n, err := s.handle.f.WriteAt(data, pos)
	if err == nil && n < len(data) {
		err = &env.DiskError{Op: "write", Path: s.path, Err: io.ErrShortWrite}
	}
	f.err, f.lastPos = err, pos+int64(len(data))
}

// writeZeros writes zeros ahead of small batches. In space that is only reserved, the first write
// to a block changes the file's metadata, so its sync waits for a commit of the file system's
// journal, which all files of the disk share. In blocks that were written before, a sync writes
// data only. Large batches are not worth writing twice.
func (l *Log) writeZeros(s *segment, pos int64, n int) error {
	end := pos + int64(n)
	if end <= s.zeroed || n >= largestZeroed {
		return nil
	}
	from := max(s.zeroed, pos)
	l.mu.Lock()
	until := min(end+min(max(pos, smallestZeros), int64(len(zeros))), s.size)
	l.mu.Unlock()
	for from < until {
		n, err := s.handle.f.WriteAt(zeros[:min(until-from, int64(len(zeros)))], from)
		if err != nil {
			return err
		}
		from += int64(n)
		s.zeroed = from
	}
	return nil
}

const (
	largestZeroed = 64 << 10 // the sync of a larger batch is slow because of its data
	// smallestZeros is the first length written ahead, which then doubles each time: a thousand
	// Topics of a few messages each don't write much.
	smallestZeros = 16 << 10
)

// seal writes the footer of a complete segment, cuts off its unused space and syncs it, before
// anything is written to the next segment. So a segment with records proves that all before it are
// whole.
func (l *Log) seal(s *segment) {
	f := &l.round
	if f.err != nil {
		return
	}
	if f.err = l.hold(s); f.err != nil {
		return
	}
	file := s.handle.f
	foot := s.appendFooter(nil, l.secret)
	if _, f.err = file.WriteAt(foot, s.pos); f.err != nil {
		return
	}
	size := s.pos + int64(len(foot))
	if f.err = file.Truncate(size); f.err != nil {
		return
	}
	if f.err = l.disk.syncSegment(s); f.err != nil {
		return
	}
	s.lookup.Store(&lookup{index: s.index, pos: s.pos})
	l.mu.Lock()
	s.size, s.index = size, nil
	s.written, s.synced = s.pos, s.pos
	s.checkedNow()
	l.mu.Unlock()
	f.sealed = s.end
	l.disk.handles.release(s)
	f.last = nil
}

// syncSegment syncs a segment's file and its name.
func (d *Disk) syncSegment(s *segment) error {
	if err := d.Failed(); err != nil {
		return err
	}
	if err := s.handle.f.Sync(); err != nil {
		return d.fail(err)
	}
	if s.newName {
		if err := d.fs.SyncDir(filepath.Dir(s.path)); err != nil {
			return d.fail(err)
		}
		s.newName = false
	}
	d.handles.setDirty(s, false)
	return nil
}

// syncIdle syncs files that no append waits for, if they are too many to be kept open. Closing one
// unsynced could lose the kernel's report of a failed write-back.
func (d *Disk) syncIdle() {
	for _, s := range d.handles.idleDirty() {
		_ = d.syncSegment(s) // an error fails the disk, so every append reports it
		d.handles.release(s)
	}
}

func (l *Log) syncFiles() {
	if f := &l.round; f.err == nil {
		f.err = l.disk.syncSegment(f.last)
		if f.err == nil && f.late {
			l.list(f.end)
		}
		if f.err == nil && f.listing {
			f.err = l.disk.noticed(l.man.sync())
		}
		if f.err == nil {
			l.isSafe()
		}
	}
}

// isSafe marks the runs of the round as durable.
func (l *Log) isSafe() {
	f := &l.round
	f.last.newName = false
	l.disk.handles.setDirty(f.last, false)
	l.mu.Lock()
	l.durable = max(l.durable, f.end)
	f.last.synced = f.lastPos
	l.disk.journal.note(l)
	l.mu.Unlock()
}

// finish calls the pending completions, and ends the round.
func (l *Log) finish() {
	f := &l.round
	if f.last != nil {
		l.disk.handles.release(f.last)
		f.last = nil
	}
	if f.sealed > 0 && (f.err == nil || !f.listing) {
		// After a failed round that was to list the sealed segments, they may be unlisted. Then
		// their records don't count as durable: no change of the manifest may rely on them (L17).
		l.mu.Lock()
		l.durable = max(l.durable, f.sealed)
		l.mu.Unlock()
	}
	if f.listing {
		l.listed() // before completions: a missing segment with acknowledged records is damage (L17)
	}
	l.complete(func(*waiter) bool { return true })
	clear(f.runs)
	clear(f.sealing)
	if cap(f.waiters) > keptWaiters {
		f.waiters = nil
	}
	l.mu.Lock()
	l.committing = false
	if !l.queued {
		l.idle.Broadcast()
	}
	l.mu.Unlock()
}

// keptWaiters is the largest capacity of a list of waiters that is reused in the next round.
const keptWaiters = 8 << 10

// complete calls the completions for which due returns true, in the order of the appends.
func (l *Log) complete(due func(*waiter) bool) {
	f := &l.round
	for i := range f.waiters {
		if w := &f.waiters[i]; w.done != nil && due(w) {
			w.done.Committed(w.first, w.end, f.err)
			w.done = nil
		}
	}
}

// keep keeps a chunk in memory for readers, within Options.TailBytes.
func (d *Disk) keep(l *Log, c *chunk) {
	if last := d.tails.Back(); last != nil {
		if t := last.Value.(*tail); t.log == l && t.id == c.id {
			return
		}
	}
	l.mu.Lock()
	known := c.kept
	c.kept = true
	l.mu.Unlock()
	if !known {
		d.tails.PushBack(&tail{log: l, id: c.id, n: c.size})
		d.held += c.size
	}
}

// evict releases the oldest chunks until the rest fits Options.TailBytes.
func (d *Disk) evict() {
	for d.held > d.opts.TailBytes && d.tails.Len() > 0 {
		t := d.tails.Front().Value.(*tail)
		if !t.log.evict(t.id) {
			return
		}
		d.held -= t.n
		d.tails.Remove(d.tails.Front())
	}
}

// evict releases the log's chunks up to this one. It returns false if one of them isn't written
// yet.
func (l *Log) evict(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.tail) > 0 && l.tail[0].id <= id {
		c := l.tail[0]
		if c.written < c.end {
			return l.failed != nil // a log that failed never writes it
		}
		if c == l.chunk {
			l.chunk, l.chunkSize = nil, smallestChunk
		}
		c.release()
		l.tail[0] = nil
		l.tail = l.tail[1:]
	}
	return true
}
