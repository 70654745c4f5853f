package quota

import "time"

const (
	// Interval is the time between two reports. Ten links of a broker carry 20 small frames a second
	// then, and a portion follows the demand within two seconds.
	Interval = 500 * time.Millisecond
	// heardFor is how long a report holds: two of them may be late or lost.
	heardFor = 3 * Interval
	// floorPart is the part of an equal portion that a broker has without a demand. What all of them
	// have so is lost for a user at one broker: it has 97 % of its limit in a cluster of three, and
	// never less than 95 %. A client that begins where its user has only the floor has a twentieth
	// of an equal portion until the others have heard of it, for two intervals.
	floorPart = 20
	// MaxUsers and MaxReport bound a report, in users and bytes: the busiest ones of a broker that
	// serves thousands above their floor at a time. Links take frames of 320 KiB beside a payload.
	MaxUsers  = 4096
	MaxReport = 256 << 10
	// MaxGuests bounds the brokers that divide limits without being registered. In a rolling change
	// it is one at a time.
	MaxGuests = 16
	// maxName is the size of the longest name of a user (package identity).
	maxName = 256
)
