package log

import (
	"bytes"
	"hash/crc32"
)

// The header of a damaged batch announces its epoch. Where the first batches of an epoch are
// damaged, that shows where the epoch begins, if neither a footer nor the manifest does.
//
//  1. The header counts if it has the offset that is due and ends at the offset at which reading
//     resumes.
//  2. If the checksum is right for a header that differs in one bit, it is that header.
//     Otherwise the damage is elsewhere in the batch.
//  3. Its epoch counts only if the next readable batch is of that epoch. So a sector that the disk
//     returned as it was before a truncation, with a batch of an earlier epoch, proves nothing.

// claim notes the epoch that the damaged batch at s.pos announces. Reading resumes at the position
// until, with the offset next.
func (c *scanner) claim(until int64, next uint64) error {
	n := until - c.s.pos
	if n < batchHeader || next <= c.s.end {
		return nil
	}
	data, err := c.r.window(c.s.pos, int(n))
	if err != nil || int64(len(data)) < n {
		return err
	}
	if b := damagedHeader(data); b[8] == kindBatch && b.Base() == c.s.end && b.Span() == next-c.s.end {
		c.claims = append(c.claims, Epoch{Epoch: b.Epoch(), Start: b.Base()})
	}
	return nil
}

// settleClaims adds the epoch of the next readable batch where the first damaged batch before it
// announces it.
func (c *scanner) settleClaims(epoch uint64) {
	for _, e := range c.claims {
		if e.Epoch == epoch {
			c.s.beginsAt(epoch, e.Start)
			break
		}
	}
	c.claims = c.claims[:0]
}

// damagedHeader returns the header of a damaged batch. One wrong bit of its span, epoch and base
// offset is corrected by the checksum.
func damagedHeader(batch []byte) Batch {
	const first, last = 12, 32 // of the bytes
	b := bytes.Clone(batch[:batchHeader])
	sum, rest := le.Uint32(b[4:]), batch[batchHeader:]
	right := func() bool {
		return crc32.Update(crc32.Checksum(b[8:], castagnoli), castagnoli, rest) == sum
	}
	for bit := first * 8; bit < last*8; bit++ {
		b[bit/8] ^= 1 << (bit % 8)
		if right() {
			return b
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return b
}
