// Package session serves the clients of one broker: their connections, what they publish and
// subscribe to, and the delivery of messages to them.
//
// A Hub holds the interest index, the connections, and a few sender loops, about one per core. Each
// connection belongs to one loop. A connection's reader goroutine parses its input, matches each
// message against the index, and queues one reference to the message per loop, with the list of
// that loop's receivers; it never touches a receiver. The loop encodes and writes.
//
// Invariants:
//
//	S1  A message's receivers are fixed when it is matched, under the read lock of the index, and
//	    the message is in the queues of their loops before that lock is released. So a holder of the
//	    write lock knows that everything matched before is queued, and nothing else.
//	S2  A loop's queue is FIFO, and everything sent to a client passes through its loop's queue:
//	    messages, PONG, -ERR, INFO. So a PONG follows everything queued before its PING, and the end
//	    of a subscription follows its last message.
//	S3  A loop never waits for a client. It writes what the socket accepts; a connection whose
//	    socket is full, or that is not a plain socket, gets a writer goroutine until it has caught
//	    up. The memory that pending bytes hold is bounded per connection and per broker. Whatever
//	    shares a slab counts the whole slab.
//	S4  A loop or link with more than its bound queued is behind; a loop is so until half of its
//	    bound is served. Whoever sent it messages waits for room, holding no lock, before sending
//	    more: for those that its own messages went to, and for no others. A Taker answers without
//	    waiting, so the publisher of what it took waits for the loops that an answer goes to. Loops
//	    never wait, so this ends.
//	S5  Each part of a subscription's state has one owner: the index lock for its place in the
//	    index, its connection's loop for whether it has ended. Deliveries are counted at the match
//	    (UNSUB with a maximum, picks of queue groups, no-echo).
//	S6  A Taker (a Topic, an API) gets each message on the subjects that it offers, on the
//	    publisher's broker, after S1 and before the same batch serves the loops. So a PONG says that
//	    the Taker has everything sent before the PING. Messages that this broker sends itself reach
//	    no Taker; messages from a link do only if another broker's Taker sent them.
//	S7  Where clients may use TLS, a connection begins with its reader alone: it sends INFO, or
//	    waits for the handshake that comes before INFO, decides by the client's first byte whether
//	    the connection uses TLS, and completes the handshake. Until then nothing is sent through
//	    the loop. Handshakes compute in turns, and none has its turn while it waits for a client.
//	S8  After the handshake a tls.Conn reads and writes memory only, so S3 holds: the loop encrypts
//	    while less than fullChunk of ciphertext waits for the socket, and what waits beyond that
//	    is plaintext. One goroutine at a time encrypts: the loop, or the writer goroutine while
//	    the connection is parked. The reader's tls.Conn may add ciphertext at any time; then the
//	    loop sends it.
//
//	S9  Where clients must authenticate, nothing but CONNECT is read before that. Then each publish
//	    and each subscription is checked against the present rights of its user, and so is each
//	    delivery to a subscription whose pattern has denied subjects in it. When Recheck returns,
//	    nobody publishes, or is matched, by a right that it has lost, or by a credential that is
//	    removed from its user.
//	S10 On the port for WebSocket the upgrade comes before INFO, and its answer is all that is sent
//	    through the loop until then. The loop makes frames of what it has encoded for a connection
//	    before it writes or parks it, so everything behind the loop, TLS included, moves bytes. A
//	    close frame follows the last message, and nothing follows that.
//	S11 More than 64 KiB of an operation are read only while its slab is claimed (input.go). Claimed
//	    slabs add up to the profile's budget at most. A reader with a claim waits for its client
//	    only, and gives the claim back when the operation is complete or reading ends. A reader
//	    that waits for a claim is woken when its connection ends.
//	S12 A message takes its room below its user's limits a second before it is handled. Without
//	    room, the reader waits, holding no lock and no batch, and keeps its input as it is. So
//	    nothing is dropped or reordered, and only connections of that user wait. The room is that of
//	    this broker's share of the limits (package quota), which changes by reports of the brokers
//	    and never by a message.
//	S13 A loop's bound counts deliveries, the receivers of its messages, and bytes. A reader stops
//	    within a read when the loop has no room for more, waits, and keeps the rest of its input.
//	    So a queue exceeds its bound by one message per reader, or by one batch of a reader that
//	    gathered at the same time.
//	S14 A loop serves its queue in portions of bounded deliveries and time, and ends each with its
//	    writes. A message with more receivers is divided. So what is for one connection never
//	    waits for all that is queued.
//	S15 The members of a Feed are subscriptions in the index, with rights, cost and interest of their
//	    own. They change together with a notice, under the index lock: no message of a member comes
//	    before the notice that adds it, or behind the one that removes it. A Condition of the Feed
//	    is judged by the loop at the delivery, so it changes nothing in this order. Conditions are
//	    quick, and those of one client have a bound, beyond which a Feed delivers nothing more.
//	S16 A receiver is close to its bound when its pending bytes and what its loop has queued exceed
//	    three quarters of it. Then publishers with few receivers are delayed. So what is queued when
//	    they begin to wait does not close a receiver that would have read it.
//	S17 A message that declares attributes of its subject is handled when its Declarer has set them.
//	    Until then its reader waits, holding no lock and no batch, and keeps its input as it is. If
//	    they are not set, the message goes nowhere, and its client is told.
//
// Rejected: a goroutine per subscriber that is woken for each message. With thousands of receivers
// most of the time goes into wake-ups and copies.
//
// When the process dies, nothing remains: clients reconnect and subscribe again.
package session
