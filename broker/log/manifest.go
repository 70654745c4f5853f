package log

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Manifest describes a log: the files that are its segments, where its epochs begin, and the state
// of the copy. The file named manifest in the log's directory holds it; see manifestFile for how it
// is replaced.
//
// A value is never changed once others can see it. Log.change makes the next one.
type Manifest struct {
	Topic string `json:"topic"` // its id
	Shard int    `json:"shard"`
	Part  string `json:"part,omitempty"`
	// Log is a secret number that distinguishes frames of this log from payloads.
	Log uint64 `json:"log"`
	// Named means that meta.json of version 2 is durable, or became durable together with this
	// manifest. Opening the log then doesn't read meta.json.
	Named bool `json:"named,omitempty"`
	// Spec is opaque data of SetSpec: the Topic's spec.
	Spec opaque `json:"spec,omitempty"`
	// Copy is the state of this copy, as package copystate encodes it.
	Copy opaque `json:"copy,omitempty"`
	// Epoch is the epoch in which Spec was written. Later ones are in Epochs, if they have records.
	Epoch uint64 `json:"epoch"`
	// Start is the first retained offset. It is written before files below it are deleted.
	Start uint64 `json:"start"`
	// Durable is an offset below which all records were durable when the manifest was written. So
	// missing records below it are lost, and not unwritten.
	Durable uint64 `json:"durable"`
	// Committed is an offset below which all records were known to be committed at the last
	// truncation; 0: there was none. It is here because a truncation voids the sync points of the
	// file that it cuts.
	Committed uint64 `json:"committed,omitempty"`
	// Clean is where the next compaction begins: below it, each subject has one record. A lower
	// value costs time only.
	Clean uint64 `json:"clean,omitempty"`
	// Generation counts the switches. It is part of the name of each new file, so no name is used
	// twice.
	Generation uint64 `json:"generation,omitempty"`
	// Epochs are the retained epochs and where each begins, oldest first.
	Epochs []Epoch `json:"epochs,omitempty"`
	// Rebuilt reports that a manifest of the log was lost, or did not list an epoch behind damage:
	// Epochs is what could be read of the segments, and damage may hide where an epoch begins.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Segments are the files of the log, oldest first.
	Segments []SegmentRef `json:"segments,omitempty"`
	// Drops means that Segments has no file that a trim has deleted, so one that is missing was lost.
	// Earlier versions leave the last one there, and drop this.
	Drops bool `json:"drops,omitempty"`
	// Gone are files that a switch or a trim removed from the log. Opening the log deletes those
	// that still exist.
	Gone []SegmentRef `json:"gone,omitempty"`
	// Bad are the first offsets of segments that were found damaged and are not repaired yet. So
	// the next process knows damage that opening the log does not find. An entry of a segment that
	// was removed or repaired meanwhile is harmless.
	Bad []uint64 `json:"bad,omitempty"`
	// Disowned are the offsets that can't be read here, since other replicas were told so and may
	// have given up their records (Log.Disown), oldest first.
	Disowned []Span `json:"disowned,omitempty"`
	// Lost are those of Disowned that no replica had, oldest first: others may have batches without
	// records in their place (Log.DisownLost).
	Lost []Span `json:"lost,omitempty"`
	// Aside are the pieces that were set aside most recently, oldest first. DeleteAside may have
	// deleted some of them.
	Aside []Aside `json:"aside,omitempty"`
	// AsideBefore counts older pieces.
	AsideBefore int `json:"asideBefore,omitempty"`
}

// SegmentRef names a segment's file.
type SegmentRef struct {
	Base       uint64 `json:"base"`
	Generation uint64 `json:"gen,omitempty"`
	// End is where the segment ends, if it ends before the next one begins: the rest of its file
	// does not belong to the log. Zero: it ends where the next one begins, or is the last one and
	// open.
	End uint64 `json:"end,omitempty"`
	// File is the number of the file in the journal of sync points; 0: unknown.
	File uint32 `json:"file,omitempty"`
}

// file returns r with only the fields that are in the file's name.
func (r SegmentRef) file() SegmentRef { return SegmentRef{Base: r.Base, Generation: r.Generation} }

// Aside is a part of the log that was set aside instead of being deleted.
type Aside struct {
	// Dir is relative to the disk's set-aside directory.
	Dir string `json:"dir"`
	// From and Next bound the offsets of the records, as far as known.
	From   uint64 `json:"from"`
	Next   uint64 `json:"next"`
	Reason string `json:"reason"`
	// Files are to be moved there. Opening the log moves those that were not.
	Files []SegmentRef `json:"files,omitempty"`
}

// The state in a manifest is bounded, so that a change of state always fits into the present slots
// (see stateRoom).
const (
	largestCopy = 1 << 10 // encoded
	mostAside   = 4       // of about 150 bytes each; pieces with unmoved files are kept besides
	// mostBad bounds Bad, at 21 bytes each. The oldest entries are kept: damage in newer segments
	// is found again by reading.
	mostBad = 20
	// largestReason is the bound of Aside.Reason, in bytes.
	largestReason = 80
)

// opaque is data that the log keeps for its caller. If it is JSON, the manifest contains it as
// JSON, so that a person can read it.
type opaque []byte

// MarshalJSON implements json.Marshaler.
func (o opaque) MarshalJSON() ([]byte, error) {
	if len(o) > 0 && o[0] == '{' && json.Valid(o) {
		// The encoder removes blanks from JSON and escapes some characters. Only data that it
		// leaves unchanged decodes to the same bytes.
		if again, err := json.Marshal(json.RawMessage(o)); err == nil && bytes.Equal(again, o) {
			return o, nil
		}
	}
	return json.Marshal([]byte(o))
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *opaque) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		*o = bytes.Clone(data)
		return nil
	}
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	*o = raw
	return err
}

// clone returns a copy that may be changed.
func (m *Manifest) clone() *Manifest {
	next := *m
	next.Epochs, next.Segments, next.Gone = slices.Clone(m.Epochs), slices.Clone(m.Segments), slices.Clone(m.Gone)
	next.Bad, next.Aside = slices.Clone(m.Bad), slices.Clone(m.Aside)
	next.Disowned, next.Lost = slices.Clone(m.Disowned), slices.Clone(m.Lost)
	return &next
}

// end returns where the n-th segment ends; false: it is the last one, and open.
func (m *Manifest) end(n int) (uint64, bool) {
	if end := m.Segments[n].End; end > 0 {
		return end, true
	}
	if n+1 < len(m.Segments) {
		return m.Segments[n+1].Base, true
	}
	return 0, false
}

// tidy removes segments and epochs below the start, and entries beyond the bounds.
func (m *Manifest) tidy() {
	for len(m.Segments) > 0 {
		if end, known := m.end(0); !known || end > m.Start {
			break
		}
		m.drop(m.Segments[0])
		m.Segments = m.Segments[1:]
	}
	m.own(Span{0, m.Start})
	for len(m.Epochs) > 1 && m.Epochs[1].Start <= m.Start {
		m.Epochs = m.Epochs[1:]
	}
	for i := range m.Segments[:max(len(m.Segments)-1, 0)] {
		if m.Segments[i].End == m.Segments[i+1].Base {
			m.Segments[i].End = 0
		}
	}
	if len(m.Bad) > mostBad {
		m.Bad = m.Bad[:mostBad]
	}
	for len(m.Aside) > mostAside && len(m.Aside[0].Files) == 0 {
		m.Aside = m.Aside[1:]
		m.AsideBefore++
	}
}

// drop lists a file as gone.
func (m *Manifest) drop(r SegmentRef) {
	if !slices.Contains(m.Gone, r.file()) {
		m.Gone = append(m.Gone, r.file())
	}
}

// list adds the new segments and epochs of a round.
func (m *Manifest) list(segments []SegmentRef, epochs []Epoch) {
	for _, r := range segments {
		at, there := m.find(r.Base)
		switch {
		case !there:
			m.Segments = slices.Insert(m.Segments, at, r)
		case m.Segments[at].file() != r.file(): // an empty file that a crash has left
			m.drop(m.Segments[at])
			m.Segments[at] = r
		}
	}
	m.Epochs = mergeEpochs(m.Epochs, epochs)
	m.Drops = m.Drops || len(segments) > 0 // tidy removes one that was the last
}

// endAt lists where the last segment ends, if it is r. So tidy removes it if all of it is trimmed.
func (m *Manifest) endAt(r SegmentRef) {
	if n := len(m.Segments) - 1; n >= 0 && r.End > 0 && m.Segments[n].file() == r.file() && m.Segments[n].End == 0 {
		m.Segments[n].End = r.End
	}
}

// find returns the index of a segment, or where it is to be inserted.
func (m *Manifest) find(base uint64) (int, bool) {
	return slices.BinarySearchFunc(m.Segments, base, func(r SegmentRef, base uint64) int { return cmp.Compare(r.Base, base) })
}

// cut removes everything from an offset on, where a batch begins, and returns the removed files.
// The segment that contains the offset ends there.
func (m *Manifest) cut(base uint64) (gone []SegmentRef) {
	at, _ := m.find(base)
	gone = slices.Clone(m.Segments[at:])
	m.Segments = m.Segments[:at]
	if at > 0 {
		if end := m.Segments[at-1].End; end == 0 || end > base {
			m.Segments[at-1].End = base
		}
		m.Segments[at-1].File = 0 // the file gets another number, which voids its sync points
	}
	for n := len(m.Epochs); n > 0 && m.Epochs[n-1].Start >= base; n-- {
		m.Epochs = m.Epochs[:n-1]
	}
	m.own(Span{base, math.MaxUint64})
	m.Durable, m.Clean, m.Committed = max(m.Start, base), min(m.Clean, base), min(m.Committed, base)
	m.Generation++
	return gone
}

// mergeEpochs merges the epochs found in a segment into the known ones.
func mergeEpochs(known, more []Epoch) (all []Epoch) {
	if len(more) == 0 {
		return known
	}
	begin := map[uint64]uint64{}
	for _, e := range slices.Concat(known, more) {
		if at, ok := begin[e.Epoch]; !ok || e.Start < at {
			begin[e.Epoch] = e.Start
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(begin)) {
		all = append(all, Epoch{Epoch: epoch, Start: begin[epoch]})
	}
	return all
}

func (m *Manifest) check() error {
	if m.Topic == "" || m.Start == 0 || m.Durable < m.Start || m.Log == 0 {
		return errors.New("it says what can't be")
	}
	for i := range m.Segments {
		if i > 0 && m.Segments[i].Base <= m.Segments[i-1].Base || m.Segments[i].Base == 0 {
			return errors.New("its segments are not in order")
		}
	}
	return nil
}

// A slot is a line of text, a line of JSON, and zeros:
//
//	carillon manifest <version> <sequence> <length of the JSON> <CRC-32C>
//
// The checksum covers the JSON and the line from the version to the length.
const (
	slotMagic       = "carillon manifest "
	manifestVersion = 1
	slotLine        = len(slotMagic) + 3 + 1 + 20 + 1 + 10 + 1 + 8 + 1
)

// errNewer is a file of a later version. It is no damage, so it must not be rebuilt.
var errNewer = errors.New("use that version, or newer")

// encodeSlot returns the beginning of a slot.
func encodeSlot(m *Manifest, sequence uint64) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%03d %020d %010d", manifestVersion, sequence, len(body))
	sum := crc32.Update(crc32.Checksum([]byte(head), castagnoli), castagnoli, body)
	return fmt.Appendf(nil, "%s%s %08x\n%s\n", slotMagic, head, sum, body), nil
}

// decodeSlot reads what encodeSlot wrote, from a slot's bytes.
func decodeSlot(data []byte) (m *Manifest, sequence uint64, err error) {
	if len(data) < slotLine || !bytes.HasPrefix(data, []byte(slotMagic)) {
		return nil, 0, errors.New("it doesn't begin as a manifest does")
	}
	head := data[len(slotMagic) : slotLine-10]
	number := func(from, to, base int) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(string(data[len(slotMagic)+from:len(slotMagic)+to]), base, 64)
		}
		return n
	}
	version, sequence, length, sum := number(0, 3, 10), number(4, 24, 10), number(25, 35, 10), number(36, 44, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("its first line can't be read: %w", err)
	}
	if length > uint64(len(data)-slotLine) {
		return nil, 0, fmt.Errorf("it can't have %d bytes", length)
	}
	body := data[slotLine : slotLine+int(length)]
	if uint64(crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)) != sum {
		return nil, 0, errors.New("the checksum is wrong")
	}
	if version > manifestVersion {
		return nil, 0, fmt.Errorf("version %d is newer than this broker knows: %w", version, errNewer)
	}
	m = &Manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, 0, err
	}
	return m, sequence, m.check()
}
