package subjectindex

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/carillon-mq/carillon/broker/removal"
)

// part is the index of consecutive records in memory. Its Shard's lock guards it.
//
// Subjects have numbers in the order of their first records. So the subjects that a truncation
// removes are the last ones, and the subjects with a record below an offset are the first ones.
// Records and names never change, but for their tails, so a view of them is read without the lock.
type part struct {
	secret uint64
	base   uint64 // offset of the first record that it may have
	end    uint64 // offset after the last that it covers

	records   list[record]
	names     list[name]
	text      [][]byte // of names
	stretches []stretch

	slots []uint64 // hash table: upper 32 bits of the hash, number of the subject + 1; 0: free
	sizes int      // bytes of text
}

// record is one record, or a run of consecutive records of one subject: the number of the subject,
// and the number + 1 of the record before with this subject; 0: none.
type record struct{ subject, before uint32 }

// name is a subject: where it stands in text, and the number of its first record. Its tail changes,
// so views don't read that. It is here because a record needs both, in one cache line.
type name struct {
	at    uint32 // chunk << 16 | position
	size  uint16
	first uint32
	tail  tail
}

// tail is the number + 1 of a subject's last record, and how many it has, each of a run counted. A
// part is of one segment, which has fewer than 4 Gi.
type tail struct{ last, count uint32 }

// stretch is consecutive offsets: of the record number and those that follow, or of one run.
type stretch struct {
	number int
	offset uint64
	run    uint64 // offsets of the run number; 0: it is of single records
}

const (
	leastText = 512
	mostText  = 64 << 10
	// leastRun is from how many records on a run takes less memory than they do one by one.
	leastRun = 8
)

// newPart returns a part that begins at base. It has room for some subjects.
func newPart(secret, base uint64, subjects int) *part {
	p := &part{secret: secret, base: base, end: base}
	size := 16
	for size*5/8 < subjects {
		size *= 2
	}
	p.slots = make([]uint64, size)
	return p
}

// bytes returns about how much memory the part takes.
func (p *part) bytes() int {
	return 8*p.records.n + 20*p.names.n + p.sizes + 8*len(p.slots) + 24*len(p.stretches)
}

// nextOffset returns the offset of a record that would belong to the last stretch; 0: none does.
func (p *part) nextOffset() uint64 {
	if n := len(p.stretches); n > 0 && p.stretches[n-1].run == 0 {
		return p.stretches[n-1].offset + uint64(p.records.n-p.stretches[n-1].number)
	}
	return 0
}

// add adds n consecutive records of a subject with the hash h.
func (p *part) add(offset uint64, n int, subject []byte, h uint64) {
	entries := n
	switch {
	case n >= leastRun:
		p.stretches = append(p.stretches, stretch{p.records.n, offset, uint64(n)})
		entries = 1
	case offset != p.nextOffset():
		p.stretches = append(p.stretches, stretch{number: p.records.n, offset: offset})
	}
	id := p.numberOf(subject, h)
	t := &p.names.at(int(id)).tail
	for range entries {
		p.records.add(record{id, t.last})
		t.last = uint32(p.records.n)
	}
	t.count += uint32(n)
	p.end = offset + uint64(n)
}

// numberOf returns the number of a subject, and gives it one if it has none.
func (p *part) numberOf(subject []byte, h uint64) uint32 {
	id, slot, ok := p.find(subject, h)
	if ok {
		return id
	}
	if (p.names.n+1)*8 > len(p.slots)*5 {
		p.enlarge()
		_, slot, _ = p.find(subject, h)
	}
	id = uint32(p.names.n)
	p.slots[slot] = h&^(1<<32-1) | uint64(id+1)
	p.names.add(name{at: p.keep(subject), size: uint16(len(subject)), first: uint32(p.records.n)})
	return id
}

// keep copies a subject to text.
func (p *part) keep(subject []byte) uint32 {
	n := len(p.text)
	if n == 0 || len(p.text[n-1])+len(subject) > cap(p.text[n-1]) {
		size := leastText
		if n > 0 {
			size = min(2*cap(p.text[n-1]), mostText)
		}
		p.text = append(p.text, make([]byte, 0, max(size, len(subject))))
		p.sizes += cap(p.text[n])
		n++
	}
	chunk := &p.text[n-1]
	at := uint32(n-1)<<16 | uint32(len(*chunk))
	*chunk = append(*chunk, subject...)
	return at
}

// find returns the number of a subject, or the free slot that it belongs to.
func (p *part) find(subject []byte, h uint64) (id uint32, slot int, ok bool) {
	mask := len(p.slots) - 1
	for slot = int(h>>32) & mask; ; slot = (slot + 1) & mask {
		s := p.slots[slot]
		if s == 0 {
			return 0, slot, false
		}
		if s>>32 == h>>32 {
			id = uint32(s) - 1
			if bytes.Equal(nameIn(p.text, p.names.at(int(id))), subject) {
				return id, slot, true
			}
		}
	}
}

func nameIn(text [][]byte, n *name) []byte {
	return text[n.at>>16][n.at&0xffff:][:n.size:n.size]
}

// enlarge doubles the table.
func (p *part) enlarge() {
	old := p.slots
	p.slots = make([]uint64, 2*len(old))
	mask := len(p.slots) - 1
	for _, s := range old {
		if s == 0 {
			continue
		}
		slot := int(s>>32) & mask
		for p.slots[slot] != 0 {
			slot = (slot + 1) & mask
		}
		p.slots[slot] = s
	}
}

// truncate removes the records from an offset on.
func (p *part) truncate(to uint64) {
	if to >= p.end {
		return
	}
	to = max(to, p.base)
	n := numberAt(p.stretches, p.records.n, to)
	for i := p.records.n - 1; i >= n; i-- {
		r := *p.records.at(i)
		t := &p.names.at(int(r.subject)).tail
		from, end := offsetsAt(p.stretches, i)
		t.last = r.before
		t.count -= uint32(end - from)
	}
	p.records.truncate(n)
	subjects := p.names.n
	for subjects > 0 && int(p.names.at(subjects-1).first) >= n {
		subjects--
	}
	if subjects < p.names.n {
		p.names.truncate(subjects)
		p.cutText()
		p.rehash()
	}
	keep := len(p.stretches)
	for keep > 0 && p.stretches[keep-1].number >= n {
		keep--
	}
	p.stretches = slices.Clone(p.stretches[:keep])
	if keep > 0 {
		last := &p.stretches[keep-1]
		if end := last.offset + last.run; last.run > 0 && end > to { // it is cut
			last.run -= end - to
			p.names.at(int(p.records.at(n - 1).subject)).tail.count -= uint32(end - to)
		}
	}
	p.end = to
}

// cutText drops the text behind the last name. Views may still read it, so it is not overwritten.
func (p *part) cutText() {
	chunks, used := 0, 0
	if n := p.names.n; n > 0 {
		last := p.names.at(n - 1)
		chunks, used = int(last.at>>16)+1, int(last.at&0xffff)+int(last.size)
	}
	p.text = slices.Clone(p.text[:chunks])
	if chunks > 0 {
		last := &p.text[chunks-1]
		*last = append(make([]byte, 0, cap(*last)), (*last)[:used]...)
	}
	p.sizes = 0
	for _, c := range p.text {
		p.sizes += cap(c)
	}
}

// rehash fills the table anew.
func (p *part) rehash() {
	clear(p.slots)
	for id := range p.names.n {
		subject := nameIn(p.text, p.names.at(id))
		h := hash(p.secret, subject)
		_, slot, _ := p.find(subject, h)
		p.slots[slot] = h&^(1<<32-1) | uint64(id+1)
	}
}

// tailOf returns the tail of a subject, and the number of its first record. Without records, count
// is 0.
func (p *part) tailOf(subject []byte, h uint64) (t tail, first uint32) {
	id, _, ok := p.find(subject, h)
	if !ok {
		return tail{}, 0
	}
	n := p.names.at(int(id))
	return n.tail, n.first
}

// numberAt returns how many of n records, or runs, begin below an offset.
func numberAt(stretches []stretch, n int, offset uint64) int {
	i := sort.Search(len(stretches), func(i int) bool { return stretches[i].offset >= offset })
	if i == 0 {
		return 0
	}
	end := n
	if i < len(stretches) {
		end = stretches[i].number
	}
	s := stretches[i-1]
	return int(min(uint64(end), uint64(s.number)+offset-s.offset))
}

// offsetsAt returns the offsets of a record, or a run: from from up to, not including, to.
func offsetsAt(stretches []stretch, number int) (from, to uint64) {
	i := len(stretches) - 1
	if stretches[i].number > number {
		i = sort.Search(len(stretches), func(i int) bool { return stretches[i].number > number }) - 1
	}
	s := &stretches[i]
	from = s.offset + uint64(number-s.number)
	return from, from + max(s.run, 1)
}

// partView is what a part was at some moment. It needs no lock.
type partView struct {
	records   list[record]
	names     list[name]
	text      [][]byte
	stretches []stretch
	base, end uint64
}

func (p *part) view() partView {
	return partView{
		records: p.records.snapshot(), names: p.names.snapshot(), text: slices.Clone(p.text),
		stretches: p.stretches[:len(p.stretches):len(p.stretches)], base: p.base, end: p.end,
	}
}

// numbers returns the numbers of the records, and runs, that have offsets within a range: from a up
// to, not including, b.
func (v *partView) numbers(r Range) (a, b int) {
	if r.From >= r.To {
		return 0, 0
	}
	a, b = numberAt(v.stretches, v.records.n, r.From), numberAt(v.stretches, v.records.n, r.To)
	if a > 0 {
		if _, to := offsetsAt(v.stretches, a-1); to > r.From {
			a--
		}
	}
	return a, b
}

// offsetsIn returns the offsets of a record, or a run, that are within a range.
func (v *partView) offsetsIn(number int, r Range) (from, to uint64) {
	from, to = offsetsAt(v.stretches, number)
	return max(from, r.From), min(to, r.To)
}

func (v *partView) subject(id uint32) []byte { return nameIn(v.text, v.names.at(int(id))) }

// last returns the offset of the last record within a range of the subject that has a tail, or 0.
// removed may be nil.
func (v *partView) last(t tail, r Range, removed *removal.Set) uint64 {
	for at := t.last; at > 0; at = v.records.at(int(at - 1)).before {
		if from, to := offsetsAt(v.stretches, int(at-1)); from < r.To {
			if to <= r.From {
				return 0
			}
			if last := liveRun(removed, max(from, r.From), min(to, r.To)).Last; last > 0 {
				return last
			}
		}
	}
	return 0
}

// info is last with the count and the first.
func (v *partView) info(t tail, r Range, removed *removal.Set) (info Info) {
	for at := t.last; at > 0; at = v.records.at(int(at - 1)).before {
		from, to := offsetsAt(v.stretches, int(at-1))
		if to <= r.From {
			break
		}
		if from, to = max(from, r.From), min(to, r.To); from < to {
			info.add(liveRun(removed, from, to))
		}
	}
	return info
}

// sorted returns the selected subjects that have records within a range.
func (v *partView) sorted(sel selection, r Range) *partCursor {
	a, b := v.numbers(r)
	counts := make([]uint32, v.names.n)
	for i := a; i < b; i++ {
		counts[v.records.at(i).subject]++
	}
	c := &partCursor{view: v, at: -1}
	total := 0
	for id, n := range counts {
		if n == 0 || !sel.has(v.subject(uint32(id))) {
			counts[id] = 0
			continue
		}
		c.subjects = append(c.subjects, uint32(id))
		total += int(n)
	}
	v.sort(c.subjects)
	c.begins = make([]uint32, len(c.subjects)+1)
	next := make([]uint32, len(counts)) // where the next record of a subject goes, + 1; 0: nowhere
	at := uint32(0)
	for i, id := range c.subjects {
		c.begins[i], next[id] = at, at+1
		at += counts[id]
	}
	c.begins[len(c.subjects)] = at
	c.records = make([]uint32, total)
	for i := a; i < b; i++ {
		id := v.records.at(i).subject
		if next[id] > 0 {
			c.records[next[id]-1] = uint32(i)
			next[id]++
		}
	}
	return c
}

// sort sorts subjects by their names. Names of a shard begin alike, so it compares the eight bytes
// behind what all have in common first.
func (v *partView) sort(ids []uint32) {
	if len(ids) < 2 {
		return
	}
	common := v.subject(ids[0])
	for _, id := range ids[1:] {
		common = common[:shared(common, v.subject(id))]
	}
	type key struct {
		start uint64
		id    uint32
	}
	keys := make([]key, len(ids))
	for i, id := range ids {
		var start [8]byte
		copy(start[:], v.subject(id)[len(common):])
		keys[i] = key{uint64(start[0])<<56 | uint64(start[1])<<48 | uint64(start[2])<<40 | uint64(start[3])<<32 |
			uint64(start[4])<<24 | uint64(start[5])<<16 | uint64(start[6])<<8 | uint64(start[7]), id}
	}
	slices.SortFunc(keys, func(x, y key) int {
		if x.start != y.start {
			return cmp.Compare(x.start, y.start)
		}
		return bytes.Compare(v.subject(x.id), v.subject(y.id))
	})
	for i := range keys {
		ids[i] = keys[i].id
	}
}

// shared returns how many bytes two subjects share at their beginning.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// partCursor iterates over subjects of a part, in order.
type partCursor struct {
	view     *partView
	subjects []uint32
	begins   []uint32 // where the records of each begin in records
	records  []uint32
	at       int
}

func (c *partCursor) next() (bool, error) {
	c.at++
	return c.at < len(c.subjects), nil
}

func (c *partCursor) subject() []byte { return c.view.subject(c.subjects[c.at]) }

// has reports whether the cursor meets a subject that has records within a range. removed may be
// nil.
func (c *partCursor) has(subject []byte, r Range, removed *removal.Set) bool {
	at, ok := slices.BinarySearchFunc(c.subjects, subject, func(id uint32, s []byte) int { return bytes.Compare(c.view.subject(id), s) })
	if !ok || removed == nil {
		return ok
	}
	found := *c
	found.at = at
	left := uint64(0)
	_ = found.offsets(r, func(from, to uint64) error {
		left += liveRun(removed, from, to).Count
		return nil
	})
	return left > 0
}

func (c *partCursor) info(r Range) (Info, error) {
	var info Info
	err := c.offsets(r, func(from, to uint64) error {
		info.addRun(from, to, r)
		return nil
	})
	return info, err
}

func (c *partCursor) offsets(r Range, f func(from, to uint64) error) error {
	stretches := c.view.stretches
	at := 0 // of the stretch of the record before
	for _, number := range c.records[c.begins[c.at]:c.begins[c.at+1]] {
		for at+1 < len(stretches) && stretches[at+1].number <= int(number) {
			at++
		}
		s := &stretches[at]
		from := s.offset + uint64(int(number)-s.number)
		to := min(from+max(s.run, 1), r.To)
		if from = max(from, r.From); from < to {
			if err := f(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}
