// Package expiring removes the records of led shards that have expired: by the TTL that their
// publisher gave them, or by the age of their Topic where records may have TTLs. If the Topic asks
// for markers, the last record of a subject is replaced by one, which expires, too.
//
//	rules.go     Rules: what a Topic says of it, and when a message expires
//	expiring.go  Run: looks at the shards, and removes what has expired
//	aged.go      which records are too old
//	marking.go   which records a marker replaces
//	firing.go    publishes the messages of schedules that are due
//	limits.go    every bound, with its reason
//
// The leader decides, as with every removal (package removal): replicas never expire a record by
// themselves. When a record expires is a fact of the record from its publish on; its batch carries
// it, and a removing.Keeper knows it.
//
// # Invariants
//
//	X1  Nothing expires while the time is in doubt.
//	X2  A marker is published as any message is, with the condition that the expired record is the
//	    last one of its subject. So a record that is published meanwhile is not marked as gone.
//	X3  A marker removes the expired record with its own batch, as a rollup does: both happen or
//	    neither. So no crash leaves a subject without either, or with both.
//	X4  A marker is not repeated: once there is one, X2 fails for the next one.
//	X5  Markers, and messages that say the same, are not replaced by markers when they expire.
//
// A scheduled message "expires" when it is due: then the message of the schedule is published into
// the stream (package scheduling).
//
//	X6  The batch of that message removes the schedule, or says when it is due next, as X3. So the
//	    message of a time is kept once, whatever crashes.
//	X7  It is kept only if the schedule is still the last message of its subject, and still due at
//	    that time. So a retry, or the next leader, publishes nothing twice.
//	X8  What says so is in front of the message, and is not kept. A client can't say it.
//
// Two other orders of X3 were rejected. Removal first: a crash behind it loses the marker, and who
// watches the subject believes that it has the record. Marker first, removal later: until then the
// subject has both, and a crash between them needs a second look at each marker.
//
// By age a Topic loses whole segments otherwise (package retention). Where records may have TTLs,
// those that never expire have to stay, so each record is read once when it is too old.
//
// The package keeps nothing but its place in each shard. If the process dies, the next leader
// begins at the start of the log, and with the expiries that its Keeper loads.
package expiring
