package republish

const (
	// waiting is how many messages of a stream wait, at 40 bytes each: as many as may be
	// uncommitted (package ahead). waitingInAll is that of all streams of a broker, 40 MiB. Newer
	// messages beyond are not published again.
	waiting      = 256 << 10
	waitingInAll = 1 << 20
	// atOnce is how many messages of a stream are published before other streams have their turn.
	atOnce = 256
	// readBytes is how much of a log is read at once, and keptBytes the largest buffer for what is
	// published that a worker keeps.
	readBytes = 256 << 10
	keptBytes = 1 << 20
	// workers is how many streams are published at the same time: encoding is the work, and the
	// hub has a loop for each core anyway. All wait while one link is over its bounds, as publishers
	// of this broker do: one slow link holds up what all streams publish again.
	workers = 2
)
