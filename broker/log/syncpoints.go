package log

import (
	"hash/crc32"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// syncPoint is how far a segment's file was synced.
type syncPoint struct {
	pos int64
	end uint64 // offset of the first record behind pos
	// committed is the log's watermark at that time, at most end; 0: unknown.
	committed uint64
}

// pointKey identifies a segment's file. A file that replaces another one has a number of its own,
// so sync points of the former file don't apply to it.
type pointKey struct {
	log, base uint64
	file      uint32
}

// syncPoints are the sync points that the journal had when the disk was opened. nil has none.
type syncPoints map[pointKey]syncPoint

func (p syncPoints) of(log, base uint64, file uint32) syncPoint {
	return p[pointKey{log, base, file}]
}

// pointJournal is the disk's journal of sync points. It proves syncs that no run marker records,
// because no write to the segment followed: the last round before a kill, and the last writes of
// idle logs.
//
// Batches can't contain sync points, because they are the same bytes on all replicas. A marker at
// the end of each idle segment would cost a write and a sync per segment.
//
//  1. The sync points of earlier rounds are written at the beginning of a round, with one write, at
//     most once in pointsEvery. So each written sync point is true, and the journal needs no sync
//     of its own.
//  2. When the disk has been idle for closingIdle, the remaining sync points are written, and the
//     journal is synced: one sync for all logs. A watermark that moves later repeats this.
//  3. Two files are used in turn. When one is full, the other one begins with the sync points of
//     all active segments. So the journal is bounded.
//  4. A sync point stays true as long as its segment file exists: a file that is cut gets another
//     number. So the two journal files can be read in any order, and the furthest sync point of a
//     segment file counts.
//  5. A journal that is missing, damaged or not writable costs time only: bytes behind the last
//     marker are written again when a log is opened.
//  6. A sync point includes the log's watermark, which costs no additional write. The manifest
//     keeps it when the file is cut: see Manifest.Committed.
//
// A file is a sequence of groups with the same turn. A group of another turn is from an earlier use
// of the file, and ends the sequence. In an entry, behind is the offset minus the watermark, plus
// 1; 0: unknown.
//
//	0 u32 length       8 u64 turn
//	4 u32 CRC-32C     16 entries: u64 log, u64 base offset, u32 file, u32 behind, i64 position,
//	                              u64 offset
type pointJournal struct {
	fs  env.FS
	dir string

	mu    sync.Mutex
	dirty []*Log // their sync point or watermark has moved since the last write

	// closed is set once the journal is closed for an idle disk. Then an addition to dirty wakes the
	// committer.
	closed atomic.Bool

	// Owned by the committer.
	files    [2]env.File
	current  int
	turn     uint64
	at, size int64 // of the current file
	logs     []*Log
	group    []byte
	written  time.Time
	unsynced bool
	off      bool // the journal can't be written
}

const (
	pointsName  = "sync-points." // and 0 or 1
	pointsGroup = 16
	pointsEntry = 40

	// smallestPoints is the smallest length of a journal file: sync points of 1,600 rounds of one
	// log.
	smallestPoints = 64 << 10
	// largestPoints bounds what is read at opening: sync points of 200,000 logs.
	largestPoints = 64 << 20
	// pointsTimes is the length of a file in multiples of its first group, which has the sync
	// points of all active segments. So that group costs little beside the later ones.
	pointsTimes = 8

	// pointsEvery is the least time between two writes of the journal. After a kill, records of the
	// last pointsEvery may be unproven, in logs that were written then.
	pointsEvery = 10 * time.Millisecond

	// closingIdle is how long the disk is idle before the journal is synced. That is one sync each
	// time that the disk becomes idle, and none on a busy disk.
	closingIdle = 250 * time.Millisecond
)

// openPoints reads the journal, and creates its files if there are none.
func openPoints(fsys env.FS, dir string) (*pointJournal, syncPoints) {
	j := &pointJournal{fs: fsys, dir: dir}
	points := syncPoints{}
	for n := range j.files {
		f, size, err := j.open(n)
		if err != nil {
			j.off = true
			continue
		}
		j.files[n] = f
		if turn, at := readPoints(f, size, points); n == 0 || turn > j.turn {
			j.current, j.turn, j.at, j.size = n, turn, at, size
		}
	}
	j.turn = max(j.turn, 1)
	j.closed.Store(true)
	return j, points
}

func (j *pointJournal) open(n int) (env.File, int64, error) {
	path := filepath.Join(j.dir, pointsName+string('0'+rune(n)))
	f, err := j.fs.Open(path)
	if err != nil {
		if f, err = j.fs.Create(path); err != nil {
			return nil, 0, err
		}
	}
	size, err := f.Size()
	if err == nil && size < smallestPoints {
		size = smallestPoints
		err = lengthen(f, 0, size)
	}
	if err != nil {
		_ = f.Close() // nothing was written to it
		return nil, 0, err
	}
	return f, size, nil
}

// lengthen writes zeros, so that a later write there doesn't wait for the file system's journal.
func lengthen(f env.File, from, to int64) error {
	if err := f.Preallocate(to); err != nil {
		return err
	}
	for ; from < to; from += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(to-from, int64(len(zeros)))], from); err != nil {
			return err
		}
	}
	return nil
}

// readPoints adds the sync points of a journal file to points, and returns its turn and the end of
// its last group.
func readPoints(f env.File, size int64, points syncPoints) (turn uint64, at int64) {
	if size > largestPoints {
		return 0, 0
	}
	data := make([]byte, size)
	if readFull(f, data, 0) != nil {
		return 0, 0
	}
	for ; len(data)-int(at) >= pointsGroup; at += int64(le.Uint32(data[at:])) {
		g := data[at:]
		n := int(le.Uint32(g))
		if n < pointsGroup || n > len(g) || (n-pointsGroup)%pointsEntry != 0 || crc32.Checksum(g[8:n], castagnoli) != le.Uint32(g[4:]) {
			break
		}
		if of := le.Uint64(g[8:]); at == 0 {
			turn = of
		} else if of != turn {
			break
		}
		for e := g[pointsGroup:n]; len(e) > 0; e = e[pointsEntry:] {
			key := pointKey{le.Uint64(e), le.Uint64(e[8:]), le.Uint32(e[16:])}
			known, p := points[key], syncPoint{pos: int64(le.Uint64(e[24:])), end: le.Uint64(e[32:])}
			if behind := uint64(le.Uint32(e[20:])); behind > 0 && behind <= p.end {
				p.committed = p.end - behind + 1
			}
			p.committed = max(p.committed, known.committed)
			if p.pos < known.pos {
				p.pos, p.end = known.pos, known.end
			}
			points[key] = p
		}
	}
	return turn, at
}

// renumber gives a plain file that is about to be cut another number, which voids its sync points.
// The caller syncs the file.
func renumber(f env.File) error {
	head := make([]byte, headerSize)
	if err := readFull(f, head, 0); err != nil {
		return err
	}
	h, err := parseFrame(head)
	if err != nil || h.kind() != kindHeader || h.file() == 0 {
		return nil // such a file has no sync points
	}
	_, err = f.WriteAt(appendHeader(nil, h.log(), h.base(), rand.Uint32()|1), 0)
	return err
}

// note adds a log to dirty, after its sync point or watermark has moved.
func (j *pointJournal) note(l *Log) {
	if l.pointed.Swap(true) {
		return
	}
	j.mu.Lock()
	j.dirty = append(j.dirty, l)
	j.mu.Unlock()
}

// appendPoint adds the sync point of the active segment, if there is one, to a group.
func (l *Log) appendPoint(group []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pointed.Store(false)
	s := l.active
	if s == nil || s.file == 0 || s.synced == 0 {
		return group
	}
	group = le.AppendUint64(group, l.secret)
	group = le.AppendUint64(group, s.base)
	behind := uint64(0)
	if watermark := min(l.watermark.Load(), l.durable); watermark > 0 && l.durable-watermark < math.MaxUint32 {
		behind = l.durable - watermark + 1
	}
	group = le.AppendUint64(group, uint64(s.file)|behind<<32)
	group = le.AppendUint64(group, uint64(s.synced))
	return le.AppendUint64(group, l.durable)
}

// write writes the sync points of the logs in dirty. If the file is full, it writes those of all
// open logs to the other file.
func (j *pointJournal) write(now time.Time, open func() []*Log) {
	j.written = now
	j.mu.Lock()
	j.logs, j.dirty = j.dirty, j.logs[:0]
	j.mu.Unlock()
	group := append(j.group[:0], zeros[:pointsGroup]...)
	for _, l := range j.logs {
		group = l.appendPoint(group)
	}
	clear(j.logs)
	if len(group) == pointsGroup || j.off {
		return
	}
	if j.at+int64(len(group)) > j.size {
		group = group[:pointsGroup]
		for _, l := range open() {
			group = l.appendPoint(group)
		}
		j.off = j.take(int64(len(group))) != nil
	}
	j.group = group
	if j.off {
		return
	}
	le.PutUint32(group, uint32(len(group)))
	le.PutUint64(group[8:], j.turn)
	le.PutUint32(group[4:], crc32.Checksum(group[8:], castagnoli))
	if _, err := j.files[j.current].WriteAt(group, j.at); err != nil {
		j.off = true
		return
	}
	j.at += int64(len(group))
	j.unsynced = true
}

// take switches to the other file, and makes it at least pointsTimes as long as its first group.
func (j *pointJournal) take(first int64) error {
	j.current, j.at = 1-j.current, 0
	j.turn++
	f := j.files[j.current]
	size, err := f.Size()
	if want := pointsTimes * first; err == nil && size < want {
		if err = lengthen(f, size, want); err == nil {
			size = want
		}
	}
	j.size = size
	return err
}

// waits reports whether there are sync points that aren't written and synced yet.
func (j *pointJournal) waits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.off && (j.unsynced || len(j.dirty) > 0)
}

// close writes and syncs all sync points.
func (j *pointJournal) close(now time.Time, open func() []*Log) {
	j.write(now, open)
	if j.unsynced && !j.off {
		// If the sync fails, later sync points may be lost in a power cut. Those that are read are
		// true.
		j.off = j.files[j.current].Sync() != nil
	}
	j.unsynced = false
}

// end closes the files.
func (j *pointJournal) end() {
	for _, f := range j.files {
		if f != nil {
			_ = f.Close() // an unsynced journal costs time only, see rule 5
		}
	}
}
