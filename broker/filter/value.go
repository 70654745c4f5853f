package filter

import (
	"fmt"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// payload is read for cel-go.
type payload struct {
	b      []byte
	read   int // elements and members that were made values
	work   work
	failed error // of an iteration, which can't report it
}

// value returns the value of the whole payload. Objects are read when they are asked for a name.
func (p *payload) value() ref.Val {
	v, _ := p.valueAt(space(p.b, 0), 0)
	return v
}

// valueAt returns the value at i. end is where it ends, or 0: that was not looked for.
func (p *payload) valueAt(i, depth int) (v ref.Val, end int) {
	b := p.b
	if i >= len(b) || depth > maxDepth {
		return types.WrapErr(errNoJSON), 0
	}
	if b[i] == '[' {
		return p.list(i, depth+1)
	}
	return p.single(i, depth), 0
}

// single returns the value at i that is no array.
func (p *payload) single(i, depth int) ref.Val {
	b := p.b
	switch b[i] {
	case '{':
		return &object{payload: p, at: i, depth: depth + 1}
	case '"':
		s, ok := text(b, i)
		switch {
		case !p.work.pass(len(s)):
			return types.WrapErr(errTooLong)
		case ok:
			return types.String(s)
		}
	case 't', 'f', 'n':
		switch word(b, i) {
		case "true":
			return types.True
		case "false":
			return types.False
		case "null":
			return types.NullValue
		}
	default:
		if n, ok := number(b, i); ok {
			return types.Double(n)
		}
	}
	return types.WrapErr(errNoJSON)
}

// word returns the word at i.
func word(b []byte, i int) string {
	if end := skip(b, i); end >= 0 && end-i <= len("false") {
		return string(b[i:end])
	}
	return ""
}

// skip returns the position behind the value at i, or an error.
func (p *payload) skip(i int) (end int, err ref.Val) {
	if end = skip(p.b, i); end < 0 {
		return 0, types.WrapErr(errNoJSON)
	}
	if !p.work.pass(end - i) {
		return 0, types.WrapErr(errTooLong)
	}
	return end, nil
}

// list returns the array at i, and where it ends.
func (p *payload) list(i, depth int) (list ref.Val, end int) {
	var all []ref.Val
	b := p.b
	if i = space(b, i+1); i < len(b) && b[i] == ']' {
		return types.NewRefValList(types.DefaultTypeAdapter, nil), i + 1
	}
	for {
		if p.read++; p.read > maxElements {
			return types.WrapErr(errTooMany), 0
		}
		v, end := p.valueAt(i, depth)
		if types.IsError(v) {
			return v, 0
		}
		all = append(all, v)
		if end == 0 {
			var err ref.Val
			if end, err = p.skip(i); err != nil {
				return err, 0
			}
		}
		i = space(b, end)
		if i < len(b) && b[i] == ']' {
			return types.NewRefValList(types.DefaultTypeAdapter, all), i + 1
		}
		if i >= len(b) || b[i] != ',' {
			return types.WrapErr(errNoJSON), 0
		}
		i = space(b, i+1)
	}
}

// object is a JSON object as a map of cel-go.
type object struct {
	*payload
	at    int // of its bracket
	depth int
	whole ref.Val // the same with all of its values; nil: nobody has asked
	found []named // values that were asked for
}

// named is a value of an object; nil: it has none of this name.
type named struct {
	name  string
	value ref.Val
}

// Find implements traits.Mapper.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	if all, ok := o.whole.(traits.Mapper); ok {
		return all.Find(name)
	}
	for i := range o.found {
		if o.found[i].name == string(name) {
			v := o.found[i].value
			return v, v != nil && !types.IsError(v)
		}
	}
	v := o.find(string(name))
	if len(o.found) < maxFound {
		o.found = append(o.found, named{string(name), v})
	}
	return v, v != nil && !types.IsError(v)
}

// find returns the value of a name; nil: there is none.
func (o *object) find(name string) ref.Val {
	m := firstMember(o.b, o.at)
	o.work.finds++
	for m.value > 0 && !m.is(name) {
		end := skip(o.b, m.value)
		if end < 0 {
			return types.WrapErr(errNoJSON)
		}
		if o.work.finds > freeFinds && !o.work.pass(memberCost+len(m.name)+end-m.value) {
			return types.WrapErr(errTooLong)
		}
		m = nextMember(o.b, end)
	}
	switch {
	case m.value < 0:
		return types.WrapErr(errNoJSON)
	case m.value == 0:
		return nil
	}
	v, _ := o.valueAt(m.value, o.depth)
	return v
}

// all returns the object with all of its values, or an error.
func (o *object) all() ref.Val {
	if o.whole != nil {
		return o.whole
	}
	values := map[string]ref.Val{}
	m := firstMember(o.b, o.at)
	for m.value > 0 {
		name := m.name
		if m.escaped {
			name = unescaped(name)
		}
		if o.read++; o.read > maxElements {
			return types.WrapErr(errTooMany)
		}
		if _, there := values[string(name)]; !there {
			v, _ := o.valueAt(m.value, o.depth)
			if types.IsError(v) {
				return v
			}
			values[string(name)] = v
		}
		end, err := o.skip(m.value)
		if err != nil {
			return err
		}
		m = nextMember(o.b, end)
	}
	if m.value < 0 {
		return types.WrapErr(errNoJSON)
	}
	o.whole = types.DefaultTypeAdapter.NativeToValue(values)
	return o.whole
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val { return got(o, key) }

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val { return contains(o, key) }

// Iterator implements traits.Iterable.
func (o *object) Iterator() traits.Iterator {
	all := o.all()
	if m, ok := all.(traits.Mapper); ok {
		return m.Iterator()
	}
	o.failed = fmt.Errorf("%v", all)
	return types.NewStringStringMap(types.DefaultTypeAdapter, nil).Iterator()
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val {
	all := o.all()
	if m, ok := all.(traits.Mapper); ok {
		return m.Size()
	}
	return all
}

// Equal implements ref.Val.
func (o *object) Equal(other ref.Val) ref.Val {
	if _, ok := other.(traits.Mapper); !ok {
		return types.False
	}
	all := o.all()
	if types.IsError(all) {
		return all
	}
	if theirs, ok := other.(*object); ok {
		if other = theirs.all(); types.IsError(other) {
			return other
		}
	}
	return all.Equal(other)
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	all := o.all()
	if types.IsError(all) {
		return nil, fmt.Errorf("%v", all)
	}
	return all.ConvertToNative(t)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	all := o.all()
	if types.IsError(all) {
		return all
	}
	return all.ConvertToType(t)
}

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o }

// headers are those of a record as a map of cel-go. Of a name with several values the first one
// counts.
type headers struct{ block []byte }

// Find implements traits.Mapper.
func (h *headers) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	if v, ok := protocol.Header(h.block).Get(string(name)); ok {
		return types.String(v), true
	}
	return nil, false
}

// all returns the headers as a map.
func (h *headers) all() traits.Mapper {
	values := map[string]string{}
	for name, value := range protocol.Header(h.block).All() {
		if _, there := values[string(name)]; !there {
			values[string(name)] = string(value)
		}
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, values)
}

// Get implements traits.Indexer.
func (h *headers) Get(key ref.Val) ref.Val { return got(h, key) }

// Contains implements traits.Container.
func (h *headers) Contains(key ref.Val) ref.Val { return contains(h, key) }

// Iterator implements traits.Iterable.
func (h *headers) Iterator() traits.Iterator { return h.all().Iterator() }

// Size implements traits.Sizer.
func (h *headers) Size() ref.Val { return h.all().Size() }

// Equal implements ref.Val.
func (h *headers) Equal(other ref.Val) ref.Val { return h.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (h *headers) ConvertToNative(t reflect.Type) (any, error) { return h.all().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (h *headers) ConvertToType(t ref.Type) ref.Val { return h.all().ConvertToType(t) }

// Type implements ref.Val.
func (*headers) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (h *headers) Value() any { return h.all().Value() }

// finder is a map that finds values by name.
type finder interface {
	Find(key ref.Val) (ref.Val, bool)
}

func got(m finder, key ref.Val) ref.Val {
	v, ok := m.Find(key)
	switch {
	case ok || types.IsError(v):
		return v
	default:
		return types.ValOrErr(v, "no such key: %v", key)
	}
}

func contains(m finder, key ref.Val) ref.Val {
	v, ok := m.Find(key)
	if types.IsError(v) {
		return v
	}
	return types.Bool(ok)
}
