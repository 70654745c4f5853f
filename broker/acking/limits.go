package acking

const (
	// MaxUnanswered is how many messages may wait for their answer, at about 100 bytes each, before
	// connections are not read. At twice as many, messages from links are refused.
	MaxUnanswered = 256 << 10
	// answersPerSend bounds the memory in which the answers of one round are built: 160 KiB, which
	// are still in the processor's cache when they are sent.
	answersPerSend = 1 << 10
	// keptAnswers is how many answers a Pending has memory for when it is used again: those of a
	// full batch.
	keptAnswers = 4096
)
