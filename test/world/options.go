package world

import (
	"io"
	"slices"
	"time"
)

// Options change what a world is judged by, and what strikes.
type Options struct {
	Trace io.Writer // where the transcript goes; nil: nowhere
	// Faults are the names of those that strike; nil: all but those of the classes that are left out.
	Faults []string
	// Found has classes of faults strike, and promises be judged, that are left out otherwise.
	Found []Class
	// For is how long faults strike; 0: the seed says.
	For time.Duration
}

// Class is a class of faults, or of broken promises, that is known to be found in the product as it is.
type Class string

// The classes that are left out unless Options say otherwise, each with what it finds. A class goes from knownFaults to the worlds of
// every seed when what it finds is mended.
const (
	// LostCopies: a shard's folder is gone, or rolled back to an earlier state, when its broker starts.
	// A broker that was named leader before it could report that leads without its copy, and others follow suit.
	LostCopies Class = "lost copies"
	// FailedSyncs: a sync fails, and later ones succeed with a clean page cache.
	// What it was to write is vouched for after a restart.
	FailedSyncs Class = "failed syncs"
	// JumpingClocks: a broker's clock jumps by a year.
	// Its records keep the time, so that ids are duplicates for a year, and records are too young to go or gone at once.
	JumpingClocks Class = "jumping clocks"
	// StaleAnswers: refusals by condition and the last message are judged across clients on both sides of a partition.
	// A leader that was deposed and doesn't know it answers by what it has.
	StaleAnswers Class = "stale answers"
	// RestoredEtcd: etcd is restored from a backup.
	// Epochs are granted twice.
	RestoredEtcd Class = "restored etcd"
	// HungDisks: a disk hangs for minutes.
	// A leader whose disk hangs is not replaced.
	HungDisks Class = "hung disks"
	// FlippedBits: bits flip beside kills and power cuts.
	// One in the last round cuts the whole round.
	FlippedBits Class = "flipped bits"
)

// knownFaults are the classes that are left out.
var knownFaults = []Class{LostCopies, FailedSyncs, JumpingClocks, StaleAnswers, RestoredEtcd, HungDisks, FlippedBits}

func (o *Options) leaveOut(c Class) bool {
	return slices.Contains(knownFaults, c) && !slices.Contains(o.Found, c)
}
