package world

import (
	"io"
	"slices"
	"time"
)

// Options change what a world is judged by, and what strikes.
type Options struct {
	Trace io.Writer // where the transcript goes; nil: nowhere
	// Faults are the names of those that strike; nil: all but those of the classes that are left
	// out.
	Faults []string
	// Found has classes of faults strike, and promises be judged, that are left out otherwise.
	Found []Class
	// Kinds are the names of the kinds that Topics may have; nil: any.
	Kinds []string
	// Readers has all Topics have these: "subscription", "snapshot", "flood" (a publisher that
	// wants no answers), "silence" (nobody publishes for long after everything else, and nobody who
	// did is remembered), "decay" (in the end each replica's disk is damaged in turn), "hour" (an
	// hour passes, and a volume is rolled back to its beginning).
	Readers []string
	// For is how long faults strike; 0: the seed says.
	For time.Duration
}

// Class is a class of faults, or of broken promises, that is known to be found in the product as it
// is.
type Class string

// The classes. Each was found in some version of the product, by what its comment says; when that
// was mended it was taken out of knownFaults.
const (
	// LostCopies: a shard's folder is gone when its broker starts. Found: a broker that was named
	// leader before it could report that led without its copy, and others followed suit.
	LostCopies Class = "lost copies"
	// RolledBack: a volume is as it was some seconds ago when its broker starts. Found: the broker
	// can't know, and vouches. It leads if no other member of the set is there, and the others
	// follow suit; placement prefers the others (trusted), so something is lost in about 1 of 50
	// worlds. docs/architecture.md says what is promised.
	RolledBack Class = "rolled back volumes"
	// FailedSyncs: a sync fails, and later ones succeed with a clean page cache.
	// Found: what it was to write was vouched for after a restart.
	FailedSyncs Class = "failed syncs"
	// JumpingClocks: a broker's clock jumps by a year. Found: its records kept the time, so that
	// ids were duplicates for a year, or were none, and records went at once.
	JumpingClocks Class = "jumping clocks"
	// StaleAnswers: refusals by condition and the last message are judged across clients on both
	// sides of a partition. Found: a leader that was deposed and didn't know it answered by what it
	// had.
	StaleAnswers Class = "stale answers"
	// RestoredEtcd: etcd is restored from a backup of some seconds ago, again and again.
	// Found: epochs were granted twice; a set of members that had lost what was acknowledged since
	// was believed.
	RestoredEtcd Class = "restored etcd"
	// HungDisks: a disk hangs for up to 40 s; in some worlds nothing else strikes, and each Topic
	// is to be answered for. Found: a leader whose disk hung was not replaced.
	HungDisks Class = "hung disks"
	// FlippedBits: bits flip beside kills and power cuts.
	// Found: one in the last round cut the whole round, one in meta.json emptied the log.
	FlippedBits Class = "flipped bits"
	// FailedWrites: some writes to segments fail, and later ones succeed. In some worlds another
	// broker dies at that moment. Found: a follower of a Topic in Memory, which had confirmed what
	// it then could not write, stayed in the set with a shorter log.
	FailedWrites Class = "failed writes"
	// LostEnds: the last segment of a log is gone when its broker starts. Found: a leader that
	// lacked its end without knowing it; and a segment that was gone after its first round was
	// taken for one that was never written.
	LostEnds Class = "lost ends"
)

// onlyNamed is of faults that strike only where they are named: they are there for one mutation.
const onlyNamed Class = "only where it is named"

// knownFaults are the classes that are left out unless Options say otherwise, since what they find
// is not mended yet.
var knownFaults = []Class{RolledBack}

func (o *Options) leaveOut(c Class) bool {
	return c == onlyNamed || slices.Contains(knownFaults, c) && !slices.Contains(o.Found, c)
}
