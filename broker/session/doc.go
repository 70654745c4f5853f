// Package session serves the clients of one node: connections, what they publish and
// subscribe to, and how messages reach them.
//
// A Hub holds the interest index, the connections, and a few sender loops, about one per core.
// Each connection belongs to one loop. The goroutine that reads a connection parses what it
// read, matches every message against the index, and gives each loop one reference to the
// message with the list of that loop's receivers; it never touches a receiver itself. The loop
// encodes and writes.
//
// Invariants:
//
//   - S1 What a message reaches is fixed when it is matched, under the index' read lock, and is in
//     the queues of the loops before that lock is released. So whoever holds the write lock
//     knows that everything matched before is queued, and nothing else is.
//   - S2 A loop's queue is first in, first out, and everything that is said to a client passes
//     through its loop's queue: messages, PONG, -ERR, INFO. Hence a PONG follows whatever was
//     queued before its PING, and the end of a subscription follows its last message.
//   - S3 Nobody waits for a client. A loop writes what the socket takes; a connection whose
//     socket is full, or that is not a plain socket, gets a writer goroutine until it has caught
//     up. What waits is bounded per connection and per node.
//   - S4 Publishers wait, with no lock held, while a loop or a link they publish to is behind by
//     more than its bound. Loops never wait, so this always ends.
//   - S5 A subscription's state has one owner each: the index lock for where it stands, its
//     connection's loop for whether it has ended. Counting deliveries (UNSUB with a maximum, queue
//     picks, no-echo) happens at the match.
//   - S6 A Taker (a Topic, an API) gets each message that it offers to take, on the broker to which the
//     publisher is connected, after S1 and before the loops are served by the same batch: so a
//     PONG says that it has what came before the PING. What a node itself sends is for no Taker; what came over a link
//     only if another broker's Taker sent it.
//
// Nothing here survives the process: clients reconnect and subscribe again.
package session
