package viewing

import "time"

// Bounds of views on one broker, each with the reason for its value.
const (
	// maxParts is how many views of led shards are kept here, each shard of each view counted, and
	// maxOwners how many views this broker is the owner of. Each has a goroutine. Further ones wait,
	// and their status says so.
	maxParts  = 1024
	maxOwners = 256
	// turnBytes and turnTime are how much of a log one part reads before others have their turn. Who
	// asks the part waits for as long.
	turnBytes = 1 << 20
	turnTime  = 5 * time.Millisecond
	// turnRecords is how many records are added between two looks at the clock.
	turnRecords = 64
	// chunkBytes is the size of a checkpoint's pieces in the state log, as of snapshots of cursors:
	// followers take each as one batch.
	chunkBytes = 512 << 10
	// maxCheckpoint is more than a checkpoint has (package view: 128 MiB, and a head).
	maxCheckpoint = 128<<20 + 64
	// encodesAtOnce bounds the checkpoints that are in memory as bytes, written or read.
	encodesAtOnce = 2
	// saveEvery and saveRecords are after how much time, or how many records, a part that has changed
	// writes a checkpoint: the next leader reads as much again. savePace is how many bytes a second a
	// part writes for that at most: the largest have some 40 MB, and each goes to all replicas.
	saveEvery   = 10 * time.Second
	saveRecords = 500_000
	savePace    = 512 << 10
	// heldBytes is how much of a state log a checkpoint may hold back that it does not take itself.
	// With more it is written again, so that the log can be trimmed.
	heldBytes = 4 << 20
	// waitingBytes is how much of a state log is held for views that there is no room for, or that
	// this version can't keep. It has room for a large checkpoint. With more they begin anew once
	// there is room, since a log without end would fill the disk.
	waitingBytes = 64 << 20
	// readBytes is one read of a state log.
	readBytes = 256 << 10
	// freshFor is for how long parts of a shard that begin share what one of them has found in the
	// state log.
	freshFor = 5 * time.Second
	// advanceLeast and advanceMost bound how often a shard without records is advanced: each
	// advance is a record of the state log. Between them it is half of the view's idle time.
	advanceLeast = time.Second
	advanceMost  = time.Minute
	// rest is how long a part without records waits until it looks whether it is idle, or has to write
	// a checkpoint.
	rest = time.Second
	// firstRetry and lastRetry bound the pause after a failure, which doubles with each one in a row.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

const (
	// often is the period in which led shards and views are looked for, while there are some and, for
	// lively, after a change of the cluster; rarely is the one otherwise.
	often  = 100 * time.Millisecond
	rarely = time.Second
	lively = 5 * time.Second
)

const (
	// maxQuestions is how many questions of other brokers are answered at once: those of all owners
	// to some shards. Further ones are not answered, and asked again. answersAtOnce is how many of the
	// answers are in memory: a page has 1 MiB, and present values may have 40 MB.
	maxQuestions  = 1024
	answersAtOnce = 8
	// answerWithin is how long an answer may take. A broker that dies does not answer.
	answerWithin = 15 * time.Second
	// whyBytes is more than a question about trouble has. Larger ones are not looked into before they
	// have a place.
	whyBytes = 4 << 10
	// leaderAgain is how often a question looks whether its broker still leads the shard.
	leaderAgain = 200 * time.Millisecond
	// pieceHead is more than the head of a piece takes.
	pieceHead = 512
	// bookAgain is how often a question looks whether there is room for its answer.
	bookAgain = 50 * time.Millisecond
	// maxAssemblies and maxAssembled bound the questions and answers of which some pieces have come.
	maxAssemblies = 256
	maxAssembled  = 256 << 20
	// lastsAtOnce is how many subjects a question is about, and lastsBytes how many bytes of
	// messages an answer has, beside the last one.
	lastsAtOnce = 512
	lastsBytes  = 512 << 10
	// maxMessage is the size of a result or an alert: the values of 32 functions, and a key.
	maxMessage = 256 << 10
	// decodedTimes is how much more memory windows take than their encoding, if a broker of an earlier
	// version does not say it.
	decodedTimes = 12
	// lastBytes is what an owner takes in memory to know the last message of a subject, without the
	// subject.
	lastBytes = 120
	// keyBytes is how long the tokens of a key may be: a line of the client protocol has 4 KiB, and
	// subjects of more than some 1,000 bytes are rare.
	keyBytes = 1024
	// appendsAtOnce is how many messages an owner has under way: as many as fill the round trip to
	// another broker.
	appendsAtOnce = 64
	// maxTrouble is how many bytes of a reason a report has, or an answer to a client.
	maxTrouble = 500
	// earliest and latest bound the watermarks that a report has: the others stand for none.
	earliest = -6_000_000_000 * int64(time.Second)
	latest   = -earliest
	// shareTimes is by how much shares are less than if each had an equal one of what is reserved for
	// them: 1 + 1/2 + … + 1/(maxParts+maxOwners) is 7.73 (budget, B4).
	shareTimes = 8
	// rowsAtOnce is how many results an owner deals with together.
	rowsAtOnce = 1000
	// pageBytes is how large a page is that an owner asks for, at most, and leastPage at least: all
	// owners together have a sixth of the broker's memory for views in pages that are under way.
	pageBytes = 1 << 20
	leastPage = 64 << 10
	// asksAtOnce is how many shards an owner asks at once.
	asksAtOnce = 8
	// maxLasts is of how many subjects an owner remembers the last message. Beyond it all are
	// forgotten, and read again: some 20 MB. So they are before if the owner has more than its share
	// of the broker's memory for views, and there is no more.
	maxLasts = 100_000
	// ownerRest is the pause of an owner that has found nothing new, and ownerShardRest that for each
	// shard, if more.
	ownerRest      = 500 * time.Millisecond
	ownerShardRest = 2 * time.Millisecond
	// ackEvery is how often shards are told again what is done: a new leader may not know.
	ackEvery = 10 * time.Second
	// presentEvery is the pause between two judgements of present values. If the shards take long to
	// tell their values, the pause is presentShare times as long as that. It is never longer than
	// presentMost, so an alert comes at most a minute later.
	presentEvery = 2 * time.Second
	presentShare = 10
	presentMost  = time.Minute
	// getEvery is for how long present values are told again that a client has asked for, and why
	// there were none: those of all shards may have some 40 MB each.
	getEvery = 500 * time.Millisecond
	// getTries is how often they are asked for while shards change, and getPause the first pause
	// between two times, which doubles. Together the pauses take less than a second: a change of
	// leaders may take longer, but clients that ask for values of other Views wait for this place.
	getTries = 5
	getPause = 50 * time.Millisecond
	// getMost is how many values a page has, and getBytes how many bytes, about: an answer goes to the
	// client as one message.
	getMost  = 1000
	getBytes = 256 << 10
	// alertsAgain is how often an owner without windows reads the last alerts again: an earlier owner
	// may have appended one late.
	alertsAgain = time.Minute
)
