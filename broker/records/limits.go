package records

import "time"

const (
	// scanBytes is how much one search for a record of a subject reads: about half a second.
	scanBytes = 256 << 20
	// readBytes is how much of it is read at once.
	readBytes = 256 << 10
	// lastTries is how often a last record is looked for that compaction, or the next message of its
	// subject, removes meanwhile, within lastTime. With a busy reader beside a busy publisher three
	// were too few.
	lastTries = 32
	// infoTries is how often Info begins anew because records were removed meanwhile.
	infoTries = 4
	// lastTime bounds the question to the index for the last record that matches a pattern: clients
	// wait 5 s, and reading the log instead takes time, too.
	lastTime = 2 * time.Second
	// lastPatience is how long a condition waits for an index that is being opened. Later messages of
	// the shard wait meanwhile.
	lastPatience = 100 * time.Millisecond
	// ReadAtOnce is how much of a log is read for them while publishers wait: some 20 ms.
	ReadAtOnce = 16 << 20
	// judgeTime is how long one judged read looks at records: others take their turns in between, and
	// a client that is gone has no more judged for it. It is long compared with the way of an answer.
	judgeTime = 20 * time.Millisecond
	// The clock is looked at after lookAfter bytes of records, where each record counts as lookCost
	// more: some 50 µs. If a condition is not quick, it is looked at after each record, since judging
	// a small one takes some microseconds, or milliseconds.
	lookAfter = 64 << 10
	lookCost  = 64
)
