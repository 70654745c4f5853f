package log

import (
	"errors"
	"fmt"
	"io"

	"github.com/carillon-mq/carillon/broker/env"
)

// readFull reads all of p. If the file ends within p the error is io.ErrUnexpectedEOF.
func readFull(f env.File, p []byte, at int64) error {
	n, err := f.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frames reads a file frame by frame through a window.
type frames struct {
	f    env.File
	size int64
	at   int64 // position of the window
	buf  []byte
	n    int
}

const scanWindow = 256 << 10

var zeros [scanWindow]byte

func newFrames(f env.File) (*frames, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return &frames{f: f, size: size}, nil
}

// window returns n bytes at pos, or fewer at the end of the file.
func (r *frames) window(pos int64, n int) ([]byte, error) {
	if n = int(min(int64(n), r.size-pos)); n <= 0 {
		return nil, nil
	}
	if pos < r.at || pos+int64(n) > r.at+int64(r.n) {
		want := int(min(int64(max(n, scanWindow)), r.size-pos))
		if cap(r.buf) < want {
			r.buf = make([]byte, want)
		}
		r.at, r.n = pos, 0
		if err := readFull(r.f, r.buf[:want], pos); err != nil {
			return nil, err
		}
		r.n = want
	}
	return r.buf[pos-r.at : pos-r.at+int64(n)], nil
}

// next returns the frame at pos, valid until the next call.
func (r *frames) next(pos int64) (frame, error) {
	if pos >= r.size {
		return nil, errNothing
	}
	data, err := r.window(pos, frameMin)
	if err != nil {
		return nil, err
	}
	n, err := frameLength(data)
	if err != nil {
		return nil, err
	}
	if data, err = r.window(pos, n); err != nil {
		return nil, err
	}
	return parseFrame(data)
}

// scanned is the result of scanning a segment.
type scanned struct {
	damages []damage
	// cut reports a torn tail, which begins at cutAt and has cutBytes up to its last non-zero byte.
	cut      bool
	cutAt    int64
	cutBytes int64
	reason   string
	batches  int
	header   bool  // the segment's header is valid
	open     bool  // there is no footer
	proven   int64 // everything before this position was synced
}

// scan reads the segment from front to end and sets its fields.
//
//  1. With last, the segment may be the log's last one, and unreadable bytes may be a torn tail:
//     see scanner.judge.
//  2. Without last, s.end is known, and missing records are damage.
//  3. floor is an offset up to which the log was durable.
//  4. The scan ends at the offset ceiling, unless that is 0, and at s.end if that is known. Later
//     bytes don't belong to the log.
func (s *segment) scan(f env.File, log uint64, last bool, floor, ceiling uint64) (*scanned, error) {
	c := scanner{s: s, log: log, last: last, floor: floor, ceiling: ceiling}
	return c.scan(f)
}

// scanner reads one segment.
type scanner struct {
	s              *segment
	log            uint64
	last           bool
	floor, ceiling uint64
	points         syncPoints // may be nil

	r     *frames
	until uint64 // the segment's end, unless it is the last
	runs  bool   // the file was written run by run: each write begins with a run marker
	run   coveredRun
	point syncPoint // of the file, from the journal
	// claims are the epochs that damaged batches announce, since the last readable one.
	claims []Epoch
	out    *scanned
}

// coveredRun is the run that is read now.
type coveredRun struct {
	runMarker
	until  int64 // where it ends
	bitmap frame // the marker; nil if it is torn or of version 1
}

// scan scans the segment in f.
func (c *scanner) scan(f env.File) (*scanned, error) {
	r, err := newFrames(f)
	if err != nil {
		return nil, err
	}
	s := c.s
	c.r, c.until, c.out = r, s.end, &scanned{}
	if !c.last {
		c.ceiling = c.until
	}
	s.end, s.pos, s.size, s.index, s.epochs, s.holes, s.judged = s.base, 0, r.size, nil, nil, 0, 0
	for {
		if c.ceiling > 0 && s.end >= c.ceiling {
			c.leaveEmptyRun()
			c.out.cut, c.out.cutAt = true, s.pos
			return c.out, nil
		}
		f, err := r.next(s.pos)
		if err == nil {
			err = c.take(f)
		}
		if newer := (*newerError)(nil); errors.As(err, &newer) {
			return nil, fmt.Errorf("%s at byte %d: %w", s.path, s.pos, err)
		}
		if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
			return nil, err
		}
		switch {
		case err == nil:
			continue
		case err == errFooter:
			if c.last && s.pos >= c.point.pos || !c.last && s.end == c.until {
				return c.out, nil
			}
			err = fmt.Errorf("the segment ends at offset %d", s.end)
		case err == errNothing && !c.last && s.end == c.until:
			return c.out, nil
		}
		if over, err := c.judge(err); over || err != nil {
			return c.out, err
		}
	}
}

var errFooter = errors.New("the footer")

// take processes the next frame, or returns the reason that it is not valid there.
func (c *scanner) take(f frame) error {
	s := c.s
	if s.pos == 0 && f.kind() != kindHeader {
		return fmt.Errorf("the segment's header is not there")
	}
	switch f.kind() {
	case kindHeader:
		if s.pos != 0 || f.base() != s.base || f.log() != c.log {
			return fmt.Errorf("a header of log %016x from offset %d is out of place", f.log(), f.base())
		}
		c.out.header = true
		c.identify(f.file())
	case kindMarker:
		if f.log() != c.log || f.position() != s.pos || f.following() != s.end {
			return fmt.Errorf("a marker for byte %d, offset %d is out of place", f.position(), f.following())
		}
		c.out.proven = max(c.out.proven, f.synced())
		c.enter(f)
	case kindFooter:
		if f.log() != c.log || le.Uint64(f[24:]) != s.end {
			return fmt.Errorf("the footer is not this segment's")
		}
		return errFooter
	case kindBatch:
		b := Batch(f)
		if b.Base() != s.end {
			return fmt.Errorf("a batch from offset %d stands where %d is due", b.Base(), s.end)
		}
		if n := len(s.epochs); n > 0 && b.Epoch() < s.epochs[n-1].Epoch {
			return fmt.Errorf("a batch of epoch %d follows one of %d", b.Epoch(), s.epochs[n-1].Epoch)
		}
		c.settleClaims(b.Epoch())
		s.begins(b)
		c.out.batches++
		s.note(b, s.pos)
		if s.end <= c.floor {
			c.out.proven = max(c.out.proven, s.pos)
		}
		return nil
	}
	s.pos += int64(len(f))
	return nil
}

// leaveEmptyRun moves s.pos back before a marker without a batch: that marker must not describe the
// bytes that are written there next.
func (c *scanner) leaveEmptyRun() {
	if c.run.bitmap != nil && c.s.pos == c.run.at+int64(len(c.run.bitmap)) {
		c.s.pos = c.run.at
	}
}

// identify looks up the sync point of the file with this number.
func (c *scanner) identify(file uint32) {
	c.s.file, c.runs = file, file != 0
	if c.last && c.runs {
		c.point = c.points.of(c.log, c.s.base, file)
		c.out.proven = max(c.out.proven, min(c.point.pos, c.r.size))
	}
}

// enter begins the run of a marker.
func (c *scanner) enter(f frame) {
	m, _, ok := readRunMarker(f, c.log, c.s.pos)
	if !ok {
		c.run = coveredRun{} // of version 1
		return
	}
	c.runs = true
	c.run = coveredRun{runMarker: m, until: m.at + int64(m.length), bitmap: append(c.run.bitmap[:0], f...)}
}
