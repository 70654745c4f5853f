package live

import "time"

const (
	// noticeBytes is about the size at which a notice of many members ends: far below the largest
	// message, and large enough that 100,000 members take some hundred notices.
	noticeBytes = 64 << 10
	// openingsAtOnce and openingsWaiting bound the requests that are opened, and that wait for it.
	// To open one takes a millisecond, 0.1 s if all of 100,000 subjects match, and some seconds if
	// its condition is as costly as one may be. Then there is a rest for as long, and up to four times
	// as long on a busy machine (work.Modest): 1,024 usual ones take 1 s, or 2.6 s.
	openingsAtOnce  = 2
	openingsWaiting = 1024
	openingsBytes   = 4 << 20
	// aheadTimeout is how long a request to resume may wait until this broker knows what the client
	// knows: far longer than a watch takes, and short beside what clients wait for an answer.
	// maxAhead and aheadBytes bound those that wait; others get all members. Users share both, so that
	// one that invents tokens takes no place of others.
	aheadTimeout = 2 * time.Second
	// aheadEvery is how often a broker looks meanwhile how far its watch has come.
	aheadEvery = 10 * time.Millisecond
	maxAhead   = 1024
	aheadBytes = 4 << 20
	// maxToken is more than a token to resume with has: five numbers.
	maxToken = 128
	// maxList and listBytes bound a page of a list of queries.
	maxList   = 256
	listBytes = 256 << 10
	// maxAnswers bounds the requests of one read that are taken, since what is refused is answered
	// while the connection's reader waits.
	maxAnswers = 64
	// syncTimeout bounds how long a change of attributes waits for linked brokers, and how long a
	// round of pings takes. A change of members that the watch brings waits for two rounds at most. It
	// is as long as a link may be silent before it counts as suspect, and far less than clients wait
	// for an answer.
	syncTimeout = 500 * time.Millisecond
	// madeTimeout is how long a change of a member that the watch has brought waits for the broker
	// that has made it to tell of it, before links are asked: a few times what both differ by. It
	// bounds how often links are asked, too.
	madeTimeout = 5 * time.Millisecond
	// maxHeld bounds the changes that wait for messages on links: what a cluster changes in
	// syncTimeout at its highest rate. Beyond it all are applied at once.
	maxHeld = 1024
	// maxRequest is more than the largest conditions and subjects take as JSON. maxSubject is the
	// size of a subject with attributes: an inbox or a pattern of members need not be longer.
	// Open queries keep both.
	maxRequest = 32 << 10
	maxSubject = 1 << 10
	// requestBytes is about what a request takes that waits, beside its text.
	requestBytes = 256
	// contentBytes and ownedContentBytes bound what the conditions on messages take in memory: those
	// of a broker, and those of one owner. One of 60 bytes takes 5 KiB. Equal ones count each.
	contentBytes      = 64 << 20
	ownedContentBytes = 8 << 20
)
