// Package activity counts the clients of this broker that read by Subscriptions: their active
// members.
//
// The leader of a Subscription sees the reply subjects of pull requests, and a client may use many.
// So each broker counts the clients that are connected to it, and the operator and the command line
// add up the counts of all brokers. Brokers exchange nothing about clients, so a rolling change
// needs no rule for it.
//
// Invariants:
//
//	A1  A client counts from a pull until that ends by its own terms, for Kept at least and for
//	    Longest at most, and for Kept after each ack. The last pull decides. Repeated pulls are
//	    looked at once a second, unless the client counts for longer than Kept.
//	A2  A client whose connection has ended does not count.
//	A3  Of a consumer with a deliver subject, the clients count that are subscribed to exactly that
//	    subject, in its queue group.
//	A4  A Subscription that no client of this broker reads takes no memory here, and neither does a
//	    name without a Subscription. At most mostClients are remembered; beyond that counts are lower
//	    bounds.
//
// An ack takes 60 to 90 ns more, and so does a pull that is not looked at (BenchmarkAcked). A
// record that is pulled alone and acknowledged takes 1,900 ns in package subscription.
//
// All of it is in memory: with the process its connections end.
package activity
