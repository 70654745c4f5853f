// Package sender forwards published messages to the leaders of shards, on this broker or another
// one, and passes on what other brokers forward to the leaders here. It has the locks, links and
// timers of forwarding; package forward has the pure part. Shard is what it needs of a shard.
//
//	senders.go   Senders: all of this broker, their bounds, and the goroutine that checks them
//	sender.go    Sender: numbers, outbox and rounds of one shard
//	lanes.go     senders beside that, for messages that may wait long at the leader
//	room.go      what outboxes hold together, and publishers that wait
//	party.go     the senders of a room whose shards one broker leads
//	share.go     how much of that room a party and a sender may use
//	link.go      Link: frames from and to another broker
//	loopback.go  the Link to the leaders on this broker
//	back.go      Back: where a leader's answers go
//	settled.go   memory of answered messages
//	fast.go      fast batches: what goes on, and what their publishers are told
//
// Every message goes through a Sender, also for a shard that this broker leads: it gets a number,
// stays in an outbox until the leader has answered, and goes over a Link or, on the same broker, by
// a call. Invariants of forwarding:
//
//	F1  Each message has the next number of its source (a process, or a lane of one) and shard. It
//	    stays in the outbox until it is answered, for a bounded time and within a bounded size. An
//	    answer removes it and reaches its publisher in one step.
//	F2  Another epoch, leader or link, or a request by the leader, begins a round: all unanswered
//	    messages are sent again, in order, before newer ones. An answered number is sent as void, so
//	    that a round has no gaps.
//	F3  A leader judges the numbers of a source in order, each once, and accepts none after a
//	    gap. It rejects messages that were sent for an earlier epoch than its own, so that leftovers
//	    of an earlier round are harmless.
//	F4  A batch names the numbers of its records (forward.ExtensionType). So every broker with the
//	    batch knows them: the leader, a follower as it appends and truncates, and a broker that
//	    restarts and reads the end of its log. A message that is sent again gets the answer of the
//	    first time. A leader reads back a bounded part of its log. If it can't know whether a message
//	    was kept, it refuses the message: nothing is kept twice.
//	F5  An ack is true whenever it arrives. A refusal counts only in its own round: a deposed leader
//	    can't refuse what its successor keeps.
//	F6  When leadership ends, pending answers are not given: the sender sends to the next leader. If
//	    none answers within forward.OutboxTime, the publisher learns that the fate of the message is
//	    unknown, or that it was not kept if no leader ever received it.
//	F7  A sender begins no round with a message that is older than forward.OutboxTime; it fails that
//	    message first. So leaders and followers forget a source that has been silent for
//	    forward.OriginTime.
//	F8  The leader on this broker reads messages in the outbox. Their memory is not reused before
//	    it has read them, although a late answer of a former leader (F5) may take them out meanwhile.
//
//	F9  A message that names another one (protocol.Message.Behind) is kept only if that one is. The
//	    leader refuses it behind a refused one, which it remembers while that one's answer may be on
//	    its way. Once the sender has that answer, it sends the messages behind to no other
//	    leader.
//
//	F10 A message that waits at the leader for a pattern of subjects holds up messages of its own
//	    connection and its lane only, and takes the room of lanes only. All messages of a connection
//	    but those of fast batches are judged in the order in which it published them.
//
//	F11 A publisher waits for senders to which it published, and for no others, unless the shards
//	    that its leader's broker leads hold a third more than the room together. Then it waits
//	    until all is answered that its sender holds. What is held for other brokers leaves it a
//	    share. A sender alone may use eight ninths of the room.
//
// docs/architecture.md lists the tests that prove them.
//
// Package topic calls this package, which calls back through Shard, Config and Hub only. Locks: a
// Sender's order comes before its mu, its mu before that of Senders and of a room. Shard.Arrive is
// called with order held. The other calls may be made with mu held: they must not call a Sender.
//
// Rejected:
//
//   - A leader that takes its own publishers' messages without an outbox. It saves a copy per small
//     message (90 ns of 375 ns, measured with 256 bytes in reads of 64), and nothing per large one.
//     It needs a second kind of numbers and an order between both kinds, and it leaves publishers
//     without a definite answer when the leader changes.
//   - Topics as subscribers, announced as interest over links. A Topic whose broker is away would
//     look like no Topic at all.
//   - A timer at the publisher's broker that sends again. Messages would be kept twice or out of
//     order.
//
// When the process dies, its outboxes and its publishers' connections end with it. Another process
// is another source.
package sender
