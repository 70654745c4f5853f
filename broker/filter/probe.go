package filter

import (
	"hash/maphash"
	"strconv"
	"strings"
)

// Probe reads what records have that a Filter needs to be equal to one of some constants: a record
// that has something else there does not match, whatever the rest of the condition says, and can be
// judged. One goroutine uses it at a time. It keeps the last record in memory.
type Probe struct {
	path   string
	hashes []uint64 // of the constants
	of     node
	state  *state
}

// NewProbe returns a Probe, or nil if the Filter needs nothing to be equal to a constant, or if it
// is not quick: judging may then fail for a reason that has nothing to do with that.
func (f *Filter) NewProbe() *Probe {
	q := f.equality
	if q == nil || !f.quick || q.root == subjectName {
		return nil
	}
	p := newPaths()
	g := group[struct{}]{equality: q}
	if !g.place(p) {
		return nil
	}
	probe := &Probe{path: q.path(), of: g.of, state: newState(p)}
	for i := range q.values {
		probe.hashes = append(probe.hashes, hashOf(&q.values[i]))
	}
	return probe
}

// path names what is compared. Different things have different paths.
func (q *equality) path() string {
	var b strings.Builder
	b.WriteString(q.root)
	for _, name := range q.names {
		b.WriteByte('.')
		b.WriteString(strconv.Quote(name))
	}
	return b.String()
}

// Path names what is compared.
func (p *Probe) Path() string { return p.path }

// Hashes are those of the constants.
func (p *Probe) Hashes() []uint64 { return p.hashes }

// Hash returns the hash of what a record has there. Equal values have equal hashes. ok is false if
// it has nothing there, or nothing that can be read.
func (p *Probe) Hash(r *Record) (hash uint64, ok bool) {
	p.state.begin(r, work{})
	v := p.of.judge(p.state)
	if v.kind == isError {
		return 0, false
	}
	return hashOf(&v), true
}

// hashSeed is one of this process, so that nobody can make values whose hashes are equal.
var hashSeed = maphash.MakeSeed()

// hashOf returns the hash of a value. What is neither a number nor a text equals no constant of an
// equality, and all of that has the same one.
func hashOf(v *value) uint64 {
	switch v.kind {
	case isText:
		return maphash.Bytes(hashSeed, v.text)
	case isNumber:
		return maphash.Comparable(hashSeed, hashed(v.number))
	}
	return 0
}
