package query

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/filter"
)

// view is a Set as filters see it.
type view struct {
	set attribute.Set
	all ref.Val // of cel-go; nil: nobody has asked

	name  string // that was asked for last: many queries ask for the same one
	found filter.Operand
}

// Find implements filter.Attributes.
func (v *view) Find(name string) filter.Operand {
	if name == "" || name != v.name {
		v.name, v.found = name, operand(v.set[name])
	}
	return v.found
}

func operand(v attribute.Value) filter.Operand {
	switch v.Kind() {
	case attribute.StringKind:
		return filter.TextOperand(v.Text())
	case attribute.NumberKind:
		return filter.NumberOperand(v.Number())
	case attribute.BoolKind:
		return filter.BoolOperand(v.Bool())
	case attribute.ListKind:
		return filter.ListOperand()
	}
	return filter.Operand{}
}

// Has implements filter.Attributes.
func (v *view) Has(name string, element filter.Operand) (has, ok bool) {
	list := v.set[name]
	if list.Kind() != attribute.ListKind {
		return false, false
	}
	for _, e := range list.List() {
		if operand(e).Equals(element) {
			return true, true
		}
	}
	return false, true
}

// Map implements filter.Attributes.
func (v *view) Map() ref.Val {
	if v.all == nil {
		all := make(map[string]any, len(v.set))
		for name, value := range v.set {
			all[name] = native(value)
		}
		v.all = types.NewStringInterfaceMap(types.DefaultTypeAdapter, all)
	}
	return v.all
}

// native returns a value as cel-go takes it.
func native(v attribute.Value) any {
	switch v.Kind() {
	case attribute.StringKind:
		return v.Text()
	case attribute.NumberKind:
		return v.Number()
	case attribute.BoolKind:
		return v.Bool()
	}
	list := make([]any, len(v.List()))
	for i, e := range v.List() {
		list[i] = native(e)
	}
	return list
}
