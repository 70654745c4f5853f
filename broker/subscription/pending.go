package subscription

import "slices"

// delivery is one pending record.
type delivery struct {
	offset, sequence uint64
	deadline         int64 // milliseconds since 1970
	count            uint32
	queued           bool // in the redelivery queue
	removed          bool
}

// pendings holds the pending records, sorted by offset. New ones are appended, and most are removed
// at the front, so it is a window over a slice. A removal elsewhere leaves a gap; push compacts
// when half of the slice is gaps.
type pendings struct {
	list []delivery
	head int
	live int
}

// first returns the record with the lowest offset, or nil.
func (p *pendings) first() *delivery {
	if p.live == 0 {
		return nil
	}
	return &p.list[p.head]
}

func (p *pendings) find(offset uint64) *delivery {
	if i, ok := p.search(offset); ok && !p.list[i].removed {
		return &p.list[i]
	}
	return nil
}

func (p *pendings) search(offset uint64) (int, bool) {
	i, ok := slices.BinarySearchFunc(p.list[p.head:], offset, func(d delivery, offset uint64) int {
		switch {
		case d.offset < offset:
			return -1
		case d.offset > offset:
			return 1
		}
		return 0
	})
	return p.head + i, ok
}

// push adds a record whose offset is above all others.
func (p *pendings) push(d delivery) {
	if len(p.list) == cap(p.list) && p.live <= len(p.list)/2 {
		p.compact()
	}
	p.list = append(p.list, d)
	p.live++
}

// remove removes a record that find returned.
func (p *pendings) remove(d *delivery) {
	d.removed = true
	p.live--
	for p.head < len(p.list) && p.list[p.head].removed {
		p.head++
	}
	if p.live == 0 {
		p.list, p.head = p.list[:0], 0
	} else if gaps := len(p.list) - p.head - p.live; gaps > p.live+64 {
		p.compact()
	}
}

// compact closes the gaps. It invalidates pointers into the list.
func (p *pendings) compact() {
	n := 0
	for i := p.head; i < len(p.list); i++ {
		if !p.list[i].removed {
			p.list[n] = p.list[i]
			n++
		}
	}
	p.list, p.head = p.list[:n], 0
}
