package statistics

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
)

// A file has the statistics of one version of a segment, of its newest paths. All numbers are
// little endian:
//
//	header, 64 bytes
//	  0 u32 magic "CSTA"  4 u8 version  5 zeros
//	  8 u64 secret of the log  16 u64 base  24 u64 generation  32 u64 end  40 u64 epoch
//	  48 u64 bytes of the segment's file  56 u32 paths  60 u32 zero
//	of each path, the newest last
//	  0 u16 bytes of its name  2 u16 hashes  4 u32 zero  8 i64 latest  16 the name
//	  the hashes, ascending
//	u32 CRC-32C of all before
//
// The version is also that of the hashes and of the names (package filter).
const (
	fileMagic   = 0x41545343
	fileVersion = 1
	headerBytes = 64
	pathBytes   = 16
	sumBytes    = 4
)

// Reasons why a file says nothing of a segment.
var (
	ErrDamaged = errors.New("the statistics are damaged")
	ErrVersion = errors.New("the statistics are of another version")
	ErrFormer  = errors.New("the statistics are of other content of the segment")
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// knownPath is what a file says of a path.
type knownPath struct {
	path   string
	latest int64
	values []uint64 // ascending
}

// appendHeader appends the header of a segment's file.
func appendHeader(dst []byte, s *Segment, paths int) []byte {
	dst = le.AppendUint32(dst, fileMagic)
	dst = append(dst, fileVersion, 0, 0, 0)
	for _, n := range []uint64{s.Secret, s.Base, s.Generation, s.End, s.Epoch, s.Bytes} {
		dst = le.AppendUint64(dst, n)
	}
	dst = le.AppendUint32(dst, uint32(paths))
	return le.AppendUint32(dst, 0)
}

// encode returns the file of a segment.
func encode(s *Segment, paths []knownPath) []byte {
	data := appendHeader(nil, s, len(paths))
	for _, p := range paths {
		data = le.AppendUint16(data, uint16(len(p.path)))
		data = le.AppendUint16(data, uint16(len(p.values)))
		data = le.AppendUint32(data, 0)
		data = le.AppendUint64(data, uint64(p.latest))
		data = append(data, p.path...)
		for _, v := range p.values {
			data = le.AppendUint64(data, v)
		}
	}
	return le.AppendUint32(data, checksum(data))
}

// decode returns what a file says of a segment. It accepts only what encode returns.
func decode(s *Segment, data []byte) ([]knownPath, error) {
	if len(data) < headerBytes+sumBytes || len(data) > MaxFileBytes || le.Uint32(data) != fileMagic {
		return nil, ErrDamaged
	}
	if data[4] != fileVersion {
		return nil, ErrVersion
	}
	data, sum := data[:len(data)-sumBytes], le.Uint32(data[len(data)-sumBytes:])
	if checksum(data) != sum {
		return nil, ErrDamaged
	}
	count := int(le.Uint32(data[56:]))
	if count > mostPaths {
		return nil, ErrDamaged
	}
	if !bytes.Equal(data[:headerBytes], appendHeader(nil, s, count)) {
		return nil, ErrFormer
	}
	data = data[headerBytes:]
	paths := make([]knownPath, count)
	for i := range paths {
		if len(data) < pathBytes || le.Uint32(data[4:]) != 0 {
			return nil, ErrDamaged
		}
		p, name, values := &paths[i], int(le.Uint16(data)), int(le.Uint16(data[2:]))
		p.latest = int64(le.Uint64(data[8:]))
		data = data[pathBytes:]
		if name > maxPathBytes || values > maxValues || values == 0 || len(data) < name+8*values {
			return nil, ErrDamaged
		}
		p.path, data = string(data[:name]), data[name:]
		p.values = make([]uint64, values)
		for n := range p.values {
			p.values[n] = le.Uint64(data[8*n:])
			if n > 0 && p.values[n] <= p.values[n-1] {
				return nil, ErrDamaged
			}
		}
		data = data[8*values:]
		if slices.ContainsFunc(paths[:i], func(o knownPath) bool { return o.path == p.path }) {
			return nil, ErrDamaged
		}
	}
	if len(data) > 0 {
		return nil, ErrDamaged
	}
	return paths, nil
}

// Load takes what a file says of a path of a segment, unless something is known of that. Without
// a use of the file, the path is as one by which no scan came, but Has reports true.
func (t *Table) Load(s Segment, path string, file []byte) error {
	paths, err := decode(&s, file)
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{s, path}
	if t.of[k] == nil {
		t.add(k)
	}
	if t.of[k].state != unseen {
		return nil
	}
	for _, p := range paths {
		if p.path == path {
			t.change(k, func(e *entry) { e.state, e.latest, e.values = known, p.latest, p.values })
			t.loaded++
		}
	}
	if err != nil {
		t.unusable++
	}
	return err
}

// File returns a file with what is known of a path of a segment, and with what the present one says
// of others. It returns nil if nothing is known, or if that is too large.
func (t *Table) File(s Segment, path string, present []byte) []byte {
	p := knownPath{path: path}
	t.mu.Lock()
	if e := t.of[key{s, path}]; e != nil && e.state == known {
		p.latest, p.values = e.latest, e.values
	}
	t.mu.Unlock()
	if len(p.values) == 0 || len(path) > maxPathBytes {
		return nil
	}
	paths, _ := decode(&s, present) // what is damaged or of former content is replaced
	paths = slices.DeleteFunc(paths, func(o knownPath) bool { return o.path == path })
	paths = append(paths, p)
	return encode(&s, paths[max(0, len(paths)-mostPaths):])
}

// Stats are counters of files since the start of the broker.
type Stats struct {
	Stored   uint64 // files written
	Dropped  uint64 // files that could not be written
	Loaded   uint64 // paths of segments that files said something of
	Unusable uint64 // files that were damaged, of another version, or of former content
}

// Stats returns the counters.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Stored: t.stored, Dropped: t.dropped, Loaded: t.loaded, Unusable: t.unusable}
}

// Stored counts a file that was written, or that could not be written.
func (t *Table) Stored(ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok {
		t.stored++
	} else {
		t.dropped++
	}
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }
