// Package scheduling is when scheduled messages are due, what they may ask for, and what is
// published then, as nats-server has it. It is pure.
//
//	schedule.go  Schedule: a time, an interval or a cron pattern, and the next time of it
//	cron.go      cron patterns of six fields
//	request.go   Request: what a message asks for, and why it is refused
//	result.go    the message that is published when a schedule is due
//	limits.go    every bound, with its reason
//
// # Invariants
//
//	W1  Next is a function of its arguments and of the time zone database, so the next leader comes
//	    to the same times.
//	W2  A time that passed while nothing was published is made up for once, however often it passed.
//	W3  Around the change of a clock, a time of day that does not exist is skipped, and one that
//	    exists twice is met twice.
//
// The database of time zones is part of the program, since the image has none. Rejected: the local
// zone (Local), which may differ between brokers. Rejected: a library for cron patterns. The one
// that nats-server has changed is kept no more, and the patterns are a hundred lines.
//
// The process's death has no effect: there is no state.
package scheduling
