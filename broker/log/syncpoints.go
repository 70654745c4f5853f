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
	end uint64 // offset of the first record behind
	// committed is the watermark as the log's owner had noted it by then, at most end; 0: unknown.
	committed uint64
}

// pointKey names a segment's file. A file that takes the place of another one has a number of its
// own, so sync points of the file before prove nothing of it.
type pointKey struct {
	log, base uint64
	file      uint32
}

// syncPoints are what the journal proved when the disk was opened. nil proves nothing.
type syncPoints map[pointKey]syncPoint

func (p syncPoints) of(log, base uint64, file uint32) syncPoint {
	return p[pointKey{log, base, file}]
}

// pointJournal is the disk's journal of sync points. It proves what was synced after the last run
// marker of a segment was written: of the round before a kill, and of idle logs.
//
// Batches are the same bytes on all replicas and can't carry sync points; a marker at the end of
// each idle segment would cost a write and a sync for each of them.
//
//  1. The sync points of the rounds before are written at the beginning of a round, with one write,
//     and no more often than each pointsEvery. So the journal never says more than is true, and
//     needs no sync of its own.
//  2. When the disk has been idle for closingIdle, what is not written yet is written, and the
//     journal is synced: this closes all logs at once. A watermark that moves later has that done
//     again.
//  3. Two files are used in turn. One that is full is left for the other, which begins with the
//     sync points of all active segments. So the journal is bounded.
//  4. A sync point stays true as long as its file: a file that is cut gets another number. So files
//     are read whatever their order, and the furthest sync point of a file counts.
//  5. A journal that is missing, damaged or can't be written proves nothing and harms nothing: what
//     follows the last marker is written again when a log is opened.
//  6. A sync point has the log's watermark, too, which costs no write more. It stays true as long
//     as the file: of a file that was cut, what is left was committed up to there.
//
// A file is a sequence of groups. The first group's turn is the file's; a group of another turn is
// of an earlier use, and ends it. In an entry, behind is by how much the watermark is behind the
// offset, plus 1; 0 means that it is unknown.
//
//	0 u32 length       8 u64 turn
//	4 u32 CRC-32C     16 entries: u64 log, u64 base offset, u32 file, u32 behind, i64 position,
//	                              u64 offset
type pointJournal struct {
	fs  env.FS
	dir string

	mu    sync.Mutex
	dirty []*Log // were synced, or committed, since the journal was written; their pointed is set

	closed atomic.Bool // nobody comes back to dirty unless the committer is woken

	// The committer's.
	files    [2]env.File
	current  int
	turn     uint64
	at, size int64 // of the current file
	logs     []*Log
	group    []byte
	written  time.Time
	unsynced bool
	off      bool // it can't be written
}

const (
	pointsName  = "sync-points." // and 0 or 1
	pointsGroup = 16
	pointsEntry = 40

	// smallestPoints is the length of a journal file: sync points of 1,600 rounds of one log.
	smallestPoints = 64 << 10
	// largestPoints bounds what is read at opening: sync points of 200,000 logs.
	largestPoints = 64 << 20
	// pointsTimes is how much longer than the sync points of all active segments a file is, so that
	// writing these costs little beside what is written between two turns.
	pointsTimes = 8

	// pointsEvery bounds how often the journal is written. What a kill leaves unproven is what a
	// log has been appended meanwhile, if its last round was then.
	pointsEvery = 10 * time.Millisecond

	// closingIdle is how long no log was written before the sync points are synced: an idle disk
	// has one more sync each time that it falls idle, and a busy one has none.
	closingIdle = 250 * time.Millisecond
)

// openPoints reads the journal, and makes the files if there are none.
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

// lengthen writes zeros, so that writing there later doesn't wait for the file system's journal.
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

// readPoints adds what a journal file proves to points, and returns its turn and where its groups
// end.
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

// renumber gives a plain file that is about to be cut another number, so that what was proven of it
// as it was is void. The caller syncs the file.
func renumber(f env.File) error {
	head := make([]byte, headerSize)
	if err := readFull(f, head, 0); err != nil {
		return err
	}
	h, err := parseFrame(head)
	if err != nil || h.kind() != kindHeader || h.file() == 0 {
		return nil // nothing was proven of it
	}
	_, err = f.WriteAt(appendHeader(nil, h.log(), h.base(), rand.Uint32()|1), 0)
	return err
}

// note remembers that a log was synced, or that its watermark moved.
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

// write writes the sync points of all logs that were synced since the last time, and of all logs
// that are open if the file is full.
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

// take switches to the other file, and makes it pointsTimes as long as its first entries, at least.
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

// waits reports whether there is something that isn't synced yet.
func (j *pointJournal) waits() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.off && (j.unsynced || len(j.dirty) > 0)
}

// close writes and syncs what there is.
func (j *pointJournal) close(now time.Time, open func() []*Log) {
	j.write(now, open)
	if j.unsynced && !j.off {
		// If it fails, what was written since proves nothing after a power cut, and is true until
		// then.
		j.off = j.files[j.current].Sync() != nil
	}
	j.unsynced = false
}

// end closes the files.
func (j *pointJournal) end() {
	for _, f := range j.files {
		if f != nil {
			_ = f.Close() // what was not synced is proven by what the logs say when they are closed
		}
	}
}
