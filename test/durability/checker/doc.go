// Package checker compares what a server acknowledged with what it keeps and delivers. Publishers
// send unique values and record the answers. Consumers acknowledge and record which
// acknowledgements were answered. Whatever faults the server has meanwhile, the stream is read at
// the end from its first to its last message and judged:
//
//	J1  No acknowledged message is lost, at the front, in the middle or at the end.
//	J2  Each message in the stream was published with its content, and is stored once, even if its
//	    publisher repeated it, with an id, until it was acknowledged.
//	J3  The values that one publisher sent on one connection stand in the order in which it sent
//	    them.
//	J4  Sequences are dense, and an acknowledged sequence holds the acknowledged value.
//	J5  A message whose acknowledgement was answered is never delivered again to that consumer.
//	J6  A consumer gets every message in the stream, and a message that it got keeps its sequence.
//	J7  A message that was refused for good is not in the stream.
//
// A message without an answer may be in the stream or not.
//
// History and Judge do no I/O, so that they are tested by histories with faults in them. The load
// speaks to any server of the NATS protocol that has JetStream, through the Go client that
// applications use.
package checker
