package log

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
)

// checksName is the file that says when each sealed segment was scrubbed last. It lets scrubbing
// continue where the process before ended. If it is missing, damaged or old, segments are scrubbed
// again earlier than they are due, and nothing else happens.
//
// Each line has the name of a log, the base offset and the generation of a segment, and a Unix time
// in seconds. The last line is the CRC-32C of all before it, as in the mark.
const checksName = "scrubbed"

// largestChecks bounds what is read of it: a million segments, which are 64 TB if they are full.
const largestChecks = 64 << 20

// SegmentCheck is the time of a sealed segment's last scrub.
type SegmentCheck struct {
	Base  uint64
	Bytes int64     // as readers see them
	Last  time.Time // of its records
	// Since is the time when the segment was last read from front to end, or when it was written if
	// it never was read. It is zero if neither is known.
	Since time.Time
}

// Checks returns the sealed segments, oldest first.
func (l *Log) Checks() (out []SegmentCheck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.closed && s.index == nil && s.end > l.start {
			out = append(out, SegmentCheck{Base: s.base, Bytes: s.pos, Last: time.Unix(0, s.last), Since: s.checkedAt()})
		}
	}
	return out
}

func (s *segment) checkedAt() time.Time {
	if s.checked == 0 {
		return time.Time{}
	}
	return time.Unix(s.checked, 0)
}

// segmentChecks maps the segments of one log to the times of their last scrub, in Unix seconds.
type segmentChecks map[SegmentRef]int64

// recallChecks sets the scrub times of the segments of a log that was just opened. mu is held.
func (l *Log) recallChecks() {
	l.disk.checksMu.Lock()
	defer l.disk.checksMu.Unlock()
	known := l.disk.checks[l.name]
	for _, s := range l.segments {
		s.checked = known[s.ref()]
	}
}

// keepChecks copies the scrub times of the log's segments to the disk, which outlives the log. mu
// is held.
func (l *Log) keepChecks() {
	now := make(segmentChecks, len(l.segments))
	for _, s := range l.segments {
		if s.checked != 0 {
			now[s.ref()] = s.checked
		}
	}
	l.disk.checksMu.Lock()
	defer l.disk.checksMu.Unlock()
	l.disk.checks[l.name] = now
}

// forgetChecks drops the scrub times of a deleted log.
func (d *Disk) forgetChecks(name string) {
	d.checksMu.Lock()
	defer d.checksMu.Unlock()
	delete(d.checks, name)
}

// SaveChecks writes the scrub times of all segments to the disk, for the next process. It costs two
// syncs.
func (d *Disk) SaveChecks() error {
	if err := d.Failed(); err != nil {
		return err
	}
	for _, l := range d.openLogs() {
		l.mu.Lock()
		if !l.closed {
			l.keepChecks()
		}
		l.mu.Unlock()
	}
	d.savingChecks.Lock()
	defer d.savingChecks.Unlock()
	d.checksMu.Lock()
	none := !slices.ContainsFunc(slices.Collect(maps.Values(d.checks)), func(of segmentChecks) bool { return len(of) > 0 })
	data := encodeChecks(d.checks)
	d.checksMu.Unlock()
	if none {
		return nil
	}
	return d.noticed(replaceFile(d.fs, d.dir, checksName, data))
}

func encodeChecks(checks map[string]segmentChecks) []byte {
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		of := checks[name]
		for _, r := range slices.SortedFunc(maps.Keys(of), func(a, b SegmentRef) int {
			return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Generation, b.Generation))
		}) {
			data = fmt.Appendf(data, "%s %d %d %d\n", name, r.Base, r.Generation, of[r])
		}
	}
	return fmt.Appendf(data, "\n%08x\n", crc32.Checksum(data, castagnoli))
}

// readChecks reads the file of SaveChecks. An invalid file counts as empty.
func readChecks(fsys env.FS, dir string) (map[string]segmentChecks, error) {
	checks := map[string]segmentChecks{}
	path := filepath.Join(dir, checksName)
	info, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checks, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := readSummed(fsys, path, info.Size, largestChecks)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) != 4 {
			continue
		}
		var numbers [3]uint64
		for i := range numbers {
			numbers[i], err = strconv.ParseUint(string(fields[i+1]), 10, 63)
			if err != nil {
				break
			}
		}
		if err != nil {
			continue
		}
		name := string(fields[0])
		if checks[name] == nil {
			checks[name] = segmentChecks{}
		}
		checks[name][SegmentRef{Base: numbers[0], Generation: numbers[1]}] = int64(numbers[2])
	}
	return checks, nil
}

// checkedNow sets the scrub time of a segment that was just read or written. mu is held, or s is
// not shared yet.
func (s *segment) checkedNow() { s.checked = time.Now().Unix() }

// noteChecked sets the scrub time of a segment, if the log still has that segment.
func (l *Log) noteChecked(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.segments, s) {
		s.checkedNow()
	}
}
