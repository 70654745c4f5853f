// Package live serves live queries: clients ask for subjects by their attributes, and get the
// members, each change of them, and the messages that are published on them, in one inbox.
//
//	server.go   requests, and the queries that are open
//	opening.go  a query's members, piece by piece
//	resume.go   what a client knows of its query, as a token
//	ahead.go    clients that know more than this broker
//	turn.go     changes of attributes and of rights
//	hold.go     changes that wait for messages on links
//	spread.go   changes on their way to linked brokers
//	content.go  conditions on messages
//	notice.go   what clients are sent beside messages
//	limits.go   every bound, with its reason
//
// A query is known to the broker of its client alone. That broker has the attributes of all
// subjects (package attribute), and knows which queries a change affects (package query). Messages
// of the members come through a session.Feed, so the interest in them is known to linked brokers as
// that of other subscriptions is.
//
// # Invariants
//
//	V1  In an inbox a subject is announced before its first message. After it has left, nothing of
//	    it comes.
//	V2  When Flush returns, all changes that the Store has taken have reached the feeds, but those
//	    that are held (V8), and the interest in new members is on its way to linked brokers.
//	V3  Whoever changes attributes through this broker has its answer after all linked brokers have
//	    done the same (Spread). So a message that is published here after the answer reaches the
//	    queries of all of them. A broker that does not do so within syncTimeout is not waited for
//	    until it answers again, one for which too much is queued is not told, and neither is one of
//	    an earlier version: their queries get the first messages a moment later.
//	V4  A query ends with its client's subscription. It shows and delivers what the client's user
//	    may subscribe to, and nothing else: the feed takes a lost right away at once, and the notice
//	    follows. It ends if the user may not open queries any more.
//	V5  No request, and no client that does not read, holds up changes: requests are compiled and
//	    opened on a bounded number of goroutines, subjects are judged for them without mu, and
//	    notices wait in the client's outbox, whose bound closes the connection. After a request its
//	    goroutine rests for as long as the request took, and longer on a busy machine, but for no
//	    more than a tenth of a second (work.Modest). Contents are quick conditions, which the loops
//	    judge; they and their memory are bounded.
//	V6  A client that resumes with a token knows all changes of its query up to the token's revision,
//	    and may know later ones. So notices have a token only if everything up to it was sent. If
//	    the token is of another history of etcd, of other rights or another condition, or if
//	    changes since then are not known, the client gets all members instead of the difference.
//	V7  Locks are taken in this order: mu; then the hub's index or the Store; then incoming. The
//	    index and the Store call note and touch, which take incoming alone, and so do loops.
//	V8  A change takes a member away behind what was published before it, through the broker that
//	    made it: etcd may be faster than the link of that broker. So a change of a member is held
//	    until that broker has told of it, or until all linked brokers have answered a ping. Both
//	    come behind the messages. It is about a round trip mostly, and twice syncTimeout at most:
//	    the rest of one round of pings, and the next. It ends before that if a broker tells of a
//	    later change of the subject, of which queries are to know (V3), and for all changes if
//	    more than maxHeld wait. Changes of a subject stay in their order, other subjects do not
//	    wait, and no token goes past a held change. After a gap in the watch, a restore of etcd or
//	    in another history of it nothing is held.
//
// When the process dies, its clients connect to other brokers and open their queries again. With
// the token that they were told last they get the difference.
//
// A token can't tell that etcd was restored if only attributes were lost by that, and no client of
// etcd has raised its generation. Brokers that have noticed give no difference since what they knew
// before; one that starts later may.
//
// Rejected: queries that travel on links, and are judged by the broker of each publisher. Each
// broker would hold and judge the queries of all. The interest in members says the same, and is
// there already. Rejected: queries in etcd, as CQBS has them. A client that comes and goes would
// write there.
package live
