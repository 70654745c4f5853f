package attribute

import (
	"iter"
	"slices"
	"strings"
)

// order holds subjects in their order, in pieces of a bounded size.
type order struct{ chunks [][]string }

// find returns where a subject is, or would be.
func (o *order) find(subject string) (at, in int, found bool) {
	at, found = slices.BinarySearchFunc(o.chunks, subject, func(c []string, s string) int { return strings.Compare(c[0], s) })
	if !found {
		at = max(at-1, 0)
	}
	if at == len(o.chunks) {
		return at, 0, false
	}
	in, found = slices.BinarySearch(o.chunks[at], subject)
	return at, in, found
}

func (o *order) insert(subject string) {
	at, in, found := o.find(subject)
	switch {
	case found:
		return
	case at == len(o.chunks):
		o.chunks = append(o.chunks, []string{subject})
		return
	}
	c := slices.Insert(o.chunks[at], in, subject)
	o.chunks[at] = c
	if len(c) > chunk {
		half := slices.Clone(c[chunk/2:])
		clear(c[chunk/2:])
		o.chunks[at] = c[: chunk/2 : chunk/2]
		o.chunks = slices.Insert(o.chunks, at+1, half)
	}
}

func (o *order) remove(subject string) {
	at, in, found := o.find(subject)
	if !found {
		return
	}
	if o.chunks[at] = slices.Delete(o.chunks[at], in, in+1); len(o.chunks[at]) == 0 {
		o.chunks = slices.Delete(o.chunks, at, at+1)
	}
}

// after yields the subjects from one on; inclusive: and that one.
func (o *order) after(subject string, inclusive bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		at, in, found := o.find(subject)
		if found && !inclusive {
			in++
		}
		for ; at < len(o.chunks); at, in = at+1, 0 {
			for _, s := range o.chunks[at][in:] {
				if !yield(s) {
					return
				}
			}
		}
	}
}
