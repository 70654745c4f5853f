// Package activity counts the clients of this broker that read by Subscriptions: their active
// members.
//
// The leader of a Subscription sees the reply subjects of pull requests, of which a client may have
// many, and not the clients. So each broker counts those that are connected to it, and whoever asks
// adds up the counts of all brokers: a client is connected to one broker. No broker tells another
// one of its clients, so brokers of earlier versions need to know nothing of it.
//
// Invariants:
//
//	A1  A client counts from a pull until that ends by its own terms, for Kept at least and for
//	    Longest at most, and for Kept after each ack. Repeated pulls are looked at once a second.
//	A2  A client whose connection has ended does not count.
//	A3  Of a consumer with a deliver subject, the clients count that are subscribed to exactly that
//	    subject, in its queue group.
//	A4  A Subscription that no client of this broker reads takes no memory here, and neither does a
//	    name without a Subscription. At most mostClients are remembered; beyond that counts are lower
//	    bounds.
//
// All of it is in memory: with the process its connections end.
package activity
