package filter

// Reads is what judging a record by a quick Filter looks at.
type Reads struct {
	Parts   int // that compare something
	Headers int // of these, those that look for a header in the block
	Names   int // that are looked for in one pass over the payload; 0: it is not read
	Time    bool
}

// Reads returns what judging a record looks at. ok is false if the Filter is not quick.
func (f *Filter) Reads() (r Reads, ok bool) {
	if !f.quick {
		return r, false
	}
	r.Names = len(f.paths.nodes) - 1
	r.add(f.direct)
	return r, true
}

func (r *Reads) add(n node) {
	switch n := n.(type) {
	case *junction:
		for _, of := range n.of {
			r.add(of)
		}
		return
	case *not:
		r.add(n.of)
		return
	case *comparison:
		r.operand(n.of)
	case *membership:
		r.Parts += len(n.others)
		r.operand(n.of)
	case *match:
		r.operand(n.of)
	case hasHeader:
		r.Headers++
	}
	r.Parts++
}

func (r *Reads) operand(n node) {
	switch n.(type) {
	case headerOf:
		r.Headers++
	case timeOf:
		r.Time = true
	}
}

const (
	// partWork is about how many bytes of a payload take as long as a comparison.
	partWork = 32
	// namesWork is how many names that are looked for take about as long as reading the payload, if
	// that is an object of many short members, each of which is compared with all names.
	namesWork = 4
)

// Work returns about how many bytes of a record are passed over to judge it; a comparison counts as
// some.
func (r *Reads) Work(header, data int) int {
	n := r.Parts*partWork + r.Headers*header
	if r.Names > 0 {
		n += data + data/namesWork*(r.Names-1)
	}
	return n
}
