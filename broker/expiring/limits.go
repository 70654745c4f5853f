package expiring

import (
	"time"

	"github.com/carillon-mq/carillon/broker/removal"
)

const (
	// often is the period of looks at all shards while messages of one can expire and, for lively,
	// after a change of the cluster; rarely is the one otherwise. hurry is the pause while a shard
	// has more.
	often  = 100 * time.Millisecond
	rarely = time.Second
	lively = 5 * time.Second
	hurry  = 5 * time.Millisecond
	// failedRest is the pause before a shard is looked at again of which something could not be
	// read, or whose index of subjects is being made.
	failedRest = time.Second
	// dueAtOnce is how many records with a TTL are removed at once, and agedAtOnce how many by age:
	// those are neighbours, mostly.
	dueAtOnce  = removal.ItemSpans
	agedAtOnce = 1 << 16
	// markedAtOnce is how many are removed at once if each may need a marker.
	markedAtOnce = 1 << 10
	// scanBytes is how much of a log is read at once for records that are too old.
	scanBytes = 16 << 20
	// slack is how far a record's time may be in the future and still count, as in package log.
	slack = 2 * time.Second
	// markerRest is the pause before a marker is published again that did not replace its record.
	// After markerTries the record is removed without one: its Topic refuses it, for example
	// because it is full.
	markerRest  = 2 * time.Second
	markerTries = 5
	// firedAtOnce and firedBytes are how many messages of schedules are published at once: a part of
	// what a sender's outbox takes. firedRest is the longest pause before one is published again that
	// was not kept: it is never given up.
	firedAtOnce = 1024
	firedBytes  = 8 << 20
	firedRest   = 5 * time.Minute
)
