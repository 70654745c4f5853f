package bench

import "encoding/binary"

// A record says who wrote it and how many that one wrote before; the last of its words makes the
// exclusive or of all of them the run's key. So a reader that checks it has touched every byte.
const (
	publisherShift = 48
	recordSpread   = 0x9e3779b97f4a7c15
)

func putRecord(p []byte, publisher int, sequence, key uint64) {
	word := uint64(publisher)<<publisherShift | sequence
	sum := key
	for ; len(p) > 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, word)
		sum ^= word
		word = word*recordSpread + 1
	}
	binary.LittleEndian.PutUint64(p, sum)
}

func readRecord(p []byte, key uint64) (publisher int, sequence uint64, ok bool) {
	word := binary.LittleEndian.Uint64(p)
	var sum uint64
	for ; len(p) >= 8; p = p[8:] {
		sum ^= binary.LittleEndian.Uint64(p)
	}
	return int(word >> publisherShift), word & (1<<publisherShift - 1), sum == key
}

// prefixed is the size of a record with its length.
func prefixed(size int) int {
	if size < 0x80 {
		return 1 + size
	}
	return 2 + size // maxLogRecordBytes has two
}

// A logPass is the account of one reader's way through the whole log. Answers may come in any
// order.
type logPass struct {
	key           uint64
	size          int
	counts, sums  []uint64
	wrong         int64 // records that nobody wrote
	outOfOrder    int64 // within an answer
	lastPublisher int
	lastSequence  uint64
}

func newLogPass(key uint64, size, publishers int) *logPass {
	return &logPass{key: key, size: size, counts: make([]uint64, publishers), sums: make([]uint64, publishers)}
}

// take checks every record of an answer.
func (p *logPass) take(records []byte) {
	prefix := prefixed(p.size) - p.size
	p.lastPublisher = -1
	for step := prefix + p.size; len(records) >= step; records = records[step:] {
		publisher, sequence, ok := readRecord(records[prefix:step], p.key)
		if !ok || publisher >= len(p.counts) {
			p.wrong++
			continue
		}
		if publisher == p.lastPublisher && sequence != p.lastSequence+1 {
			p.outOfOrder++
		}
		p.lastPublisher, p.lastSequence = publisher, sequence
		p.counts[publisher]++
		p.sums[publisher] += sequence
	}
}

// compare holds a pass over the whole log to what was written: of each publisher the first so many.
func (p *logPass) compare(written []uint64) (d Deliveries) {
	d.Unexpected, d.OutOfOrder = p.wrong, p.outOfOrder
	for i, n := range written {
		got := p.counts[i]
		d.Expected += int64(n)
		d.Received += int64(min(got, n))
		switch {
		case got < n:
			d.Lost += int64(n - got)
		case got > n:
			d.Duplicated += int64(got - n)
		case n > 0 && p.sums[i] != n*(n-1)/2:
			d.Unexpected++ // as many as were written, but not those
		}
	}
	return d
}
