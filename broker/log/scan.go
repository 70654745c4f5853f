package log

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/carillon-mq/carillon/broker/env"
)

// readFull reads all of p. A file that ends within is an error of its own kind.
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

// window returns n bytes at pos, or as many as there are up to the end of the file.
func (r *frames) window(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), r.size-pos))
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

// remainder is what stands behind a place where reading can't go on.
type remainder struct {
	nonzero int64 // position after the last byte that isn't zero
	proven  bool  // a marker says that the place was synced
	resume  frame // the first marker, or nil
	at      int64 // where it is
}

// lookBehind reads the file from pos to its end.
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
			step -= markerSize // a marker may lie across the border
		}
		at += step
	}
	return out, nil
}

// scanned is what reading a whole segment found.
type scanned struct {
	damages []damage
	// cut is where a torn tail begins and how many bytes it has, counted to the last that isn't zero.
	cut      bool
	cutAt    int64
	cutBytes int64
	reason   string
	batches  int
	header   bool // the segment's own header was there
	open     bool // it ended where nothing was written, so that more may follow
}

// scan reads the segment from front to end and fills in what it finds. With last, nothing is known
// to stand behind it: what can't be read is a torn tail, unless it is proven, by a marker or by
// floor (an offset up to which the log was durable), that it was synced. Otherwise s.end is known
// and everything missing is damage. Reading ends at the offset ceiling, if there is one: what stands
// from there on is to be cut.
func (s *segment) scan(f env.File, log uint64, last bool, floor, ceiling uint64) (*scanned, error) {
	r, err := newFrames(f)
	if err != nil {
		return nil, err
	}
	until := s.end
	out := &scanned{}
	s.end, s.pos, s.size, s.index, s.epochs, s.holes, s.judged = s.base, 0, r.size, nil, nil, 0, 0
	for {
		if ceiling > 0 && s.end >= ceiling {
			out.cut, out.cutAt = true, s.pos
			return out, nil
		}
		f, err := r.next(s.pos)
		if err == nil {
			err = s.take(f, log, out)
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
			if last || s.end == until {
				return out, nil
			}
			err = fmt.Errorf("the segment ends at offset %d", s.end)
		case err == errNothing && !last && s.end == until:
			return out, nil
		}
		behind, lookErr := r.lookBehind(s.pos, log)
		if lookErr != nil {
			return nil, lookErr
		}
		proven := !last || behind.proven || s.end < floor
		if last && err == errNothing && behind.nonzero == s.pos && s.end >= floor {
			out.open = true
			return out, nil
		}
		if !proven {
			out.cut, out.cutAt, out.cutBytes, out.reason = true, s.pos, behind.nonzero-s.pos, err.Error()
			return out, nil
		}
		d := damage{pos: s.pos, from: s.end, reason: err.Error()}
		if behind.resume != nil && behind.resume.following() >= s.end {
			d.until, d.next = behind.at, behind.resume.following()
			s.pos, s.end, s.gap = behind.at, d.next, true
			out.damages = append(out.damages, d)
			continue
		}
		d.until, d.next = r.size, max(s.end, floor)
		if !last {
			d.next = until
		}
		s.pos, s.end = r.size, d.next
		out.damages = append(out.damages, d)
		return out, nil
	}
}

var errFooter = errors.New("the footer")

// take goes over one frame, or says why it can't be the next one.
func (s *segment) take(f frame, log uint64, out *scanned) error {
	if s.pos == 0 && f.kind() != kindHeader {
		return fmt.Errorf("the segment's header is not there")
	}
	switch f.kind() {
	case kindHeader:
		if s.pos != 0 || f.base() != s.base || f.log() != log {
			return fmt.Errorf("a header of log %016x from offset %d is out of place", f.log(), f.base())
		}
		out.header = true
	case kindMarker:
		if f.log() != log || f.position() != s.pos || f.following() != s.end {
			return fmt.Errorf("a marker for byte %d, offset %d is out of place", f.position(), f.following())
		}
	case kindFooter:
		if f.log() != log || le.Uint64(f[24:]) != s.end {
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
		s.begins(b)
		out.batches++
		s.note(b, s.pos)
		return nil
	}
	s.pos += int64(len(f))
	return nil
}
