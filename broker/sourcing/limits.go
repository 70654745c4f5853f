package sourcing

import "time"

const (
	// maxSources is how many sources the shards have at once that a broker leads. Each has a
	// goroutine and a question that waits at its origin. Further ones wait, and say so: those that
	// are looked at last, which is by chance.
	maxSources = 1024
	// maxStreams is how many streams the sources of a shard have, with the shards of Topics: half of
	// what its progress has room for, so that none is forgotten.
	maxStreams = 128
	// smallBytes is for how many bytes of records a question asks. All sources of a broker together
	// may have 64 MiB of them under way. Where the next record is larger, the answer says so, and has
	// none.
	smallBytes = 64 << 10
	// largeBytes is for how many a source asks that is behind, and largeAtOnce how many do so at
	// once: 32 MiB. Others go on with small questions meanwhile.
	largeBytes  = 1 << 20
	largeAtOnce = 32
	// heavyUnits is how much of such larger records all sources of a broker ask for at once, in
	// heavyUnit: 32 MiB, which is four messages of 8 MiB. A larger one comes alone.
	heavyUnits = 32
	heavyUnit  = 1 << 20
	// answersAtOnce is how many answers a broker has in memory for others, from when they are read
	// until they are on a link. They wait there while a link has more to send than publishers may give
	// it, one behind the other, so no link is closed for what sources ask.
	answersAtOnce = 8
	// spill is how much of an answer may follow what a link carries as a payload: a record of the
	// largest size has its subject, and its copy the header, beside it. A link takes 64 KiB. headBytes
	// is more than an answer has beside records.
	spill     = 60 << 10
	headBytes = 4 << 10
	// maxQuestions is how many questions an origin's broker answers at once, also those that wait
	// for records: what all sources of four brokers ask. Further ones are refused, and asked again.
	maxQuestions = 4096
	// readsAtOnce is how many questions of this broker to itself read at once.
	readsAtOnce = 8
	// maxEpochs is how many epochs the records of an answer have at most: they are in its head.
	maxEpochs = 32
	// scanBytes is how much of a log a question reads in vain before it is answered, so that the
	// source learns how far it has come.
	scanBytes = 16 << 20
	// maxSkipped is how many sequences a mirror passes over at most between two messages: in memory,
	// 256 Mi take 1.5 MiB in the set of removed offsets, and as much again when they are counted.
	maxSkipped = 256 << 20
	// maxStart is with how high a sequence a mirror begins at most. Until its log starts there, it has
	// a batch for each 4 Gi of them.
	maxStart = 1 << 40
	// maxQuestion is more than the largest question. A spec has 256 KiB at most. It contains the
	// filters and the transforms of a source, and a question may have both twice.
	maxQuestion = 768 << 10
)

const (
	// patience is how long a question waits for records. It is also how often an idle source hears
	// of its origin.
	patience = 5 * time.Second
	// answerWithin is how long after that an answer may take. A broker that dies does not answer.
	answerWithin = 5 * time.Second
	// often is the period in which Run looks for shards and sources that it doesn't know yet, while
	// it copies and, for lively, after a change of the cluster; rarely is the one otherwise.
	often  = 100 * time.Millisecond
	rarely = time.Second
	lively = 5 * time.Second
	// noteLooks is after how many of these the state logs say how far sources have come. A new leader
	// reads what was copied since, and retention leaves the last batch until then.
	noteLooks = 5
	// firstRest and longestRest bound the pause after a failure, which doubles with each one in a
	// row. Each is shortened at random by up to a half, so that sources don't ask at once.
	firstRest   = 100 * time.Millisecond
	longestRest = 5 * time.Second
	// roomRest is the pause while the shard has to do something before it takes a record, for
	// example to look up a subject.
	roomRest = 5 * time.Millisecond
)
