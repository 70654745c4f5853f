package log

import (
	"bytes"
	"errors"
	"hash/crc32"

	"github.com/carillon-mq/carillon/broker/env"
)

// damage is a range of a segment that differs from what was written. from and next are equal if it
// costs no record: a damaged marker, for example.
type damage struct {
	pos, until int64
	from, next uint64
	epoch      uint64 // of the records; 0: it is not known (claim.go)
	reason     string
}

// remainder describes the file behind a position where reading can't continue.
type remainder struct {
	nonzero int64 // position after the last byte that isn't zero
	proven  bool  // a marker proves that the position was synced
	resume  frame // the first marker, or nil
	at      int64 // its position
}

// judge classifies the bytes at s.pos, where reading failed with err: the end of the segment, a
// torn tail, or damage. After damage it moves s.pos to where reading resumes, if there is such a
// position. It reports whether reading is over.
//
//  1. Below a sync point nothing is torn. A later marker, the journal or the manifest proves a sync
//     point.
//  2. Above it, in a file that was written run by run, bytes are torn only if a sector of their run
//     or footer is all zeros and was written with other bytes (see runmarker.go and tornFooter).
//  3. Above it, in a file of an earlier version, everything is torn.
//  4. Everything else is damage.
func (c *scanner) judge(err error) (over bool, _ error) {
	s, out := c.s, c.out
	behind, lookErr := c.r.lookBehind(s.pos, c.log)
	if lookErr != nil {
		return true, lookErr
	}
	proven := !c.last || behind.proven || s.end < c.floor || s.pos < c.point.pos
	if !proven && err == errNothing && behind.nonzero == s.pos {
		out.open = true
		return true, nil
	}
	if !proven {
		torn, tornErr := c.torn(behind)
		if tornErr != nil {
			return true, tornErr
		}
		if torn {
			c.leaveEmptyRun()
			out.cut, out.cutAt, out.cutBytes, out.reason = true, s.pos, behind.nonzero-s.pos, err.Error()
			return true, nil
		}
	}
	d := damage{pos: s.pos, from: s.end, reason: err.Error()}
	pos, next, found, resumeErr := c.resume(behind)
	if resumeErr != nil {
		return true, resumeErr
	}
	if found {
		if !c.last {
			next = min(next, c.until)
		}
		d.until, d.next = pos, next
		if d.epoch, resumeErr = c.claim(pos, next); resumeErr != nil {
			return true, resumeErr
		}
		s.pos, s.end, s.gap = pos, next, true
		out.damages = append(out.damages, d)
		return false, nil
	}
	d.until, d.next = c.r.size, max(s.end, c.floor)
	if s.pos < c.point.pos {
		d.next = max(d.next, c.point.end)
	}
	if !c.last {
		d.next = c.until
	}
	s.end = d.next
	out.damages = append(out.damages, d)
	return true, nil
}

// torn reports whether the bytes at s.pos, above every sync point, belong to a write that a crash
// interrupted.
func (c *scanner) torn(behind remainder) (bool, error) {
	pos, r := c.s.pos, c.r
	if pos == 0 {
		return c.tornHeader()
	}
	if !c.runs {
		return true, nil
	}
	if torn, err := c.tornFooter(behind); torn || err != nil {
		return torn, err
	}
	if pos < c.run.until && c.run.bitmap != nil {
		return c.missing()
	}
	// The next frame is a marker: that of a new run, or of this run if it could not be read.
	head, err := r.window(pos, runHeader)
	if err != nil {
		return false, err
	}
	_, size, ok := readRunMarker(head, c.log, pos)
	if !ok {
		size = runHeader
	}
	if behind.nonzero <= pos+int64(size) {
		return true, nil // a run has a batch behind its marker
	}
	return r.hole(pos, pos+int64(size))
}

// tornFooter reports whether s.pos has a torn footer of the batches read so far: some of its
// sectors are all zeros, the others are as they were written, and everything behind it is zeros.
//
// Each sector that a footer and its trailer touch holds a nonzero byte of them: in the first one
// the length, which is no multiple of 256, in the last one the trailer's magic, and between them
// offsets of index entries or epochs.
//
// The bitmap of the run before is not used: if recovery has cut a torn run in its middle, the
// footer is on bytes that this run covers.
func (c *scanner) tornFooter(behind remainder) (bool, error) {
	s, torn := c.s, false
	for foot, at := s.appendFooter(nil, c.log), s.pos; len(foot) > 0; {
		part := foot[:min(sectorSize-at%sectorSize, int64(len(foot)))]
		data, err := c.r.window(at, len(part))
		if err != nil {
			return false, err
		}
		if allZero(data) {
			torn = true
		} else if !bytes.Equal(data, part) {
			return false, nil
		}
		foot, at = foot[len(part):], at+int64(len(part))
		if len(foot) == 0 && behind.nonzero > at {
			return false, nil
		}
	}
	return torn, nil
}

// tornHeader reports whether the beginning of a file is torn: the segment's header, and the marker
// of the first run.
func (c *scanner) tornHeader() (bool, error) {
	data, err := c.r.window(0, headerSize+frameMin)
	if err != nil || len(data) < headerSize+frameMin || allZero(data[:headerSize]) {
		return true, err
	}
	// By rule 3 of judge, a file of an earlier version is torn. Neither of the two fields has a
	// valid checksum here, so both must say that it is one.
	return le.Uint32(data[12:]) == 0 && data[headerSize+9] != runVersion, nil
}

// missing reports whether a sector of the run is all zeros and was written with other bytes.
func (c *scanner) missing() (bool, error) {
	n := 0
	for at := c.run.at; at < c.run.until; n++ {
		until := min(at-at%sectorSize+sectorSize, c.run.until)
		if c.run.bitmap.written(n) {
			data, err := c.r.window(at, int(until-at))
			if err != nil || allZero(data) {
				return err == nil, err
			}
		}
		at = until
	}
	return false, nil
}

// hole reports whether the range's part of any sector is all zeros.
func (r *frames) hole(from, to int64) (bool, error) {
	for from < to {
		until := min(from-from%sectorSize+sectorSize, to)
		data, err := r.window(from, int(until-from))
		if err != nil || allZero(data) {
			return err == nil, err
		}
		from = until
	}
	return false, nil
}

// resume returns the position behind the damage at s.pos where reading can resume, and the offset
// that the next batch has there. It tries, in this order:
//
//  1. behind the frame, if its checksum is right for a length that differs in one bit;
//  2. behind the frame, by the length that it announces;
//  3. behind the run that it belongs to;
//  4. the next marker of this log.
//
// At that position there must be a frame of this log that continues its offsets and epochs. Frames
// are not searched for byte by byte: a publisher could hide a forged batch in a payload. Markers
// carry the log's secret. Each write begins with one, and segments that were compacted or repaired
// have one each 64 KiB.
func (c *scanner) resume(behind remainder) (pos int64, next uint64, ok bool, err error) {
	s, r := c.s, c.r
	lengths, err := r.lengths(s.pos)
	if err != nil {
		return 0, 0, false, err
	}
	for _, n := range lengths {
		if next, ok, err := c.continues(s.pos + int64(n)); ok || err != nil {
			return s.pos + int64(n), next, ok, err
		}
	}
	run := c.run
	if head, err := r.window(s.pos, runHeader); err != nil {
		return 0, 0, false, err
	} else if m, size, ok := readRunMarker(head, c.log, s.pos); ok && m.first == s.end {
		// Its bitmap is damaged, and its batches may be whole.
		c.run = coveredRun{runMarker: m, until: m.at + int64(m.length)}
		if next, ok, err := c.continues(s.pos + int64(size)); ok || err != nil {
			return s.pos + int64(size), next, ok, err
		}
		run = c.run
	}
	if s.pos < run.until && run.end >= s.end {
		if next, ok, err := c.continues(run.until); ok || err != nil {
			return run.until, next, ok, err
		}
	}
	if behind.resume != nil && behind.resume.following() >= s.end {
		return behind.at, behind.resume.following(), true, nil
	}
	return 0, 0, false, nil
}

// continues reports whether reading can resume at pos, and the offset that the next batch has
// there.
func (c *scanner) continues(pos int64) (next uint64, ok bool, err error) {
	s := c.s
	if pos <= s.pos || pos > c.r.size {
		return 0, false, nil
	}
	f, err := c.r.next(pos)
	if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
		return 0, false, err
	}
	inRun := s.pos < c.run.until && pos <= c.run.until
	switch {
	case err != nil:
		// Behind the last run the file is empty or torn.
		return c.run.end, inRun && pos == c.run.until && c.run.end >= s.end, nil
	case f.kind() == kindMarker:
		next, ok = f.following(), f.log() == c.log && f.position() == pos
	case f.kind() == kindFooter:
		next, ok = le.Uint64(f[24:]), f.log() == c.log
	case f.kind() == kindBatch:
		b := Batch(f)
		n := len(s.epochs)
		next, ok = b.Base(), n == 0 || b.Epoch() >= s.epochs[n-1].Epoch
		ok = ok && (!inRun || b.End() <= c.run.end)
	}
	return next, ok && next >= s.end && (c.last || next <= c.until), nil
}

// lengths returns candidates for the length of the damaged frame at pos, most likely first: a
// length that differs in one bit from the stored one and has the right checksum, then the stored
// one.
func (r *frames) lengths(pos int64) (out []int, err error) {
	head, err := r.window(pos, frameMin)
	if err != nil || len(head) < frameMin {
		return nil, err
	}
	said, sum := le.Uint32(head), le.Uint32(head[4:])
	for bit := range 32 {
		n, err := frameLength(le.AppendUint32(nil, said^1<<bit))
		if err != nil || pos+int64(n) > r.size {
			continue
		}
		data, err := r.window(pos, n)
		if err != nil {
			return nil, err
		}
		if crc32.Checksum(data[8:], castagnoli) == sum {
			out = append(out, n)
		}
	}
	if n, err := frameLength(le.AppendUint32(nil, said)); err == nil && pos+int64(n) <= r.size {
		out = append(out, n)
	}
	return out, nil
}

// lookBehind reads the file from pos to its end and describes it.
func (r *frames) lookBehind(pos int64, log uint64) (remainder, error) {
	out := remainder{nonzero: pos}
	id := le.AppendUint64(nil, log)
	for at := pos; at < r.size; {
		data, err := r.window(at, scanWindow)
		if err != nil {
			return out, err
		}
		if !bytes.Equal(data, zeros[:len(data)]) { // a long comparison is ten times as fast as a search
			kept := bytes.TrimRight(data, "\x00")
			out.nonzero = at + int64(len(kept))
			for i := 16; ; {
				found := -1
				if i <= len(data) {
					found = bytes.Index(data[i:], id)
				}
				if found < 0 {
					break
				}
				start := i + found - 16
				i += found + 1
				f, err := parseFrame(data[start:])
				if err != nil || f.kind() != kindMarker || f.log() != log || f.position() != at+int64(start) {
					continue
				}
				out.proven = out.proven || f.synced() > pos
				if out.resume == nil {
					out.resume, out.at = bytes.Clone(f), at+int64(start)
				}
			}
		}
		step := int64(len(data))
		if at+step < r.size {
			step -= runHeader + 8*largestWords // a marker may lie across the border
		}
		at += step
	}
	return out, nil
}
