package filter

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// Probe reads what records have that a Filter needs to be equal to one of some constants: a record
// that has something else there does not match, whatever the rest of the condition says, and can be
// judged. One goroutine uses it at a time. It keeps the last record in memory.
type Probe struct {
	path      string
	constants []value
	key       uint64
	hashes    []uint64 // of the constants
	of        node
	state     *state
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
	probe := &Probe{path: q.path(), constants: q.values, of: g.of, state: newState(p)}
	probe.SetKey(0)
	return probe
}

// SetKey sets the key of the hashes, which is 0 in a new Probe. It should be a secret, so that
// nobody can make values whose hashes are equal.
func (p *Probe) SetKey(key uint64) {
	p.key, p.hashes = key, p.hashes[:0]
	for i := range p.constants {
		p.hashes = append(p.hashes, hashOf(key, &p.constants[i]))
	}
}

// path names what is compared. Different things have different paths. They are written to files,
// so they must not change.
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
	return hashOf(p.key, &v), true
}

// textKey and numberKey are the other halves of the keys by which texts and numbers are hashed.
const (
	textKey   = 0x9e3779b97f4a7c15
	numberKey = 0xd6e8feb86659fd93
)

// hashOf returns the hash of a value. What is neither a number nor a text equals no constant of an
// equality, and all of that has the same one.
func hashOf(key uint64, v *value) uint64 {
	switch v.kind {
	case isText:
		return sipHash(key, textKey, v.text)
	case isNumber:
		var number [8]byte
		binary.LittleEndian.PutUint64(number[:], hashed(v.number))
		return sipHash(key, numberKey, number[:])
	}
	return 0
}
