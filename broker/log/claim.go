package log

import (
	"bytes"
	"hash/crc32"
	"math/bits"
)

// The header of a damaged batch announces its epoch. If the manifest is lost, that shows of which
// epoch damaged records are, and where an epoch begins whose first batches are damaged.
//
//  1. The header counts if it has the offset that is due and ends at the offset at which reading
//     resumes.
//  2. If the checksum is right for a batch that differs in one bit, it is that batch, and its epoch
//     is known (damage.epoch). Otherwise more is wrong, and the header may be wrong, too.
//  3. In that case its epoch counts only if the next readable batch is of that epoch. So a sector
//     that the disk returned as it was before a truncation, with a batch of an earlier epoch,
//     proves nothing.

// mostProven bounds the batches, in bytes, of which rule 2 is believed: any other damage seems to
// be one wrong bit with a probability of one in 8,000, and one in a million for batches of 500 B.
const mostProven = 64 << 10

// claim notes the epoch that the damaged batch at s.pos announces, and returns it if it is known;
// 0: it is not. Reading resumes at the position until, with the offset next.
func (c *scanner) claim(until int64, next uint64) (epoch uint64, err error) {
	n := until - c.s.pos
	if n < batchHeader || next <= c.s.end {
		return 0, nil
	}
	data, err := c.r.window(c.s.pos, int(n))
	if err != nil || int64(len(data)) < n {
		return 0, err
	}
	epoch, announced, proven := announcedEpoch(data, c.s.end, next)
	if announced {
		c.claims = append(c.claims, Epoch{Epoch: epoch, Start: c.s.end})
	}
	if !proven {
		return 0, nil
	}
	return epoch, nil
}

// announcedEpoch returns the epoch that a damaged batch announces, which is due with the offsets
// from base up to next, and whether it is known.
func announcedEpoch(batch []byte, base, next uint64) (epoch uint64, announced, proven bool) {
	b, one := damagedHeader(batch)
	announced = b[8] == kindBatch && b.Base() == base && b.Span() == next-base
	return b.Epoch(), announced, announced && one && len(batch) <= mostProven
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

// damagedHeader returns the header of a damaged batch, and whether at most one bit of the batch is
// wrong. Then it corrects that bit.
func damagedHeader(batch []byte) (header Batch, one bool) {
	header = bytes.Clone(batch[:batchHeader])
	bit, one := wrongBit(batch)
	if one && bit >= 0 && bit/8 < batchHeader {
		header[bit/8] ^= 1 << (bit % 8)
	}
	return header, one
}

// wrongBit returns the only bit of a frame that differs from what its checksum is of; -1: it is in
// the checksum or the length. one is false if more bits differ.
//
// CRC-32C is linear: the difference of two checksums depends on the bits that differ only. It is
// computed for one bit in each place, from the last byte to the first.
func wrongBit(f []byte) (bit int, one bool) {
	differs := crc32.Checksum(f[8:], castagnoli) ^ le.Uint32(f[4:])
	if bits.OnesCount32(differs) <= 1 {
		return -1, true
	}
	var sums [8]uint32 // of a byte with that bit, and of the zeros behind it
	for i := range sums {
		sums[i] = castagnoli[1<<i]
	}
	for at := len(f) - 1; at >= 8; at-- {
		for i, sum := range sums {
			if sum == differs {
				return at*8 + i, true
			}
			sums[i] = castagnoli[byte(sum)] ^ sum>>8
		}
	}
	return -1, false
}
