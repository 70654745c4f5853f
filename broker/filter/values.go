package filter

// Values evaluates several expressions for each record. One pass over the payload finds the fields
// that they are, as far as one finds so many; other expressions are evaluated each by itself. One
// goroutine uses it at a time.
type Values struct {
	of    []*Expression
	slots []int  // of the fields in state; -1: the expression is evaluated by itself
	state *state // nil: each is
}

// NewValues returns Values of expressions.
func NewValues(of []*Expression) *Values {
	v := &Values{of: of, slots: make([]int, len(of))}
	p, fields := newPaths(), 0
	for n, e := range of {
		v.slots[n] = -1
		if e.path == nil {
			continue
		}
		if slot, ok := p.add(e.path); ok {
			v.slots[n] = slot
			fields++
		}
	}
	if fields > 1 {
		v.state = newState(p)
	}
	return v
}

// Append appends the values for a record.
func (v *Values) Append(dst []Value, r *Record) []Value {
	if v.state != nil {
		v.state.begin(r, work{})
		defer v.state.end()
	}
	for n, e := range v.of {
		if v.state == nil || v.slots[n] < 0 {
			dst = append(dst, e.Value(r))
			continue
		}
		is := jsonOf{v.slots[n]}.judge(v.state)
		dst = append(dst, is.exported())
	}
	return dst
}
