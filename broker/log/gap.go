package log

import "math"

// GapSpan is how many offsets one batch of Gap spans at most.
const GapSpan = math.MaxUint32

// Gap returns a batch without records, for AppendBatch: it spans the offsets from from up to and
// without next, at most GapSpan of them. at is its time.
func Gap(epoch, from, next uint64, at int64, extensions []Extension) Batch {
	size := batchHeader
	for _, e := range extensions {
		size += extensionHeader + len(e.Data)
	}
	b := make([]byte, batchHeader, size)
	b = appendExtensions(b, extensions)
	sealBatch(b, head{flags: flagSparse, span: next - from, epoch: epoch, base: from, first: at, last: at, extended: size - batchHeader})
	return Batch(b)
}
