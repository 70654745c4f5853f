package aggregate

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/filter"
)

// Kind is the type of a Value.
type Kind uint8

// Kinds of values. Their numbers are in encoded partials.
const (
	None   Kind = iota // there is no value; of a key: null
	Bool               // Truth
	Number             // Number
	Time               // Time, in ns since 1970
	Text               // Text
	Count              // Count
)

// Value is a part of a key, or the result of a function.
type Value struct {
	Kind   Kind
	Truth  bool
	Number float64
	Time   int64
	Text   string
	Count  uint64
}

// String returns the value as a table shows it.
func (v Value) String() string {
	switch v.Kind {
	case Bool:
		return strconv.FormatBool(v.Truth)
	case Number:
		return strconv.FormatFloat(v.Number, 'g', -1, 64)
	case Time:
		return time.Unix(0, v.Time).UTC().Format(time.RFC3339Nano)
	case Text:
		return v.Text
	case Count:
		return strconv.FormatUint(v.Count, 10)
	}
	return ""
}

// MarshalJSON implements json.Marshaler. Infinite sums are texts, since JSON has no such number.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.Kind {
	case None:
		return []byte("null"), nil
	case Bool, Count:
		return []byte(v.String()), nil
	case Number:
		if !math.IsInf(v.Number, 0) {
			return json.Marshal(v.Number)
		}
	}
	return json.Marshal(strings.ToValidUTF8(v.String(), "�"))
}

// compare orders all values: first by kind.
func (v *Value) compare(w *Value) int {
	if c := cmp.Compare(v.Kind, w.Kind); c != 0 {
		return c
	}
	switch v.Kind {
	case Bool:
		return compareBools(v.Truth, w.Truth)
	case Number:
		return cmp.Compare(v.Number, w.Number)
	case Time:
		return cmp.Compare(v.Time, w.Time)
	case Text:
		return strings.Compare(v.Text, w.Text)
	}
	return cmp.Compare(v.Count, w.Count)
}

func compareBools(v, w bool) int {
	switch {
	case v == w:
		return 0
	case w:
		return -1
	}
	return 1
}

// number returns the number of a value that sums and quantiles take: a finite one. There is one
// zero only.
func number(v *filter.Value) (n float64, ok bool) {
	n = v.Number + 0 // -0 + 0 is 0
	return n, v.Kind == filter.Number && !math.IsInf(n, 0) && n == n
}

// appendValue appends a value of a record in a form that differs between different values. ok is
// false if there is none.
func appendValue(b []byte, v *filter.Value) (_ []byte, ok bool) {
	switch v.Kind {
	case filter.Null:
		return append(b, byte(None)), true
	case filter.Bool:
		if v.Truth {
			return append(b, byte(Bool), 1), true
		}
		return append(b, byte(Bool), 0), true
	case filter.Number:
		n := v.Number + 0
		if n != n {
			return b, false
		}
		return binary.BigEndian.AppendUint64(append(b, byte(Number)), math.Float64bits(n)), true
	case filter.Time:
		return binary.BigEndian.AppendUint64(append(b, byte(Time)), uint64(v.Time)), true
	case filter.Text:
		return append(binary.AppendUvarint(append(b, byte(Text)), uint64(len(v.Text))), v.Text...), true
	}
	return b, false
}

// value returns a value that appendValue appended.
func (d *Decoder) value() (v Value) {
	switch v.Kind = Kind(d.Byte()); v.Kind {
	case None:
	case Bool:
		b := d.Byte()
		d.Must(b <= 1)
		v.Truth = b == 1
	case Number:
		v.Number = math.Float64frombits(d.Word())
		d.Must(v.Number == v.Number && (v.Number != 0 || !math.Signbit(v.Number)))
	case Time:
		v.Time = int64(d.Word())
	case Text:
		v.Text = string(d.Take(d.Uvarint()))
	default:
		d.Must(false)
	}
	return v
}

// valueOf returns a value of a record as one that is kept. ok is false if there is none.
func valueOf(v *filter.Value) (_ Value, ok bool) {
	switch v.Kind {
	case filter.Bool:
		return Value{Kind: Bool, Truth: v.Truth}, true
	case filter.Number:
		return Value{Kind: Number, Number: v.Number + 0}, v.Number == v.Number
	case filter.Time:
		return Value{Kind: Time, Time: v.Time}, true
	case filter.Text:
		if len(v.Text) > maxExtreme {
			return Value{}, false
		}
		return Value{Kind: Text, Text: string(v.Text)}, true
	}
	return Value{}, false
}

// append appends a value that valueOf returned, as appendValue does.
func (v *Value) append(b []byte) []byte {
	b, _ = appendValue(b, &filter.Value{Kind: kinds[v.Kind], Truth: v.Truth, Number: v.Number, Time: v.Time, Text: []byte(v.Text)})
	return b
}

// kinds are the kinds of a record's values.
var kinds = [...]filter.Kind{None: filter.Null, Bool: filter.Bool, Number: filter.Number, Time: filter.Time, Text: filter.Text}
