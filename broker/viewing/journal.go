package viewing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/log"
)

// Subject is the subject of the records of views in state logs.
const Subject = "view"

// Kinds of records of a state log, the first byte of their data.
const (
	chunkKind   = 1
	advanceKind = 2
)

var errMalformed = errors.New("a record of a view in the state log is malformed")

// chunk is a piece of a checkpoint. Pieces of one have its serial number, and follow each other.
type chunk struct {
	serial, index uint64
	last          bool
	removed, lost uint64 // of the part
	data          []byte
}

// advance is a watermark that the leader of a shard without records has raised.
type advance struct {
	next uint64
	to   int64
}

func appendKey(b []byte, kind byte, k key) []byte {
	b = append(b, kind)
	b = append(binary.AppendUvarint(b, uint64(len(k.name))), k.name...)
	return binary.BigEndian.AppendUint64(binary.AppendVarint(b, k.made), k.fingerprint)
}

func appendChunk(b []byte, k key, c *chunk) []byte {
	b = appendKey(b, chunkKind, k)
	last := uint64(0)
	if c.last {
		last = 1
	}
	for _, n := range []uint64{c.serial, c.index, last, c.removed, c.lost} {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, c.data...)
}

func appendAdvance(b []byte, k key, a advance) []byte {
	return binary.AppendVarint(binary.AppendUvarint(appendKey(b, advanceKind, k), a.next), a.to)
}

// entry is a record of a state log, parsed. One of chunk and advance is set.
type entry struct {
	key     key
	chunk   *chunk
	advance *advance
}

// parseEntry is the reverse of appendChunk and appendAdvance. The data stay in b.
func parseEntry(b []byte) (e entry, err error) {
	ok := len(b) > 0
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if ok = ok && size > 0; ok {
			b = b[size:]
		}
		return n
	}
	signed := func() int64 {
		n, size := binary.Varint(b)
		if ok = ok && size > 0; ok {
			b = b[size:]
		}
		return n
	}
	if !ok {
		return e, errMalformed
	}
	kind := b[0]
	b = b[1:]
	if size := number(); ok && size <= uint64(len(b)) {
		e.key.name, b = string(b[:size]), b[size:]
	} else {
		ok = false
	}
	if e.key.made = signed(); ok && len(b) >= 8 {
		e.key.fingerprint, b = binary.BigEndian.Uint64(b), b[8:]
	} else {
		ok = false
	}
	switch kind {
	case chunkKind:
		c := &chunk{serial: number(), index: number()}
		c.last = number() == 1
		c.removed, c.lost, c.data = number(), number(), b
		e.chunk = c
	case advanceKind:
		e.advance = &advance{next: number(), to: signed()}
	default:
		return e, errMalformed
	}
	if !ok {
		return e, errMalformed
	}
	return e, nil
}

// saved is what a state log has of a view: its last whole checkpoint, and the advances since.
type saved struct {
	first, end    uint64 // offsets of the checkpoint: from its first piece to behind its last one; 0: none
	bytes         int    // of the checkpoint
	removed, lost uint64
	advances      []advance // behind the checkpoint, or between its pieces

	serial, index, begun uint64 // of the checkpoint whose pieces are being read; begun 0: none
	before               int    // advances before its pieces
	size                 int    // bytes of its pieces
}

// take takes the entry at an offset. Entries come in the order of the log.
func (s *saved) take(offset uint64, e *entry) {
	if e.advance != nil {
		s.advances = append(s.advances, *e.advance)
		return
	}
	c := e.chunk
	switch {
	case c.index == 0:
		s.serial, s.index, s.begun, s.before, s.size = c.serial, 0, offset, len(s.advances), 0
	case s.begun == 0 || c.serial != s.serial || c.index != s.index+1:
		s.begun = 0 // not whole
		return
	}
	s.size += len(c.data)
	if s.index = c.index; c.last {
		s.first, s.end, s.bytes, s.removed, s.lost = s.begun, offset+1, s.size, c.removed, c.lost
		s.begun, s.advances = 0, slices.Clone(s.advances[s.before:]) // those that it does not contain are between
	}
}

// find reads a state log, and returns what it has of views.
func find[S Shard](shard S) (map[key]*saved, error) {
	all := map[key]*saved{}
	start, end, _ := shard.State().Offsets()
	damage, err := eachEntry(shard, start, end, func(offset uint64, e *entry) {
		s := all[e.key]
		if s == nil {
			s = &saved{}
			all[e.key] = s
		}
		s.take(offset, e)
	})
	if err != nil {
		return nil, err
	}
	if damage != nil {
		for _, s := range all {
			s.begun = 0
		}
	}
	return all, nil
}

// eachEntry calls f with the entries of views in a part of a state log. It reads past damage that
// no replica can repair, and returns it. What f gets is valid during the call.
func eachEntry[S Shard](shard S, from, end uint64, f func(offset uint64, e *entry)) (damage, err error) {
	for c := shard.State().NewCursor(from); c.Next() < end; {
		v, err := c.Read(readBytes)
		if err != nil {
			err = shard.Unreadable(err)
		}
		if corrupt, ok := errors.AsType[*log.CorruptError](err); ok && corrupt.Next > c.Next() {
			damage = err
			c.Seek(corrupt.Next)
			continue
		}
		if err != nil {
			return damage, err
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			if b.Lost() {
				damage = fmt.Errorf("offsets %d to %d of the state log were damaged, and on no replica", b.Base(), b.End()-1)
			}
			it := b.Records()
			for r := (log.Record{}); it.Next(&r) && r.Offset < end; {
				if string(r.Subject) != Subject {
					continue
				}
				e, err := parseEntry(r.Data)
				if err != nil {
					damage = fmt.Errorf("offset %d: %w", r.Offset, err)
					continue
				}
				f(r.Offset, &e)
			}
			if it.Err() != nil {
				damage = it.Err()
			}
		}
		v.Release()
	}
	return damage, nil
}

// read returns the bytes of a checkpoint.
func read[S Shard](shard S, k key, of *saved) (b []byte, err error) {
	index := uint64(0)
	_, err = eachEntry(shard, of.first, of.end, func(_ uint64, e *entry) {
		if e.key == k && e.chunk != nil && e.chunk.index == index && len(b)+len(e.chunk.data) <= maxCheckpoint {
			b = append(b, e.chunk.data...)
			index++
		}
	})
	return b, err // its checksum says whether it is whole
}
