package world

import (
	"io"
	"slices"
	"time"
)

// Options select the faults of a world, the promises that are judged, and the kinds of its Topics.
type Options struct {
	Trace io.Writer // where the transcript goes; nil: nowhere
	// Faults are the names of the faults that strike; nil: all, except the classes that are left
	// out.
	Faults []string
	// Found enables classes of faults, and the judgement of their promises, that are left out by
	// default.
	Found []Class
	// Kinds are the names of the kinds that Topics may have; nil: any.
	Kinds []string
	// Readers are extras that every Topic of the world has: "subscription"; "snapshot"; "flood", a
	// publisher that wants no answers; "silence", a long time without publishes in which leaders
	// forget their senders; "decay", damage to each replica's disk in turn at the end; "hour", a
	// volume that is rolled back by an hour; "moving", clients that connect to another broker again
	// and again.
	Readers []string
	// For is how long faults strike; 0: the seed says.
	For time.Duration
}

// Class is a class of faults, or of broken promises. Each class has found a fault of some version
// of the product.
type Class string

// The classes, each with the fault of the product that it found. A class leaves knownFaults when
// its fault is fixed.
const (
	// LostCopies: a shard's folder is gone when its broker starts. Found: a broker that was elected
	// before it could report the loss led without its copy, and its followers truncated theirs.
	LostCopies Class = "lost copies"
	// RolledBack: a volume is as it was some seconds ago when its broker starts. The broker can't
	// detect that, and vouches for its copy. It leads if no other member of the set is present, and
	// its followers truncate their copies. Elections prefer the other members, so records are lost
	// in about 1 of 50 worlds. docs/architecture.md says what is promised.
	RolledBack Class = "rolled back volumes"
	// FailedSyncs: a sync fails, and later ones succeed with a clean page cache. Found: after a
	// restart the broker vouched for records that the failed sync had not written.
	FailedSyncs Class = "failed syncs"
	// JumpingClocks: a broker's clock jumps by a year. Found: records kept that time, so that
	// message ids were duplicates for a year or never, and records expired at once.
	JumpingClocks Class = "jumping clocks"
	// StaleAnswers: refusals by condition and reads of the last message are judged across clients
	// on both sides of a partition. Found: a deposed leader that did not know of its successor
	// answered from its own log.
	StaleAnswers Class = "stale answers"
	// RestoredEtcd: etcd is restored from a backup that is some seconds old, repeatedly. Found: an
	// epoch was granted twice; an in-sync set was believed whose members lacked later acknowledged
	// records.
	RestoredEtcd Class = "restored etcd"
	// HungDisks: a disk hangs for up to 40 s. In some worlds this is the only fault, and each Topic
	// must be served all the time. Found: a leader whose disk hung was not replaced.
	HungDisks Class = "hung disks"
	// FlippedBits: bits flip beside kills and power cuts. Found: a flipped bit in the last round
	// truncated the whole round; one in meta.json emptied the log.
	FlippedBits Class = "flipped bits"
	// FailedWrites: some writes to segments fail, and later ones succeed. In some worlds another
	// broker dies at that moment. Found: a follower of a Topic in Memory stayed in the in-sync set
	// after it failed to write records that it had confirmed.
	FailedWrites Class = "failed writes"
	// LostEnds: the last segment of a log is gone when its broker starts. Found: a leader lacked
	// the end of its log without knowing it; a segment that was lost after its first round was
	// taken for one that was never written.
	LostEnds Class = "lost ends"
)

// onlyNamed is the class of faults that strike only where Options.Faults names them. Each serves
// one mutation.
const onlyNamed Class = "only where it is named"

// knownFaults are the classes that are left out by default, because the faults that they find are
// not fixed yet.
var knownFaults = []Class{RolledBack}

func (o *Options) leaveOut(c Class) bool {
	return c == onlyNamed || slices.Contains(knownFaults, c) && !slices.Contains(o.Found, c)
}
