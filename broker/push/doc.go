// Package push sends the records of Subscriptions to HTTP endpoints (coordination.Push), from the
// broker that leads their shard.
//
// A Subscription hands records to its endpoint while that is open, as package subscription says.
// They are in the endpoint's hand until they are settled: a 2xx acknowledges, and a record that
// failed as often as the Subscription permits is given up. What an endpoint has in its hand, and
// when it begins what, is decided by pure state machines (hand, circuit); endpoint carries that
// out, and Service bounds all endpoints together.
//
// An endpoint has a goroutine for each request under way, and a timer only while something is due.
// So 10,000 idle Subscriptions have no goroutine. A client that pulls in a loop would be simpler,
// but it has a goroutine per Subscription, and its retries know nothing of the order of a subject.
//
// Files, each using those before it: limits, circuit, answer, hand, event, address, secrets,
// handshake, client, endpoint, service, stats.
//
// Invariants:
//
//	P1  A subject has one request under way at most for each Subscription, and a record is not sent
//	    before each earlier one of its subject was acknowledged, given up, or is not pending any
//	    more.
//	P2  A record is acknowledged after a 2xx to a request with it, and never else.
//	P3  An attempt is counted before it is sent, except for probes. Probes, failures while the
//	    circuit is open, and answers that ask to wait use up no attempt, and the first failure that
//	    would be a record's last opens the circuit: an outage must not give up records. Only the
//	    probes of a single subject count after a long time, so that one record is no end (hand).
//	P4  An endpoint takes from others at most a share of what is left of the broker's bytes and
//	    requests. Some of both is for endpoints that have nothing.
//	P5  What is read of an answer is bounded in bytes and in time. No redirect is followed.
//	P6  The address of each connection is judged after its name was resolved (addresses).
//
// Forget and Close break requests under way off. What was forgotten keeps its line until its
// request has ended, so P1 holds for requests of one endpoint.
//
// When the process dies, or another broker leads, requests under way have no effect here. The next
// leader hands the records over again that were in a hand: what the endpoint had accepted without
// an ack on the disk it gets once more. Their attempts were counted when they were sent.
//
// Lock order: the Subscription's, endpoint.mu, Service.mu. The Source is called with none of them
// held.
package push
