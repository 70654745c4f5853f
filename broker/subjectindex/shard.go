package subjectindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/removal"
)

// Config is what a Shard needs.
type Config struct {
	FS    env.FS
	Dir   string // of this shard alone; it is made, and may have other files
	Cache *Cache
	// Secret is the log's secret number, which all its files have.
	Secret uint64
	Source Source
	// Added and Dropped are called when an index file of a segment has got its name, and when a file
	// was deleted. They may be nil.
	Added   func(name string, bytes int64)
	Dropped func(name string)
	// Room returns an error if no file is to be written now: the disk is almost full. It may be nil.
	Room func() error
	// Has reports whether the log still has a record. It may read the disk. Without it, layers that
	// compaction has replaced answer no questions.
	Has func(ctx context.Context, offset uint64) (bool, error)
	// Removed has the records that were removed one by one. No question counts or returns them, though
	// files have them. It may be nil.
	Removed *removal.Set
	// Wake is called when there is work, with the shard's lock held. It must not block.
	Wake func()
	// PartBytes is the memory of a part; 0 is the package's PartBytes.
	PartBytes int
}

// Source is the log, for rebuilding what is missing.
type Source interface {
	// Subjects calls record with the records from from up to, not including, to, in order, n
	// consecutive ones of a subject at once, and gap with each range that is damaged. An error of
	// record or gap ends it. Other errors mean that it should be tried again later.
	Subjects(from, to uint64, record func(offset uint64, n int, subject []byte) error, gap func(from, to uint64) error) error
}

// SegmentState is what the log knows of a segment.
type SegmentState struct {
	Segment
	End uint64 // offset after the last record
	// Epoch is that of the last record, of a sealed segment: see I6.
	Epoch  uint64
	Sealed bool // complete and synced
	Remade bool // an index file of before Open may have records that can't be read any more
}

// Shard is the index of one shard. See the package's comment for its layers, and for the calls that
// its owner makes.
type Shard struct {
	config Config
	number atomic.Uint64 // of files of parts

	working sync.Mutex // held by Work, while it does I/O

	mu       sync.Mutex
	start    uint64
	end      uint64
	segments []SegmentState // oldest first
	set      *layerSet
	part     *part // takes what is appended; nil: the next record makes one
	frozen   int   // bytes of all other parts
	facts    facts
	cuts     uint64 // how often something was taken from the end
	changed  changes
	distinct distinct
	failed   uint64 // where the range begins whose rebuilding failed last
	closed   bool
	stats    Stats

	garbageMu sync.Mutex // taken after mu
	garbage   []*run     // to be closed, and deleted if they are doomed
	over      bool       // nothing is deleted any more
}

// Stats are about a Shard since it was opened.
type Stats struct {
	Flushed uint64 // parts
	Written uint64 // index files
	Rebuilt uint64 // ranges that were read from the log
	GivenUp uint64 // parts
	Damaged uint64 // files
}

// layer is the index of a range of offsets: a run, a part, or neither if it is missing. It never
// changes. What its run or part has beyond the range is not valid.
type layer struct {
	Range // of the part that takes what is appended, up to MaxUint64
	of    Segment
	run   *run
	part  *part
	// former are the layers of the segments that compaction has replaced, oldest first, while the run
	// is not made yet. The log has no record that they lack. One that they have may be gone, but only
	// if the log has a newer one of its subject, or has lost it: see Config.Has.
	former []*layer
}

// lost is the generation of the layers of segments that are missing in the log.
const lost = math.MaxUint64

// lostLayer returns the layer of offsets without a segment. It is missing until Insert.
func lostLayer(in Range) *layer {
	return &layer{Range: in, of: Segment{Base: in.From, Generation: lost}}
}

// layerSet is the layers at a moment. It holds a reference to each run.
type layerSet struct {
	layers []*layer
	refs   atomic.Int64
}

func newLayerSet(layers []*layer) *layerSet {
	s := &layerSet{layers: layers}
	s.refs.Store(1)
	s.eachRun((*run).retain)
	return s
}

// eachRun calls f with the runs of all layers.
func (s *layerSet) eachRun(f func(r *run)) { eachRun(s.layers, f) }

func eachRun(layers []*layer, f func(r *run)) {
	for _, l := range layers {
		if l.run != nil {
			f(l.run)
		}
		eachRun(l.former, f)
	}
}

func (s *layerSet) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.eachRun((*run).release)
}

// Open opens the index of a log with some segments, oldest first. It uses the index files of sealed
// segments, and deletes all others. What is missing is made by Work, except for offsets between
// segments: their records are damaged. start is the log's first offset. An error is one of the
// disk, or that of the context.
func Open(ctx context.Context, config Config, start uint64, segments []SegmentState) (*Shard, error) {
	if config.PartBytes == 0 {
		config.PartBytes = PartBytes
	}
	s := &Shard{config: config, start: start, end: start, segments: slices.Clone(segments)}
	if err := config.FS.MkdirAll(config.Dir); err != nil {
		return nil, err
	}
	names, err := config.FS.List(config.Dir)
	if err != nil {
		return nil, err
	}
	layers, err := s.openRuns(ctx, names)
	s.set = newLayerSet(layers)
	used := map[string]bool{}
	for _, l := range layers {
		if l.run != nil {
			used[filepath.Base(l.run.path)] = true
			l.run.release() // the set has its own
		}
	}
	if err == nil {
		err = s.removeOthers(names, used)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// filesOf returns the names of index files by their segments, and notes the highest number of a
// file.
func (s *Shard) filesOf(names []string) map[Segment][]string {
	out := map[Segment][]string{}
	for _, name := range names {
		of, number, ok := segmentOf(name)
		s.number.Store(max(s.number.Load(), number))
		if ok {
			out[of] = append(out[of], name)
		}
	}
	return out
}

// openRuns returns the layers of the segments. Each run has a reference. Its time is proportional
// to the number of segments and files.
func (s *Shard) openRuns(ctx context.Context, names []string) (layers []*layer, err error) {
	files := s.filesOf(names)
	for _, g := range s.segments {
		if err := ctx.Err(); err != nil {
			return layers, err
		}
		if g.Base > s.end {
			layers = append(layers, lostLayer(Range{s.end, g.Base}))
		}
		s.end = max(s.end, g.End)
		l := &layer{Range: Range{max(g.Base, s.start), g.End}, of: g.Segment}
		if l.empty() {
			continue
		}
		layers = append(layers, l)
		for _, name := range files[g.Segment] {
			if !g.Sealed || g.Remade || l.run != nil {
				continue
			}
			l.run, err = s.open(name, g)
			if failed := (*FileError)(nil); err != nil && !errors.As(err, &failed) {
				return layers, err
			}
		}
	}
	return layers, nil
}

// removeOthers deletes the files of the index that are not used. If a crash brings one back, the
// next Open judges it again.
func (s *Shard) removeOthers(names []string, used map[string]bool) error {
	for _, name := range names {
		if used[name] || !ours(name) {
			continue
		}
		if err := s.remove(filepath.Join(s.config.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a file, if it is there.
func (s *Shard) remove(path string) error {
	if err := s.config.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.config.Dropped != nil {
		s.config.Dropped(filepath.Base(path))
	}
	return nil
}

// ours reports whether the index made a file of that name.
func ours(name string) bool {
	name, _ = strings.CutSuffix(name, newEnd)
	return strings.HasSuffix(name, indexEnd) || strings.HasSuffix(name, partEnd)
}

// open opens the index file of a sealed segment. One that lacks records is made again: they may be
// readable now.
func (s *Shard) open(name string, g SegmentState) (*run, error) {
	r, err := openRun(s.config.Cache, filepath.Join(s.config.Dir, name), kindSegment, s.config.Secret, g.Segment)
	if err != nil {
		return nil, err
	}
	r.gone = s.discard
	if r.h.from > max(g.Base, s.start) || r.end != g.End || r.h.epoch != g.Epoch {
		err := r.wrong(0, "it covers offsets %d to %d, the last of epoch %d, of a segment from %d to %d, the last of epoch %d",
			r.h.from, r.end, r.h.epoch, g.Base, g.End, g.Epoch)
		r.release()
		return nil, err
	}
	if len(r.gaps) > 0 {
		err := r.wrong(0, "records were damaged when it was made")
		r.release()
		return nil, err
	}
	return r, nil
}

// Close closes the index, after a Work that is under way: its context should have ended. Questions
// that are being answered finish, or fail, and keep their files open until then. An error means
// that files of parts were left, which the next Open deletes.
func (s *Shard) Close() (err error) {
	s.working.Lock()
	defer s.working.Unlock()
	s.mu.Lock()
	s.closed = true
	s.garbageMu.Lock()
	s.over = true
	var gone []*run // files that the next Open would delete; there may be none
	for _, r := range s.garbage {
		s.config.Cache.files.forget(r)
		if r.doomed.Load() {
			gone = append(gone, r)
		}
	}
	s.garbage = nil
	s.garbageMu.Unlock()
	for _, l := range s.set.layers {
		eachRun(l.former, func(r *run) { gone = append(gone, r) })
		if l.run != nil && l.run.h.kind == kindPart {
			gone = append(gone, l.run)
		}
	}
	s.distinct.drop()
	s.set.release()
	s.part, s.set = nil, newLayerSet(nil)
	s.mu.Unlock()
	for _, r := range gone {
		err = errors.Join(err, s.remove(r.path))
	}
	return err
}

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("the subject index is closed")

// discard has a run closed that nobody uses. The shard's lock may be held.
func (s *Shard) discard(r *run) {
	s.garbageMu.Lock()
	defer s.garbageMu.Unlock()
	if s.over {
		s.config.Cache.files.forget(r)
		return
	}
	s.garbage = append(s.garbage, r)
}

// replace makes layers the current ones. mu is held.
func (s *Shard) replace(layers []*layer) {
	old := s.set
	s.set = newLayerSet(layers)
	s.frozen = 0
	for _, l := range layers {
		for _, l := range append(l.former[:len(l.former):len(l.former)], l) {
			if l.part != nil && l.part != s.part {
				s.frozen += l.part.bytes()
			}
		}
	}
	doom(old.layers, layers)
	old.release()
	if d := &s.distinct; d.at != nil && d.at.set != s.set {
		if d.stale++; d.stale > mostStale {
			d.drop()
		}
	}
}

// doom has the files of the runs deleted that are in old and not in layers.
func doom(old, layers []*layer) {
	for len(old) > 0 && len(layers) > 0 && old[0] == layers[0] {
		old, layers = old[1:], layers[1:]
	}
	kept := map[*run]bool{}
	eachRun(layers, func(r *run) { kept[r] = true })
	eachRun(old, func(r *run) {
		if !kept[r] {
			r.doomed.Store(true)
		}
	})
}

// Bytes returns about how much memory the parts take.
func (s *Shard) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.part == nil {
		return s.frozen
	}
	return s.frozen + s.part.bytes()
}

// Stats returns what happened since the shard was opened.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Roll begins a segment. The records that follow belong to it.
func (s *Shard) Roll(g Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freeze()
	if n := len(s.segments); n > 0 && s.segments[n-1].Base == g.Base {
		s.segments = s.segments[:n-1] // it had no record
	}
	s.segments = append(slices.Clone(s.segments), SegmentState{Segment: g, End: g.Base})
	s.end = max(s.end, g.Base)
}

// freeze ends the part that takes what is appended. mu is held.
func (s *Shard) freeze() {
	p := s.part
	if p == nil {
		return
	}
	s.part = nil
	layers := slices.Clone(s.set.layers)
	last := layers[len(layers)-1]
	layers = layers[:len(layers)-1]
	if p.end > p.base {
		layers = append(layers, &layer{Range: Range{last.From, p.end}, of: last.of, part: p})
	}
	s.replace(layers)
}

// Begin takes the lock for a number of calls of Add. End must follow.
func (s *Shard) Begin() { s.mu.Lock() }

// Add adds n consecutive records of a subject, behind all others. It is called between Begin and
// End.
func (s *Shard) Add(offset uint64, n int, subject []byte) {
	p := s.part
	if p == nil {
		p = s.startPart()
	}
	s.end = offset + uint64(n)
	if len(subject) > mostSubject { // no client can publish to it
		p.end = s.end
		s.giveUp()
		return
	}
	p.add(offset, n, subject, hash(s.config.Secret, subject))
}

// Skip says that there are no records up to, not including, an offset. It is called between Begin
// and End.
func (s *Shard) Skip(to uint64) {
	if to <= s.end {
		return
	}
	if s.part == nil {
		s.startPart()
	}
	s.part.end, s.end = to, to
}

// End releases the lock.
func (s *Shard) End() {
	s.bound()
	s.mu.Unlock()
}

// bound freezes the part that takes what is appended if it has the memory that it may have, or
// gives it up if those before are still being flushed and all have too much. mu is held.
func (s *Shard) bound() {
	p, most := s.part, s.config.PartBytes
	if p == nil || p.bytes() <= most {
		return
	}
	switch {
	case s.frozen+p.bytes() > (1+partGivenUp)*most:
		s.giveUp()
		s.wake()
	case s.frozen <= most/2:
		s.freeze()
		s.wake()
	}
}

// giveUp forgets the part that takes what is appended. mu is held.
func (s *Shard) giveUp() {
	p := s.part
	layers := slices.Clone(s.set.layers)
	last := layers[len(layers)-1]
	layers[len(layers)-1] = &layer{Range: Range{last.From, p.end}, of: last.of}
	s.part = nil
	s.stats.GivenUp++
	s.replace(layers)
}

func (s *Shard) wake() {
	if s.config.Wake != nil {
		s.config.Wake()
	}
}

// startPart begins a part at the log's end. mu is held.
func (s *Shard) startPart() *part {
	base := s.end
	if len(s.segments) == 0 {
		s.segments = append(s.segments, SegmentState{Segment: Segment{Base: base}})
	}
	subjects := 0
	layers := slices.Clone(s.set.layers)
	if n := len(layers); n > 0 && layers[n-1].part != nil {
		subjects = layers[n-1].part.names.n // it will have as many
	}
	s.part = newPart(s.config.Secret, base, subjects)
	of := s.segments[len(s.segments)-1].Segment
	s.replace(append(layers, &layer{Range: Range{base, math.MaxUint64}, of: of, part: s.part}))
	return s.part
}

// Truncate notes that the log ends at an offset now. If the segment that holds the offset was
// sealed, Roll follows before the next record.
func (s *Shard) Truncate(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to >= s.end {
		return
	}
	var layers []*layer
	kept := false
	for _, l := range s.set.layers {
		switch {
		case l.part != nil && l.part == s.part && l.From <= to:
			l.part.truncate(to)
			kept = true
		case l.From >= to:
			continue
		case l.To > to:
			l = &layer{Range: Range{l.From, to}, of: l.of, run: l.run, part: l.part}
		}
		layers = append(layers, l)
	}
	if !kept {
		s.part = nil
	}
	s.replace(layers)
	segments := slices.Clone(s.segments)
	for i := range segments {
		if end := s.endOf(i); end > to {
			segments[i].End, segments[i].Epoch = to, 0 // not known; its index is made again at the next Open
		} else {
			segments[i].End = end
		}
	}
	s.changed.note(Range{to, s.end})
	s.segments, s.end = slices.DeleteFunc(segments, func(g SegmentState) bool { return g.Base >= to }), to
	s.cuts++
	s.facts.forget()
	s.wake()
}

// endOf returns where a segment ends. mu is held.
func (s *Shard) endOf(i int) uint64 {
	switch {
	case s.segments[i].Sealed:
		return s.segments[i].End
	case i+1 < len(s.segments):
		return s.segments[i+1].Base
	}
	return s.end
}

// Reset notes that the log is empty and begins at an offset.
func (s *Shard) Reset(start uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.note(Range{0, math.MaxUint64})
	s.part, s.segments, s.start, s.end = nil, nil, start, start
	s.cuts++
	s.facts.forget()
	s.replace(nil)
	s.wake()
}

// Trim notes that the log begins at an offset.
func (s *Shard) Trim(start uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start <= s.start {
		return
	}
	s.start = start
	for len(s.segments) > 1 && s.segments[1].Base <= start {
		s.segments = slices.Clone(s.segments[1:])
	}
	at := 0
	for at < len(s.set.layers) && s.set.layers[at].To <= start {
		at++
	}
	if at > 0 {
		s.replace(slices.Clone(s.set.layers[at:]))
		s.wake()
	}
}

// Sealed notes that a segment is complete and synced, and the epoch of its last record. Roll
// precedes the next record.
func (s *Shard) Sealed(g Segment, epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.segmentAt(g)
	if i < 0 || s.segments[i].Sealed {
		return
	}
	if i == len(s.segments)-1 {
		s.freeze()
	}
	end := s.endOf(i)
	s.segments = slices.Clone(s.segments)
	s.segments[i].End, s.segments[i].Epoch, s.segments[i].Sealed = end, epoch, true
	s.wake()
}

// segmentAt returns where a segment is in segments, or -1. mu is held.
func (s *Shard) segmentAt(g Segment) int {
	i, ok := slices.BinarySearchFunc(s.segments, g.Base, func(x SegmentState, base uint64) int { return cmp.Compare(x.Base, base) })
	if !ok || s.segments[i].Segment != g {
		return -1
	}
	return i
}

// Replace notes that consecutive sealed segments were replaced by one that ends at end. same says
// that it has the same records, in another form, or repaired: then their index serves, as far as it
// lacks nothing, until that of the new one is written. Otherwise the new one lacks records: those
// that compaction has removed, since their subjects have newer ones, or those that are lost. built
// is its index, which was made while it was written. With nil the index is missing until Work has
// made it; until then the former one says which record of a subject is the last one. Replace owns
// built.
func (s *Shard) Replace(old []Segment, fresh Segment, end uint64, same bool, built *Built) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := false
	if built != nil {
		defer func() {
			built.run.doomed.Store(!used)
			built.run.release()
		}()
	}
	if len(old) == 0 {
		return &OrderError{"a segment must replace others"}
	}
	i := s.segmentAt(old[0])
	if i < 0 || len(s.segments) < i+len(old) {
		return &OrderError{fmt.Sprintf("segment %d is not there to be replaced", old[0].Base)}
	}
	for k, g := range old {
		if s.segments[i+k].Segment != g || k > 0 && s.endOf(i+k-1) != g.Base {
			return &OrderError{fmt.Sprintf("segment %d is not there to be replaced", g.Base)}
		}
	}
	state := SegmentState{Segment: fresh, End: end, Epoch: s.segments[i+len(old)-1].Epoch, Sealed: true}
	s.segments = slices.Replace(slices.Clone(s.segments), i, i+len(old), state)
	var layers []*layer
	placed := false
	for _, l := range s.set.layers {
		switch {
		case !slices.Contains(old, l.of):
			layers = append(layers, l)
		case same && len(l.unknown()) == 0:
			layers = append(layers, &layer{Range: l.Range, of: fresh, run: l.run, part: l.part})
		case same:
			layers = append(layers, &layer{Range: l.Range, of: fresh, former: l.former})
		case !placed:
			placed = true
			next := &layer{Range: Range{fresh.Base, end}, of: fresh}
			if built != nil && built.run.h.of == fresh && built.run.end == end {
				next.run, used = built.run, true
			} else {
				next.former = s.formerOf(old)
			}
			layers = append(layers, next)
		}
	}
	if !same {
		s.facts.forget()
		s.changed.note(Range{old[0].Base, end})
	}
	s.replace(layers)
	s.wake()
	return nil
}

// formerOf returns the layers of segments that compaction replaces, or nothing if they lack
// offsets. mu is held.
func (s *Shard) formerOf(old []Segment) (former []*layer) {
	for _, l := range s.set.layers {
		switch {
		case !slices.Contains(old, l.of):
		case l.run == nil && l.part == nil && len(l.former) > 0:
			former = append(former, l.former...)
		case len(l.unknown()) > 0 || l.part != nil && l.part == s.part:
			return nil
		default:
			former = append(former, l)
		}
	}
	return former
}

// Insert notes that a missing segment is there again. Its index is missing until Work has made it.
func (s *Shard) Insert(g Segment, end, epoch uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := Range{g.Base, end}
	i, _ := slices.BinarySearchFunc(s.segments, g.Base, func(x SegmentState, base uint64) int { return cmp.Compare(x.Base, base) })
	if i < len(s.segments) && s.segments[i].Base < end || i > 0 && s.endOf(i-1) > g.Base {
		return &OrderError{fmt.Sprintf("segment %d is there already", g.Base)}
	}
	s.segments = slices.Insert(slices.Clone(s.segments), i, SegmentState{Segment: g, End: end, Epoch: epoch, Sealed: true})
	var layers []*layer
	for _, l := range s.set.layers {
		r := l.within(in)
		if l.of.Generation != lost || r.empty() {
			layers = append(layers, l)
			continue
		}
		if l.From < r.From {
			layers = append(layers, lostLayer(Range{l.From, r.From}))
		}
		layers = append(layers, &layer{Range: r, of: g})
		if r.To < l.To {
			layers = append(layers, lostLayer(Range{r.To, l.To}))
		}
	}
	s.replace(layers)
	s.wake()
	return nil
}
