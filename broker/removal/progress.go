package removal

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Progress says how far the sources of a shard have come with the record of an Epoch at an Offset,
// and all before it. A later one replaces it. It counts for as long as the log has that record, or
// begins behind it.
type Progress struct {
	Epoch, Offset uint64
	Sources       []Source
}

// Source is how far one source has come: Sequence is the last one that was taken from the stream
// whose identity is Origin. A stream that is made anew has another one.
type Source struct {
	Key      SourceKey
	Sequence uint64
	// Epoch is that of the record at Sequence in its stream; 0: not known. Later records of a stream
	// have no earlier epoch, also if it has lost its end in between.
	Epoch  uint64
	Origin string
}

// Covers reports whether s has come to where other is, or further: by epochs, if both are known.
func (s *Source) Covers(other *Source) bool {
	switch {
	case s.Origin != other.Origin:
		return false
	case s.Epoch > 0 && other.Epoch > 0 && s.Epoch != other.Epoch:
		return s.Epoch > other.Epoch
	}
	return s.Sequence >= other.Sequence
}

// SourceKey tells the sources of a shard apart.
type SourceKey [16]byte

// KeyOf returns the key of a source that has a name.
func KeyOf(name string) (k SourceKey) {
	sum := sha256.Sum256([]byte(name))
	copy(k[:], sum[:])
	return k
}

// MaxOrigin is how long the identity of a stream is at most, in bytes.
const MaxOrigin = 64

// Of returns how far a source has come.
func (p *Progress) Of(k SourceKey) (s Source, ok bool) {
	for _, s := range p.Sources {
		if s.Key == k {
			return s, true
		}
	}
	return Source{Key: k}, false
}

// With returns the sources of p with another value of one, in memory of their own. If there are too
// many, former ones are forgotten: those that keep does not report. nil: it reports none.
func (p *Progress) With(s Source, keep func(SourceKey) bool) []Source {
	all := make([]Source, 0, len(p.Sources)+1)
	for _, other := range p.Sources {
		if other.Key != s.Key {
			all = append(all, other)
		}
	}
	all = append(all, s)
	for i := 0; len(all) > maxSources && keep != nil && i < len(all)-1; {
		if keep(all[i].Key) {
			i++
		} else {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all[max(0, len(all)-maxSources):]
}

// maxSources is how many sources a Progress has at most, also former ones: those are forgotten
// first that have not moved for longest. Four times as many as a shard may have at once.
const maxSources = 256

// progressVersion is the first byte of an encoded Progress. It is where Items are. One with
// epochsVersion has epochs of sources.
const (
	progressVersion = 3
	epochsVersion   = 4
)

// AppendProgress appends p to dst: a byte with the version, its epoch and its offset as uvarints,
// and of each source the key, the sequence as a uvarint, its epoch as a uvarint if any source has
// one, and the identity behind its length.
func AppendProgress(dst []byte, p *Progress) []byte {
	epochs := slices.ContainsFunc(p.Sources, func(s Source) bool { return s.Epoch > 0 })
	if epochs {
		dst = append(dst, epochsVersion)
	} else {
		dst = append(dst, progressVersion)
	}
	dst = binary.AppendUvarint(dst, p.Epoch)
	dst = binary.AppendUvarint(dst, p.Offset)
	for _, s := range p.Sources {
		dst = append(dst, s.Key[:]...)
		dst = binary.AppendUvarint(dst, s.Sequence)
		if epochs {
			dst = binary.AppendUvarint(dst, s.Epoch)
		}
		dst = append(dst, byte(len(s.Origin)))
		dst = append(dst, s.Origin...)
	}
	return dst
}

// IsProgress reports whether what is where an Item may be is a Progress.
func IsProgress(data []byte) bool {
	return len(data) > 0 && (data[0] == progressVersion || data[0] == epochsVersion)
}

// ParseProgress parses an encoded Progress. Its error wraps ErrMalformed.
func ParseProgress(data []byte) (p Progress, err error) {
	short := fmt.Errorf("%w: a progress that is too short", ErrMalformed)
	if !IsProgress(data) {
		return p, fmt.Errorf("%w: a progress of an unknown version", ErrMalformed)
	}
	epochs := data[0] == epochsVersion
	data = data[1:]
	for _, to := range []*uint64{&p.Epoch, &p.Offset} {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return Progress{}, short
		}
		*to, data = v, data[n:]
	}
	for len(data) > 0 {
		var s Source
		if len(data) < len(s.Key) {
			return Progress{}, short
		}
		data = data[copy(s.Key[:], data):]
		sequence, n := binary.Uvarint(data)
		if epochs && n > 0 {
			data = data[n:]
			s.Epoch, n = binary.Uvarint(data)
		}
		if n <= 0 || len(data) == n || len(data) <= n+int(data[n]) {
			return Progress{}, short
		}
		size := int(data[n])
		if size > MaxOrigin {
			return Progress{}, fmt.Errorf("%w: an identity of %d bytes", ErrMalformed, size)
		}
		s.Sequence, s.Origin = sequence, string(data[n+1:n+1+size])
		p.Sources, data = append(p.Sources, s), data[n+1+size:]
	}
	return p, nil
}
