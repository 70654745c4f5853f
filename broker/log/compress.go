package log

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/carillon-mq/carillon/broker/env"
)

// Files that are to become segments. One that is left by a crash goes at the next opening.
const (
	beingCompressed = segmentEnd + ".zst"
	beingExpanded   = segmentEnd + ".plain"
)

const (
	// smallestCompressed is the block of a file system: a smaller file takes no less room.
	smallestCompressed = 4 << 10
	// worthSaving is what part of a segment compression has to save, at least, for reading it to
	// cost more from then on.
	worthSaving = 10
	// sampledBlocks are compressed before it is decided whether the rest of a segment promises
	// anything.
	sampledBlocks = 8
)

// Compress brings the sealed segments into a form that takes less room, at zstd's level (1 to 22; 0
// is 3), and returns how many bytes that saved. It passes over those that it would save less than a
// tenth of. To readers nothing changes, and batches stay what they were, byte by byte. It works
// beside everything else, one call at a time, and needs room on the disk for the segment that it is
// at; it stops with ctx, and when the log is closed.
//
// The new file is complete, safe and read once in full, with all checksums, before it takes the old
// one's place; so a crash leaves the one or the other.
func (l *Log) Compress(ctx context.Context, level int) (saved int64, err error) {
	ctx, end, err := l.beginUpkeep(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	l.upkeep.compressing.Lock()
	defer l.upkeep.compressing.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	if level == 0 {
		level = 3
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(compressedBlock), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return 0, fmt.Errorf("log %s: compress: %w", l.name, err)
	}
	for _, s := range l.compressible() {
		n, err := l.compress(ctx, s, encoder)
		saved += n
		err = l.disk.noticed(err)
		if err != nil && (l.holdsSegment(s) || l.disk.Failed() != nil) {
			return saved, fmt.Errorf("log %s: compress %s: %w", l.name, s.path, err)
		}
	}
	return saved, nil
}

// compressible are the segments that may be worth it.
func (l *Log) compressible() []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*segment
	for _, s := range l.segments {
		if s.closed && s.index == nil && s.stored == 0 && !s.stubborn && s.end > l.start && s.size >= smallestCompressed {
			out = append(out, s)
		}
	}
	return out
}

func (l *Log) holdsSegment(s *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.segments, s)
}

// compress puts a compressed file in the place of one segment's, if that is worth it.
func (l *Log) compress(ctx context.Context, s *segment, encoder *zstd.Encoder) (saved int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return 0, err
	}
	defer l.disk.handles.release(s)
	if _, already := f.(sealed); already {
		return 0, nil
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	path := s.path + beingCompressed[len(segmentEnd):]
	out, err := l.disk.createAnew(path)
	if err != nil {
		return 0, err
	}
	length, err := writeCompressed(ctx, f, out, encoder, description{log: l.secret, base: s.base, upTo: s.end, size: size, block: compressedBlock})
	if err == nil {
		if err = out.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	if err == nil {
		err = l.verify(s, out)
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		err = l.replace(s, path, length)
	}
	if err == nil {
		return size - length, nil
	}
	if removeErr := l.disk.fs.Remove(path); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) && l.disk.Failed() == nil {
		return 0, errors.Join(err, removeErr)
	}
	if errors.Is(err, errNotWorthIt) {
		l.mu.Lock()
		s.stubborn = true
		l.mu.Unlock()
		return 0, nil
	}
	return 0, err
}

// errNotWorthIt is a segment that stays as it is: it wouldn't shrink, or it is damaged, which is
// Scrub's to tell.
var errNotWorthIt = errors.New("not worth it")

// createAnew makes a file, in place of what a call that failed may have left.
func (d *Disk) createAnew(path string) (env.File, error) {
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.fs.Create(path)
}

// writeCompressed writes what in holds to out, and returns how long that got.
func writeCompressed(ctx context.Context, in, out env.File, encoder *zstd.Encoder, d description) (int64, error) {
	d.blocks = int((d.size + int64(d.block) - 1) / int64(d.block))
	buf := d.put(make([]byte, 0, 2*scanWindow+2*d.block), kindCompressed)
	seal(buf)
	index := d.put(nil, kindBlocks)
	plain := make([]byte, d.block)
	written := int64(0)
	flush := func() error {
		_, err := out.WriteAt(buf, written)
		written += int64(len(buf))
		buf = buf[:0]
		return err
	}
	for i := range d.blocks {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		from := int64(i) * int64(d.block)
		plain = plain[:min(int64(d.block), d.size-from)]
		if err := readFull(in, plain, from); err != nil {
			return 0, err
		}
		length := written + int64(len(buf))
		if i >= sampledBlocks && saves(from, length) != nil {
			return 0, errNotWorthIt
		}
		index = le.AppendUint32(index, uint32(length))
		if buf = appendBlock(buf, plain, i, encoder); len(buf) >= 2*scanWindow {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	seal(index)
	at := le.AppendUint64(nil, uint64(written)+uint64(len(buf)))
	buf = append(append(buf, index...), at...)
	buf = le.AppendUint32(buf, crc32.Checksum(at, castagnoli))
	buf = le.AppendUint32(buf, compressedMagic)
	if err := flush(); err != nil {
		return 0, err
	}
	return written, saves(d.size, written)
}

// saves says whether so many bytes instead of so many others are worth it.
func saves(plain, length int64) error {
	if length > plain-plain/worthSaving {
		return errNotWorthIt
	}
	return nil
}

// appendBlock encodes block n behind dst.
func appendBlock(dst, plain []byte, n int, encoder *zstd.Encoder) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, blockHeader)...)
	dst = encoder.EncodeAll(plain, dst)
	length := uint32(len(dst) - start - blockHeader)
	if int(length) >= len(plain) {
		dst = append(dst[:start+blockHeader], plain...)
		length = uint32(len(plain)) | blockPlain
	}
	b := dst[start:]
	le.PutUint32(b, length)
	le.PutUint32(b[8:], uint32(n))
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst
}

// verify reads a compressed file as a reader would, all of it.
func (l *Log) verify(s *segment, f env.File) error {
	c, err := openCompressed(f, &blockCache{})
	if err != nil {
		return err
	}
	if c == nil || c.bad != nil {
		return fmt.Errorf("what was written isn't what is read: %w", errNotWorthIt)
	}
	fresh := &segment{base: s.base, path: s.path, end: s.end}
	found, err := fresh.scan(c, l.secret, false, 0, 0)
	if err != nil {
		return err
	}
	if _, err := fresh.readFooter(c, l.secret); err != nil || len(found.damages) > 0 {
		if disk := (*env.DiskError)(nil); errors.As(err, &disk) {
			return err
		}
		return errNotWorthIt
	}
	return nil
}

// replace puts the file at path, which holds what s does and is safe, in the place of that of s;
// unless s is gone.
func (l *Log) replace(s *segment, path string, stored int64) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if !l.holdsSegment(s) {
		return fs.ErrNotExist
	}
	// It was sealed, so it is safe; and should the file lose both of its ends, Durable says how far
	// it went.
	return l.swap([]*segment{s}, s.again(stored), path, func(m *Manifest) { m.Durable = max(m.Durable, s.end) })
}

func (l *Log) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writable()
}

// again is a segment like s in a file of its own, compressed if stored isn't 0.
func (s *segment) again(stored int64) *segment {
	return &segment{base: s.base, gen: s.gen, path: s.path, end: s.end, pos: s.pos, size: s.size, first: s.first, last: s.last,
		epochs: s.epochs, holes: s.holes, before: s.before, judged: s.judged, closed: true, bad: s.bad, written: s.written, synced: s.synced, stored: stored}
}

// expand brings the segment that holds an offset and does not begin with it back into the plain
// form, so that it can be cut there. admin is held.
func (l *Log) expand(offset uint64) error {
	l.mu.Lock()
	var s *segment
	for _, at := range l.segments {
		if at.base < offset && offset < at.end && at.stored > 0 {
			s = at
		}
	}
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	path, err := l.expanded(s)
	if err != nil {
		return err
	}
	return l.swap([]*segment{s}, s.again(0), path, nil)
}

// expanded writes a plain file beside that of s.
func (l *Log) expanded(s *segment) (path string, err error) {
	f, err := l.disk.handles.acquire(s)
	if err != nil {
		return "", err
	}
	defer l.disk.handles.release(s)
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	path = s.path + beingExpanded[len(segmentEnd):]
	return path, l.disk.copyFile(f, size, path)
}
