// Package alerting tells of the alerts of Views by Kubernetes events, for triggers that ask for it.
// It reads the Topics that the alerts are appended to, as any client does, and writes events about
// the View.
//
//	limits.go    every bound, with its reason
//	alert.go     Alert: a message of a trigger's output Topic, and its text for people; pure
//	limiter.go   which alerts have an event of their own, and what is said of the others; pure
//	trouble.go   why alerts can't be read, and when people are told; pure
//	wanted.go    which alerts are read, and the user that may read them; pure
//	scanner.go   what a server may send before nats.go sees it; pure
//	connect.go   how the operator connects to a Broker
//	follower.go  follower: one turn of a Broker, and where the next one goes on
//	service.go   Service: whose turn it is, and what the manifests ask for
//
// A Broker is read in turns of some milliseconds, each with a connection of its own. A connection
// that stays would bring an alert sooner. But it would need bounds for all Brokers at once, and
// rules for what happens when Secrets, certificates, mirrors and Views change meanwhile.
//
// # Invariants
//
//	E1  Events are for people, and the Topic is the record: an alert may have no event. Reading
//	    begins with what is appended after the first turn of a Source, so a new operator tells
//	    nothing old, and nothing of what came while there was none. From then on, what is not read
//	    is counted. A Topic that is made again meanwhile is read from its beginning.
//	E2  A View writes a bounded number of events, and so do those of one Broker, and all of them
//	    together. What has no event of its own is in a count, which is told when the bounds allow it.
//	E3  What others wrote is quoted and cut. A message that is no alert of the trigger in its subject
//	    is passed over.
//	E4  The operator has another key at each Broker: who runs one can't use it at another.
//	E5  All that a broker may have the operator hold, and do, is bounded: the bytes of a turn, its
//	    time, the turns at once and in a second. It holds up no other Broker for longer than a turn.
//	E6  Nothing ends reading for good. What can't be read now is tried again, and what never can be
//	    is passed over and counted.
//	E7  What can't be read is in a condition of the View, which comes and changes seldom, and goes at
//	    once.
//
// Between turns, each View has its counts and an offset for each shard, and no alert. Events are
// written one by one, and not by the recorder of client-go: that takes two events of one reason
// about one object as a series, and keeps the text of the first.
//
// If the process dies, counts that were not told are lost.
package alerting
