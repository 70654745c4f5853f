package filter

import (
	"cel.dev/cel-go/common/types/ref"
)

// Stamp is attributes as JSON, such as a record was stored with. It reads them where a condition
// looks for them. One goroutine uses it at a time, and the zero Stamp has none.
type Stamp struct {
	text []byte
	all  ref.Val // of cel-go; nil: nobody has asked
}

// SetAttributes sets the attributes of a record to JSON, which s reads as long as the record is
// judged. Empty: it has none.
func (r *Record) SetAttributes(s *Stamp, text []byte) {
	if r.Attributes = nil; len(text) > 0 {
		s.text, s.all, r.Attributes = text, nil, s
	}
}

// position returns where the value of a name is; 0: there is none.
func (s *Stamp) position(name string) int {
	i := space(s.text, 0)
	if i >= len(s.text) || s.text[i] != '{' {
		return 0
	}
	for m := firstMember(s.text, i); m.value > 0 && m.value < len(s.text); {
		if m.is(name) {
			return m.value
		}
		end := skip(s.text, m.value)
		if end < 0 {
			return 0
		}
		m = nextMember(s.text, end)
	}
	return 0
}

// Find implements Attributes.
func (s *Stamp) Find(name string) Operand {
	if i := s.position(name); i > 0 {
		return s.operand(i)
	}
	return Operand{}
}

// operand returns the value at a position; the zero Operand: it can't be read.
func (s *Stamp) operand(i int) Operand {
	b := s.text
	switch b[i] {
	case '"':
		if t, ok := text(b, i); ok {
			return Operand{value{kind: isText, text: t}}
		}
	case '[':
		return ListOperand()
	case 't', 'f':
		switch word(b, i) {
		case "true":
			return BoolOperand(true)
		case "false":
			return BoolOperand(false)
		}
	default:
		if n, ok := number(b, i); ok {
			return NumberOperand(n)
		}
	}
	return Operand{}
}

// Has implements Attributes.
func (s *Stamp) Has(name string, element Operand) (has, ok bool) {
	b, i := s.text, s.position(name)
	if i == 0 || b[i] != '[' {
		return false, false
	}
	for i = space(b, i+1); i < len(b) && b[i] != ']'; i = space(b, i) {
		if has = s.operand(i).Equals(element); has {
			return true, true
		}
		if i = skip(b, i); i < 0 {
			return false, false
		}
		if i = space(b, i); i < len(b) && b[i] == ',' {
			i++
		}
	}
	return false, i < len(b)
}

// Map implements Attributes.
func (s *Stamp) Map() ref.Val {
	if s.all == nil {
		s.all = (&payload{b: s.text}).value()
	}
	return s.all
}
