package attribute

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds. The zero Value has none of them, and is none.
const (
	StringKind Kind = iota + 1
	NumberKind
	BoolKind
	ListKind
)

// String returns the kind as messages name it.
func (k Kind) String() string {
	switch k {
	case StringKind:
		return "string"
	case NumberKind:
		return "number"
	case BoolKind:
		return "bool"
	case ListKind:
		return "list"
	}
	return "nothing"
}

// Value is a string, a number, a bool, or a list of these. It is immutable.
type Value struct {
	kind   Kind
	text   string
	number float64 // of a bool: 1 or 0
	list   []Value
}

// String returns a string as a Value.
func String(s string) Value { return Value{kind: StringKind, text: s} }

// Number returns a number as a Value. It must be finite.
func Number(n float64) Value { return Value{kind: NumberKind, number: n} }

// Bool returns a bool as a Value.
func Bool(b bool) Value {
	v := Value{kind: BoolKind}
	if b {
		v.number = 1
	}
	return v
}

// List returns a list as a Value. The elements are not lists, and not changed afterwards.
func List(elements ...Value) Value { return Value{kind: ListKind, list: elements} }

// Kind returns the type.
func (v Value) Kind() Kind { return v.kind }

// Text returns a string, or "" of another kind.
func (v Value) Text() string { return v.text }

// Number returns a number, or 0 of another kind.
func (v Value) Number() float64 {
	if v.kind != NumberKind {
		return 0
	}
	return v.number
}

// Bool returns a bool, or false of another kind.
func (v Value) Bool() bool { return v.kind == BoolKind && v.number == 1 }

// List returns the elements of a list, which must not be changed, or nil of another kind.
func (v Value) List() []Value { return v.list }

// Equal reports whether the values are of one kind, and equal.
func (v Value) Equal(o Value) bool {
	return v.kind == o.kind && v.text == o.text && v.number == o.number && slices.EqualFunc(v.list, o.list, Value.Equal)
}

// AppendJSON appends the value as JSON.
func (v Value) AppendJSON(b []byte) []byte {
	switch v.kind {
	case StringKind:
		return appendString(b, v.text)
	case NumberKind:
		return appendNumber(b, v.number)
	case BoolKind:
		return strconv.AppendBool(b, v.number == 1)
	case ListKind:
		b = append(b, '[')
		for i, e := range v.list {
			if i > 0 {
				b = append(b, ',')
			}
			b = e.AppendJSON(b)
		}
		return append(b, ']')
	}
	return append(b, "null"...)
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(data []byte) (err error) {
	*v, err = FromJSON(data)
	return err
}

// FromJSON returns the value of a text, or an error that says what may be written.
func FromJSON(data []byte) (Value, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return Value{}, errNone
	}
	if data[0] != '[' {
		return scalar(data)
	}
	var texts []json.RawMessage
	if err := json.Unmarshal(data, &texts); err != nil {
		return Value{}, err
	}
	list := make([]Value, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = scalar(text); err != nil {
			return Value{}, err
		}
	}
	return Value{kind: ListKind, list: list}, nil
}

var errNone = errors.New("there is no value (write a string, a number, true, false, or a list of these)")

// scalar returns the value of a text that is no list.
func scalar(data []byte) (Value, error) {
	if len(data) == 0 {
		return Value{}, errNone
	}
	switch data[0] {
	case '"':
		var s string
		if !utf8.Valid(data) {
			return Value{}, errors.New("a string that is not UTF-8 (encode it)")
		}
		err := json.Unmarshal(data, &s)
		return String(s), err
	case 't', 'f':
		var b bool
		err := json.Unmarshal(data, &b)
		return Bool(b), err
	case '[', '{', 'n':
		return Value{}, fmt.Errorf("%.40s is no value here (write a string, a number, true, false, or a list of these)", data)
	}
	var n float64
	err := json.Unmarshal(data, &n)
	return Number(n), err
}

// appendNumber appends a number as JSON: an integer without an exponent as far as it is exact.
func appendNumber(b []byte, n float64) []byte {
	switch {
	case n == 0:
		return append(b, '0') // also for -0, which is equal
	case n == math.Trunc(n) && math.Abs(n) < 1<<53:
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendFloat(b, n, 'g', -1, 64)
}

// appendString appends a string as JSON. What needs no escape has none.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
