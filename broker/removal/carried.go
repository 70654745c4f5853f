package removal

// Carried are removals that batches of a data log carry, in the order of the log, from when a batch
// is to be appended until it is on all in-sync replicas. Its owner's lock guards it. The zero
// Carried has none.
type Carried struct {
	spans []Span
	ends  []carriedEnd
}

// carriedEnd is a batch, and how many spans it has.
type carriedEnd struct {
	base, offset uint64 // of the batch, and behind it
	spans        int
}

// Add adds what a batch removes, by its first offset and the one behind it.
func (c *Carried) Add(base, end uint64, spans []Span) {
	c.spans = append(c.spans, spans...)
	c.ends = append(c.ends, carriedEnd{base, end, len(spans)})
}

// Undo takes back the last Add: the batch was not appended.
func (c *Carried) Undo() {
	last := len(c.ends) - 1
	c.spans = c.spans[:len(c.spans)-c.ends[last].spans]
	c.ends = c.ends[:last]
}

// Next returns the first offset of the first batch and the one behind it, or 0 if there is none.
func (c *Carried) Next() (base, end uint64) {
	if len(c.ends) == 0 {
		return 0, 0
	}
	return c.ends[0].base, c.ends[0].offset
}

// Take removes those of batches that end at an offset or before, and calls f with each span.
func (c *Carried) Take(end uint64, f func(Span)) {
	batches, spans := 0, 0
	for batches < len(c.ends) && c.ends[batches].offset <= end {
		spans += c.ends[batches].spans
		batches++
	}
	for _, s := range c.spans[:spans] {
		f(s)
	}
	c.spans = c.spans[:copy(c.spans, c.spans[spans:])]
	c.ends = c.ends[:copy(c.ends, c.ends[batches:])]
}
