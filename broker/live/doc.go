// Package live serves live queries: clients ask for subjects by their attributes, and get the
// members, each change of them, and the messages that are published on them, in one inbox.
//
//	server.go   requests, and the queries that are open
//	opening.go  a query's members, piece by piece
//	turn.go     changes of attributes and of rights
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
//	V2  When Flush returns, all changes that the Store has taken have reached the feeds, and the
//	    interest in new members is on its way to linked brokers.
//	V3  Whoever changes attributes through this broker has its answer after all linked brokers have
//	    done the same (Spread). So a message that is published here after the answer reaches the
//	    queries of all of them. A broker that does not do so within syncTimeout is not waited for:
//	    its queries get the first messages a moment later.
//	V4  A query ends with its client's subscription. It shows and delivers what the client's user
//	    may subscribe to, and nothing else: the feed takes a lost right away at once, and the notice
//	    follows.
//	V5  No request, and no client that does not read, holds up changes: requests are compiled and
//	    opened on a bounded number of goroutines, and notices wait in the client's outbox, whose
//	    bound closes the connection.
//
// When the process dies, its clients connect to other brokers and open their queries again. With
// the revision that they were told last they get the difference.
//
// Rejected: queries that travel on links, and are judged by the broker of each publisher. Each
// broker would hold and judge the queries of all. The interest in members says the same, and is
// there already. Rejected: queries in etcd, as CQBS has them. A client that comes and goes would
// write there.
package live
