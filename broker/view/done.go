package view

import (
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/aggregate"
)

// done says which windows are in the outputs for good, with their alerts: those before a position,
// but for sessions that are kept: they have ended in one shard, and go on in another.
type done struct {
	upTo Position
	keep map[string]int64 // beginnings of kept sessions, by key
}

// has reports whether a window is done.
func (d *done) has(w aggregate.Window) bool {
	if w.Position().Compare(d.upTo) >= 0 {
		return false
	}
	start, kept := d.keep[w.Key]
	return !kept || w.End <= start
}

// newer reports whether more is done than by o. At the same position sessions are only ever closed.
func (d *done) newer(o *done) bool {
	if c := d.upTo.Compare(o.upTo); c != 0 {
		return c > 0
	}
	return len(d.keep) < len(o.keep)
}

// memoryOf returns what times by key take in memory, about.
func memoryOf(starts map[string]int64) (bytes int) {
	for key := range starts {
		bytes += startBytes + len(key)
	}
	return bytes
}

func (d *done) equal(o *done) bool { return d.upTo == o.upTo && maps.Equal(d.keep, o.keep) }

func (d *done) append(b []byte) []byte { return appendStarts(appendPosition(b, d.upTo), d.keep) }

func decodeDone(d *aggregate.Decoder) done {
	return done{decodePosition(d), decodeStarts(d)}
}

// appendStarts appends times by key.
func appendStarts(b []byte, starts map[string]int64) []byte {
	b = appendNumber(b, uint64(len(starts)))
	for _, key := range slices.Sorted(maps.Keys(starts)) {
		b = appendTime(appendText(b, key), starts[key])
	}
	return b
}

func decodeStarts(d *aggregate.Decoder) map[string]int64 {
	n := d.Uvarint()
	if n == 0 || !d.OK() {
		return nil
	}
	starts := map[string]int64{} // it grows with what is there
	last := ""
	for i := uint64(0); i < n && d.OK(); i++ {
		key := string(d.Take(d.Uvarint()))
		d.Must(i == 0 || key > last)
		starts[key], last = d.Varint(), key
	}
	return starts
}
