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

// beingCompressed and beingExpanded end the names of unfinished files. If a crash leaves one, the
// next opening removes it.
const (
	beingCompressed = segmentEnd + ".zst"
	beingExpanded   = segmentEnd + ".plain"
)

const (
	// smallestCompressed is a block of the file system: a smaller file takes as much space.
	smallestCompressed = 4 << 10
	// worthSaving is the least saving, as a divisor of the size: reads of a compressed segment cost
	// more.
	worthSaving = 10
	// sampledBlocks is how many blocks are compressed before the saving is judged.
	sampledBlocks = 8
)

// Compress compresses the sealed segments at a level of zstd (1 to 22; 0 is 3), and returns the
// number of bytes saved. It skips segments that would shrink by less than a tenth. Readers see the
// same bytes as before. One call runs at a time, beside everything else. It needs room on the disk
// for one segment. It stops with ctx, and when the log is closed.
//
// The new file is complete, durable and verified before it replaces the old one. So a crash leaves
// one of them.
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

// compressible returns the segments that may be worth compressing.
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

// holdsSegment reports whether s is still a segment of the log.
func (l *Log) holdsSegment(s *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.segments, s)
}

// compress replaces the file of one segment by a compressed one, if that is worth it.
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

// errNotWorthIt means that a segment stays uncompressed: it would hardly shrink, or it is damaged,
// which scrubbing reports.
var errNotWorthIt = errors.New("not worth it")

// createAnew creates a file, and first removes one that a failed call has left.
func (d *Disk) createAnew(path string) (env.File, error) {
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return d.fs.Create(path)
}

// writeCompressed compresses in to out, and returns the length of out.
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

// saves returns errNotWorthIt if a file of length bytes, instead of plain bytes, saves too little.
func saves(plain, length int64) error {
	if length > plain-plain/worthSaving {
		return errNotWorthIt
	}
	return nil
}

// appendBlock appends block n to dst, compressed if that makes it shorter.
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

// verify reads all of a compressed file as readers do.
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

// replace replaces the file of s by the one at path, which is durable and has the same content. If
// s is gone the error is fs.ErrNotExist.
func (l *Log) replace(s *segment, path string, stored int64) error {
	l.admin.Lock()
	defer l.admin.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if !l.holdsSegment(s) {
		return fs.ErrNotExist
	}
	// A sealed segment is durable. If the file loses its header and index, Durable shows that
	// records are missing.
	return l.swap([]*segment{s}, s.again(stored), path, func(m *Manifest) { m.Durable = max(m.Durable, s.end) })
}

// usable returns the reason that the log can't be changed, or nil.
func (l *Log) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writable()
}

// again returns a segment with the content of s in another file, compressed if stored isn't 0.
func (s *segment) again(stored int64) *segment {
	return &segment{base: s.base, gen: s.gen, path: s.path, end: s.end, pos: s.pos, size: s.size, first: s.first, last: s.last,
		epochs: s.epochs, holes: s.holes, before: s.before, left: s.left, judged: s.judged, closed: true, bad: s.bad, written: s.written, synced: s.synced, stored: stored}
}

// expand decompresses the segment that contains an offset behind its first one, so that it can be
// cut there. admin is held.
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

// expanded writes the content of s to a plain file beside its own.
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
