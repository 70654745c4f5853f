package live

import "time"

const (
	// noticeBytes is about the size at which a notice of many members ends: far below the largest
	// message, and large enough that 100,000 members take some hundred notices.
	noticeBytes = 64 << 10
	// openingsAtOnce and openingsWaiting bound the requests that are opened, and that wait for it.
	// To open one takes a millisecond, and 0.1 s if all of 100,000 subjects match.
	openingsAtOnce  = 2
	openingsWaiting = 1024
	openingsBytes   = 4 << 20
	// maxAnswers bounds the requests of one read that are taken, since what is refused is answered
	// while the connection's reader waits.
	maxAnswers = 64
	// syncTimeout bounds how long a change of attributes waits for linked brokers: as long as a link
	// may be silent before it counts as suspect, and far less than clients wait for an answer.
	syncTimeout = 500 * time.Millisecond
	// requestBytes is about what a request takes that waits, beside its text.
	requestBytes = 256
)
