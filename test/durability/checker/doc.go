// Package checker holds a server to what it acknowledged. Publishers send values that nobody else
// sends and note what they were told; consumers acknowledge and note which acknowledgements were
// answered. Whatever happens to the server meanwhile, at the end the stream is read from front to
// back and judged:
//
//	J1  What was acknowledged is there: none is lost, at the front, in the middle or at the end.
//	J2  What is there was published, with the content it was published with, and once, also if
//	    its publisher sent it, with an id, until it was acknowledged.
//	J3  The values that one publisher sent on one connection stand in the order in which it sent
//	    them.
//	J4  Sequences are dense, and an acknowledged sequence holds the acknowledged value.
//	J5  A message whose acknowledgement was answered is never delivered again to that consumer.
//	J6  A consumer gets every message that is there, and what it got at a sequence stays there.
//	J7  What was refused for good is not there.
//
// What got no answer may be there or not.
//
// History and Judge do no I/O, so that they are tested by histories with faults in them. The load
// speaks to any server of the NATS protocol that has JetStream, through the Go client that
// applications use.
package checker
