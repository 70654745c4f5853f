package removing

import "github.com/carillon-mq/carillon/broker/log"

// Displaced is what a message removes when it is kept: older ones of its subject, or all.
type Displaced struct {
	Offsets []uint64  // of its subject, the oldest first; see Pattern
	Last    [1]uint64 // room for Offsets
	Own     uint64    // how many of the records that it carries
	All     bool
	Pattern bool  // Offsets are of all subjects that match its own
	Full    bool  // its subject has as many records as it may have
	Refusal error // why it is not kept, unless it was kept before
}

// Any reports whether anything is removed.
func (d *Displaced) Any() bool { return d.All || d.Own > 0 || len(d.Offsets) > 0 }

// Remove adds what is removed to a batch whose records are appended at end under the epoch. The
// records of the message have the offsets from next on. Readers see the log from start on, which
// counts with All only.
func (d *Displaced) Remove(b *Batch, data *log.Log, epoch, start, end, next uint64) {
	if d.All {
		b.AddFrom(data, start, end)
		b.Add(epoch, end, next)
	}
	for _, offset := range d.Offsets {
		if offset < end {
			b.AddFrom(data, offset, offset+1)
		} else {
			b.Add(epoch, offset, offset+1)
		}
	}
	b.Add(epoch, next, next+d.Own)
}

// Subjects knows which records each subject has.
type Subjects interface {
	RemovedAll(next uint64)
	Removed(subject []byte, offsets []uint64)
	RolledUp(pattern []byte, offsets []uint64, next uint64)
	NoteRun(subject []byte, next, last uint64)
}

// Note notes what is removed, and the records of the message, with the offsets from next up to
// last. It overwrites Offsets.
func (d *Displaced) Note(of Subjects, subject []byte, next, last uint64) {
	if d.All {
		of.RemovedAll(next)
	}
	if d.Pattern {
		of.RolledUp(subject, d.Offsets, next)
	} else {
		of.Removed(subject, d.Offsets)
	}
	of.NoteRun(subject, next, last)
	for offset := next; offset < next+d.Own; offset++ {
		d.Last[0] = offset
		of.Removed(subject, d.Last[:])
	}
}
