package subjectindex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/removal"
)

// model is a log without an index: its records, and its segments.
type model struct {
	start, end uint64
	high       uint64 // watermark: what is below is never truncated
	records    []entryOf
	segments   []SegmentState
	damaged    []Range
	generation uint64
	epochs     []uint64     // where each begins, from the second on
	removed    *removal.Set // that readers pass
}

// epochAt returns the epoch of the last record below an offset.
func (m *model) epochAt(end uint64) uint64 {
	n := len(m.epochs)
	for n > 0 && m.epochs[n-1] >= end {
		n--
	}
	return uint64(n)
}

type entryOf struct {
	offset  uint64
	subject string
}

// Subjects implements Source.
func (m *model) Subjects(from, to uint64, record func(offset uint64, n int, subject []byte) error, gap func(from, to uint64) error) error {
	if from < m.start || to > m.end {
		return fmt.Errorf("offsets %d to %d are not within the log, %d to %d", from, to, m.start, m.end)
	}
	damaged := m.damaged
	for _, r := range slices.Clone(m.records) { // it may change meanwhile
		for len(damaged) > 0 && damaged[0].To <= r.offset {
			if in := damaged[0].within(Range{from, to}); !in.empty() {
				if err := gap(in.From, in.To); err != nil {
					return err
				}
			}
			damaged = damaged[1:]
		}
		if r.offset < from || r.offset >= to || len(damaged) > 0 && damaged[0].From <= r.offset {
			continue
		}
		if err := record(r.offset, 1, []byte(r.subject)); err != nil {
			return err
		}
	}
	for _, d := range damaged {
		if in := d.within(Range{from, to}); !in.empty() {
			if err := gap(in.From, in.To); err != nil {
				return err
			}
		}
	}
	return nil
}

// has reports whether the log has a record.
func (m *model) has(_ context.Context, offset uint64) (bool, error) {
	return slices.ContainsFunc(m.records, func(r entryOf) bool { return r.offset == offset }), nil
}

// within returns the records within a range that match and are not removed.
func (m *model) within(in Range, match func(subject string) bool) []entryOf {
	return slices.DeleteFunc(m.kept(in, match), func(r entryOf) bool { return m.removed.Has(r.offset) })
}

// kept is within with removed records.
func (m *model) kept(in Range, match func(subject string) bool) (out []entryOf) {
	in = in.within(Range{m.start, m.end})
	for _, r := range m.records {
		if r.offset >= in.From && r.offset < in.To && match(r.subject) {
			out = append(out, r)
		}
	}
	return out
}

// infos returns what a range has of each subject.
func infos(records []entryOf) map[string]Info {
	out := map[string]Info{}
	for _, r := range records {
		info := out[r.subject]
		info.add(Info{Count: 1, First: r.offset, Last: r.offset})
		out[r.subject] = info
	}
	return out
}

// world is an index beside the log that it is of, under changes and crashes that a seed decides.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	fs    *crashfs.FS
	cache *Cache
	log   model
	index *Shard
	wide  bool // many subjects
	trims bool // the set of removed records is trimmed with the log
	said  []string

	lost []SegmentState // segments whose files are not there

	counters []*counting
	distinct uint64 // position that NumSubjects was asked for last
}

// counting is a Counter with the position of its consumer.
type counting struct {
	*Counter
	patterns []string
	from     uint64
}

const testSecret = 0x5eed

func newWorld(t testing.TB, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, rng: rng, fs: crashfs.New(), wide: rng.IntN(2) == 0}
	w.log.start, w.log.end, w.log.high, w.log.removed = 1, 1, 1, new(removal.Set)
	w.reopen()
	return w
}

func (w *world) reopen() {
	w.cache = NewCache(w.fs, []int{1 << 10, 64 << 10, 1 << 20}[w.rng.IntN(3)])
	for i := range w.log.segments {
		w.log.segments[i].Epoch = w.log.epochAt(w.log.segments[i].End)
	}
	index, err := Open(context.Background(), Config{FS: w.fs, Dir: "index", Cache: w.cache, Secret: testSecret, Source: &w.log, Has: w.log.has, Removed: w.log.removed, PartBytes: 2 << 10}, w.log.start, w.log.segments)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	w.index, w.counters = index, nil
}

func (w *world) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(w.said[max(0, len(w.said)-40):], "\n"))
}

func (w *world) subject() string {
	words := []string{"a", "b", "b-b", "c", "orders", "x"}
	word := func() string { return words[w.rng.IntN(len(words))] }
	if w.wide {
		return fmt.Sprintf("%s.%s.%d", word(), word(), w.rng.IntN(400))
	}
	return fmt.Sprintf("%s.%d", word(), w.rng.IntN(3))
}

func (w *world) patterns() []string {
	all := []string{">", "a.>", "a.*", "*.1", "orders.*.7", "b.b-b.>", "*.*.*", "b-b.>", w.subject(), w.subject()}
	out := []string{all[w.rng.IntN(len(all))]}
	for w.rng.IntN(4) == 0 {
		out = append(out, all[w.rng.IntN(len(all))])
	}
	return out
}

// span returns a range: often that of readers or of conditions, sometimes any.
func (w *world) span() Range {
	switch w.rng.IntN(4) {
	case 0:
		return Range{w.log.start, w.log.end}
	case 1:
		return Range{w.log.start, w.log.high}
	}
	a, b := w.offset(), w.offset()
	return Range{min(a, b), max(a, b) + 1}
}

// offset returns one within the log, or just outside.
func (w *world) offset() uint64 {
	return w.log.start - 1 + uint64(w.rng.Int64N(int64(w.log.end-w.log.start)+3))
}

// active returns the last segment, which takes what is appended.
func (w *world) active() *SegmentState {
	if n := len(w.log.segments); n > 0 && !w.log.segments[n-1].Sealed {
		return &w.log.segments[n-1]
	}
	w.roll()
	return &w.log.segments[len(w.log.segments)-1]
}

func (w *world) roll() {
	if n := len(w.log.segments); n > 0 && w.log.segments[n-1].Base == w.log.end {
		return
	}
	g := Segment{Base: w.log.end, Generation: w.log.generation}
	w.say("roll %v", g)
	w.log.segments = append(w.log.segments, SegmentState{Segment: g, End: g.Base})
	w.index.Roll(g)
}

func (w *world) append() {
	n := 1 + w.rng.IntN(60)
	w.say("append %d at %d", n, w.log.end)
	w.active()
	w.index.Begin()
	for range n {
		if w.rng.IntN(40) == 0 { // offsets without a record, as a compacted batch has
			w.log.end += uint64(w.rng.IntN(5))
			w.index.Skip(w.log.end)
		}
		s, count := w.subject(), 1
		if w.rng.IntN(10) == 0 {
			count = 1 + w.rng.IntN(30)
		}
		w.index.Add(w.log.end, count, []byte(s))
		for range count {
			w.log.records = append(w.log.records, entryOf{w.log.end, s})
			w.log.end++
		}
	}
	w.index.End()
	w.active().End = w.log.end
}

func (w *world) commit() {
	w.log.high += uint64(w.rng.Int64N(int64(w.log.end-w.log.high) + 1))
	w.say("watermark %d of %d", w.log.high, w.log.end)
}

func (w *world) seal() {
	for i := range w.log.segments {
		if g := &w.log.segments[i]; !g.Sealed && g.End > g.Base && (i < len(w.log.segments)-1 || w.rng.IntN(8) == 0) {
			w.say("sealed %v to %d", g.Segment, g.End)
			g.Sealed = true
			w.index.Sealed(g.Segment, w.log.epochAt(g.End))
			return
		}
	}
}

func (w *world) truncate() {
	to := w.log.high + uint64(w.rng.Int64N(int64(w.log.end-w.log.high)+1))
	if to == w.log.end {
		return
	}
	w.say("truncate to %d", to)
	w.cut(to)
	w.index.Truncate(to)
	if n := len(w.log.segments); n > 0 && !w.log.segments[n-1].Sealed { // what broker/log does
		w.log.segments[n-1].Sealed = true
		w.index.Sealed(w.log.segments[n-1].Segment, w.log.epochAt(to))
	}
}

// cut drops the records from an offset on.
func (w *world) cut(to uint64) {
	l := &w.log
	l.end, l.high = to, min(l.high, to)
	l.records = slices.DeleteFunc(l.records, func(r entryOf) bool { return r.offset >= to })
	l.segments = slices.DeleteFunc(l.segments, func(g SegmentState) bool { return g.Base >= to })
	if n := len(l.segments); n > 0 {
		l.segments[n-1].End = min(l.segments[n-1].End, to)
	}
	l.generation++
	for i, from := range l.epochs {
		l.epochs[i] = min(from, to)
	}
	l.epochs = append(l.epochs, to) // another leader appends
}

func (w *world) trim() {
	to := w.log.start + uint64(w.rng.Int64N(int64(w.log.high-max(w.log.start, 1))/2+1))
	w.say("start %d", to)
	w.trimTo(to)
	w.index.Trim(to)
}

func (w *world) trimTo(to uint64) {
	w.log.start = to
	w.log.records = slices.DeleteFunc(w.log.records, func(r entryOf) bool { return r.offset < to })
	for len(w.log.segments) > 1 && w.log.segments[0].End <= to {
		w.log.segments = w.log.segments[1:]
	}
	w.lost = slices.DeleteFunc(w.lost, func(g SegmentState) bool { return g.End <= to })
	if w.trims {
		w.log.removed.Trim(to)
	}
}

// remove removes records below the watermark, one by one or many.
func (w *world) remove() {
	from := w.log.start + w.rng.Uint64N(w.log.high-w.log.start+1)
	next := min(from+1, w.log.high)
	if w.rng.IntN(4) == 0 {
		next = min(from+w.rng.Uint64N(200), w.log.high)
	}
	w.say("remove %d to %d", from, next)
	w.log.removed.Add(from, next)
}

func (w *world) reset() {
	start := w.log.end + uint64(w.rng.IntN(100))
	w.say("reset to %d", start)
	w.lost = nil
	generation := w.log.generation + 1
	w.log = model{start: start, end: start, high: start, generation: generation, epochs: []uint64{start}, removed: w.log.removed}
	w.index.Reset(start)
	w.distinct = 0
}

// rewrite replaces sealed segments: by one with the same records, by one without those that have a
// newer one of their subject among them, or by one without some.
func (w *world) rewrite() {
	sealed := 0
	for sealed < len(w.log.segments) && w.log.segments[sealed].Sealed && w.log.segments[sealed].End <= w.log.high {
		sealed++
	}
	if sealed == 0 || len(w.lost) > 0 {
		return
	}
	from := w.rng.IntN(sealed)
	to := from + 1 + w.rng.IntN(min(3, sealed-from))
	group := slices.Clone(w.log.segments[from:to])
	w.log.generation++
	fresh := Segment{Base: group[0].Base, Generation: w.log.generation}
	end := group[len(group)-1].End
	old := make([]Segment, len(group))
	for i := range group {
		old[i] = group[i].Segment
	}
	same := w.rng.IntN(3) == 0
	in := Range{fresh.Base, end}
	if in := (Range{fresh.Base, end}); !same && w.rng.IntN(3) == 0 {
		w.log.records = slices.DeleteFunc(w.log.records, func(r entryOf) bool {
			return r.offset >= in.From && r.offset < in.To && w.rng.IntN(2) == 0
		})
	} else if !same {
		newest := infos(w.log.kept(in, func(string) bool { return true }))
		w.log.records = slices.DeleteFunc(w.log.records, func(r entryOf) bool {
			return r.offset >= in.From && r.offset < in.To && newest[r.subject].Last != r.offset
		})
	}
	w.log.segments = slices.Replace(w.log.segments, from, to, SegmentState{Segment: fresh, End: end, Sealed: true})
	var built *Built
	if !same && w.rng.IntN(2) == 0 {
		b := w.index.NewBuilder(fresh, max(fresh.Base, w.log.start), w.log.epochAt(end))
		for _, r := range w.log.kept(in, func(string) bool { return true }) {
			if err := b.Add(w.t.Context(), r.offset, 1, []byte(r.subject)); err != nil {
				w.fail("build: %v", err)
			}
		}
		var err error
		if built, err = b.Finish(w.t.Context(), end); err != nil {
			w.fail("build: %v", err)
		}
	}
	w.say("replace %v by %v, same %v, built %v", old, fresh, same, built != nil)
	if err := w.index.Replace(old, fresh, end, same, built); err != nil {
		w.fail("replace: %v", err)
	}
}

// workBesideChanges is work while the log changes between operations of the disk.
func (w *world) workBesideChanges() {
	inside := false
	w.fs.SetHook(func(op crashfs.Op) error {
		if inside || !op.Changes() || w.rng.IntN(4) > 0 {
			return nil
		}
		inside = true
		defer func() { inside = false }()
		switch w.rng.IntN(6) {
		case 0:
			w.truncate()
		case 1:
			w.trim()
		case 2:
			w.rewrite()
		case 3:
			w.roll()
		case 4:
			w.seal()
		default:
			w.append()
		}
		return nil
	})
	defer w.fs.SetHook(nil)
	w.say("work, and meanwhile:")
	for range 3 {
		if _, err := w.index.Work(w.t.Context()); err != nil && !strings.Contains(err.Error(), "are not within the log") {
			w.fail("work: %v", err)
		}
	}
}

// work does all that is to be done, or one piece.
func (w *world) work(all bool) {
	for n := 0; ; n++ {
		more, err := w.index.Work(w.t.Context())
		if err != nil {
			w.fail("work: %v", err)
		}
		if !more || !all {
			w.say("work %d", n)
			return
		}
		if n > 1000 {
			w.fail("work doesn't end: %+v", w.index.Stats())
		}
	}
}

// crash loses records that were not sealed, and whatever of the disk may be lost.
func (w *world) crash() {
	keep := w.log.high
	for _, g := range w.log.segments {
		if g.Sealed {
			keep = max(keep, g.End)
		}
	}
	keep += uint64(w.rng.Int64N(int64(w.log.end-keep) + 1))
	w.say("crash; the log ends at %d", keep)
	if w.rng.IntN(3) == 0 {
		_ = w.index.Close() // the disk may be away already
	}
	w.fs = w.fs.Crash(w.rng)
	if keep < w.log.end {
		w.cut(keep)
	}
	for i := range w.log.segments[:max(len(w.log.segments)-1, 0)] {
		w.log.segments[i].Sealed = true // opening the log seals what was not yet
	}
	// A segment that was sealed last may be appended to again if nothing follows it.
	if n := len(w.log.segments); n > 0 && w.rng.IntN(2) == 0 {
		w.log.segments[n-1].Sealed = false
	}
	if n := len(w.log.segments); n > 2 && w.rng.IntN(4) == 0 {
		if i := w.rng.IntN(n - 1); w.log.segments[i].End <= w.log.high {
			w.say("lost %v", w.log.segments[i])
			w.lost = append(w.lost, w.log.segments[i])
			w.log.segments = slices.Delete(w.log.segments, i, i+1)
		}
	}
	w.reopen()
}

// find brings back a segment that was lost.
func (w *world) find() {
	if len(w.lost) == 0 {
		return
	}
	g := w.lost[0]
	w.lost = w.lost[1:]
	w.say("found %v", g)
	if err := w.index.Insert(g.Segment, g.End, w.log.epochAt(g.End)); err != nil {
		w.fail("insert: %v", err)
	}
	at, _ := slices.BinarySearchFunc(w.log.segments, g.Base, func(x SegmentState, base uint64) int { return int(x.Base) - int(base) })
	w.log.segments = slices.Insert(w.log.segments, at, g)
}

// flip damages a byte of a file of the index.
func (w *world) flip() {
	names, err := w.fs.List("index")
	if err != nil || len(names) == 0 {
		return
	}
	name := "index/" + names[w.rng.IntN(len(names))]
	info, err := w.fs.Stat(name)
	if err != nil || info.Size == 0 {
		return
	}
	bit := w.rng.Int64N(info.Size * 8)
	w.say("flip bit %d of %s", bit, name)
	if err := w.fs.Flip(name, bit); err != nil {
		w.fail("flip: %v", err)
	}
}

// step makes a change.
func (w *world) step() {
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.append()
	case n < 58:
		w.commit()
	case n < 66:
		w.roll()
	case n < 74:
		w.seal()
	case n < 78:
		w.truncate()
	case n < 82:
		w.trim()
	case n < 87:
		w.rewrite()
	case n < 91:
		w.work(w.rng.IntN(2) == 0)
	case n < 95:
		w.workBesideChanges()
	case n < 97:
		w.crash()
	case n < 98 && w.rng.IntN(2) == 0:
		w.find()
	case n < 98:
		if err := w.index.Flush(w.t.Context()); err != nil {
			w.fail("flush: %v", err)
		}
	case n < 99 && w.rng.IntN(8) == 0:
		w.reset()
	}
}

// check asks a question of each kind. Only while there is work to do an answer may be missing.
func (w *world) check(idle bool) {
	ctx := w.t.Context()
	wrong := func(what string, err error, got, want any) {
		w.t.Helper()
		missing, ok := errors.AsType[*MissingError](err)
		switch {
		case ok && !idle && !missing.Damaged:
		case ok && missing.Damaged && w.isLost(missing):
		case err != nil:
			w.fail("%s: %v", what, err)
		case fmt.Sprint(got) != fmt.Sprint(want):
			w.fail("%s is %v, want %v (log %d to %d, watermark %d)", what, got, want, w.log.start, w.log.end, w.log.high)
		}
	}
	in, subject := w.span(), w.subject()
	of := infos(w.log.within(in, func(s string) bool { return s == subject }))[subject]
	last, err := w.index.Last(context.Background(), []byte(subject), in)
	wrong(fmt.Sprintf("last of %s in %v", subject, in), err, last, of.Last)
	info, err := w.index.Info(context.Background(), []byte(subject), in)
	wrong(fmt.Sprintf("info of %s in %v", subject, in), err, info, of)

	end := infos(w.log.within(Range{w.log.start, w.log.end}, func(s string) bool { return s == subject }))[subject].Last
	known, ok := w.index.Known([]byte(subject))
	if !ok {
		if err = w.index.Resolve(context.Background(), []byte(subject)); err == nil {
			if known, ok = w.index.Known([]byte(subject)); !ok {
				w.fail("%s isn't known after it was resolved", subject)
			}
		}
	}
	if ok {
		wrong("the last record of "+subject+" at the end", nil, known, end)
	} else {
		wrong("the last record of "+subject+" at the end", err, known, end)
	}

	patterns := w.patterns()
	f, err := NewFilter(patterns...)
	if err != nil {
		w.fail("filter: %v", err)
	}
	match := matchNaively(patterns)
	matching := w.log.within(in, match)
	count, err := w.index.Count(ctx, f, in)
	wrong(fmt.Sprintf("count of %v in %v", patterns, in), err, count, len(matching))

	first, final := uint64(0), uint64(0)
	if n := len(matching); n > 0 {
		first, final = matching[0].offset, matching[n-1].offset
	}
	got, err := w.index.NextMatch(ctx, f, in)
	wrong(fmt.Sprintf("first of %v in %v", patterns, in), err, got, first)
	got, err = w.index.LastMatch(ctx, f, in)
	wrong(fmt.Sprintf("last of %v in %v", patterns, in), err, got, final)

	all := infos(matching)
	after := []string{"", w.subject()}[w.rng.IntN(2)]
	want, have := "", ""
	for _, s := range slices.Sorted(maps.Keys(all)) {
		if s > after {
			want += fmt.Sprintf("%s %v\n", s, all[s])
		}
	}
	err = w.index.Subjects(ctx, f, in, after, func(s []byte, info Info) bool {
		have += fmt.Sprintf("%s %v\n", s, info)
		return true
	})
	wrong(fmt.Sprintf("subjects of %v in %v after %q", patterns, in, after), err, have, want)

	var offsets []entryOf
	err = w.index.Offsets(ctx, f, in, func(s []byte, offset uint64) error {
		offsets = append(offsets, entryOf{offset, string(s)})
		return nil
	})
	slices.SortFunc(offsets, func(a, b entryOf) int { return int(a.offset) - int(b.offset) })
	wrong(fmt.Sprintf("offsets of %v in %v", patterns, in), err, offsets, matching)

	if w.rng.IntN(4) > 0 { // mostly the readers' view, which moves forwards
		in = Range{w.log.start, w.log.high}
	}
	number, err := w.index.NumSubjects(ctx, in)
	wrong(fmt.Sprintf("the number of subjects in %v", in), err, number, len(infos(w.log.within(in, func(string) bool { return true }))))

	w.count(idle, wrong)
}

// isLost reports whether what is missing is of a lost segment.
func (w *world) isLost(missing *MissingError) bool {
	return slices.ContainsFunc(w.lost, func(g SegmentState) bool {
		return g.Base < missing.To && missing.From < g.End
	})
}

// count asks the counters of some consumers, which move forwards.
func (w *world) count(idle bool, wrong func(what string, err error, got, want any)) {
	if len(w.counters) < 3 {
		patterns := w.patterns()
		f, err := NewFilter(patterns...)
		if err != nil {
			w.fail("filter: %v", err)
		}
		w.counters = append(w.counters, &counting{Counter: w.index.NewCounter(f), patterns: patterns, from: w.log.start})
	}
	c := w.counters[w.rng.IntN(len(w.counters))]
	match := matchNaively(c.patterns)
	if w.log.high > c.from && w.rng.IntN(2) == 0 {
		to := c.from + uint64(w.rng.Int64N(int64(w.log.high-c.from)+1))
		if c.from >= w.log.start && w.rng.IntN(2) == 0 {
			c.Passed(Range{c.from, to}, uint64(len(w.log.within(Range{c.from, to}, match))))
		}
		c.from = to
	}
	in := Range{c.from, w.log.high}
	n, err := c.Count(w.t.Context(), in)
	wrong(fmt.Sprintf("the kept count of %v in %v", c.patterns, in), err, n, len(w.log.within(in, match)))
}

// matchNaively is what patterns mean, in few words.
func matchNaively(patterns []string) func(subject string) bool {
	return func(s string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			want, have := strings.Split(p, "."), strings.Split(s, ".")
			for i, token := range want {
				if token == ">" {
					return len(have) > i
				}
				if i >= len(have) || token != "*" && token != have[i] {
					return false
				}
			}
			return len(want) == len(have)
		})
	}
}
