package scheduling

import "time"

const (
	// maxPattern is the longest pattern, in bytes: every second, minute and hour, written out.
	maxPattern = 1024
	// leastInterval is the shortest interval, as with nats-server.
	leastInterval = time.Second
	// farthest is within how many years a cron pattern must have a time: a 29th of February comes
	// within eight, and nats-server looks five ahead.
	farthest = 5
)
