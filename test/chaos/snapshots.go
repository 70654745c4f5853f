package chaos

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// Held is one shard's part of a snapshot, as it was read.
type Held struct {
	Stream      string
	Start, High uint64            // the records from Start up to, not including, High
	Records     map[uint64][]byte // payloads by offset
}

// JudgeHeld checks one reading of a part of a snapshot:
//
//  1. It has all messages that were acknowledged before the snapshot was taken; acked is the
//     highest sequence of these.
//  2. It has a record at each offset, and none elsewhere.
func JudgeHeld(h *Held, acked uint64) (wrong []string) {
	if acked >= h.High {
		wrong = append(wrong, fmt.Sprintf("a snapshot of %s ends before %d, and %d was acknowledged before it was taken", h.Stream, h.High, acked))
	}
	for offset := h.Start; offset < h.High; offset++ {
		if _, ok := h.Records[offset]; !ok {
			return append(wrong, fmt.Sprintf("a snapshot of %s from %d to %d has no record %d", h.Stream, h.Start, h.High, offset))
		}
	}
	if n := uint64(len(h.Records)); n != h.High-h.Start {
		wrong = append(wrong, fmt.Sprintf("a snapshot of %s from %d to %d has %d records", h.Stream, h.Start, h.High, n))
	}
	return wrong
}

// JudgeAgain compares a reading with the same offsets at a later time: in another reading of the
// same snapshot, or in the stream at its end, whose oldest records may have been removed. A record
// of a snapshot was safe, so it must stay.
func JudgeAgain(h *Held, later map[uint64][]byte, from uint64) (wrong []string) {
	for _, offset := range slices.Sorted(maps.Keys(h.Records)) {
		if offset < from {
			continue
		}
		is, ok := later[offset]
		switch {
		case !ok:
			return append(wrong, fmt.Sprintf("record %d of %s was in a snapshot, and is not there any more", offset, h.Stream))
		case !bytes.Equal(is, h.Records[offset]):
			return append(wrong, fmt.Sprintf("record %d of %s was %q in a snapshot, and is %q", offset, h.Stream, short(h.Records[offset]), short(is)))
		}
	}
	return wrong
}

func short(payload []byte) []byte { return payload[:min(len(payload), 80)] }

// byOffset returns the payloads of a stream, and its first offset.
func byOffset(entries []checker.Entry) (payloads map[uint64][]byte, from uint64) {
	payloads = make(map[uint64][]byte, len(entries))
	for _, e := range entries {
		payloads[e.Seq] = e.Payload
	}
	if len(entries) > 0 {
		from = entries[0].Seq
	}
	return payloads, from
}
