// Package topic turns what is asked of a Topic into what brokers do: which broker serves which
// shard, and how that broker keeps and acknowledges what is published.
//
// A Service is a broker's part. Follow tells it what coordination says; its workers open, close and
// delete logs accordingly; the hub hands it what is published (Take). What one read of a
// connection brought is one batch and one completion. The disk's committer calls the completions of a round, which
// move the high watermark and nothing more; the acker, a goroutine of its own, then makes all
// answers of the round and hands them to the hub in one call. A goroutine per shard, or an answer sent by
// the committer itself, were the simpler ways: the one costs 10,000 stacks and wake-ups, the other keeps the disk waiting.
//
// Invariants of a Service:
//
//	T1  An ack is given when the record, and all before it in the shard, are as safe as the Topic asks.
//	    So is every answer that rests on a record: that a message is a duplicate, that another was
//	    expected before it.
//	T2  Readers see nothing at or beyond the high watermark, and nothing below a start that never goes back.
//	T3  Records of a publisher stand in the order in which they were taken. Each message with a
//	    reply is answered once, unless the process dies.
//	T4  Conditions and message ids are judged at the end of the log, records under way included. A message
//	    that was refused at once has left no trace there. One refused because its log failed may have been kept.
//	T5  A broker appends under the epoch that it was named leader in, in that life; what it led then
//	    it goes on leading while it registers anew.
//	T6  Logs are deleted if the Topic was seen being deleted, or deleted. What else is found without a
//	    Topic is set aside.
//	T7  What is wrong with one log refuses that Topic's messages, with the reason, and touches nothing else.
//	    A log that failed is opened again if its disk works. If it was led and others follow, they may have what was under way and
//	    it has not: it is led again under a later epoch only.
//	T8  Messages for a log that is being opened wait for it, a bounded time and amount, and go before all later ones.
//
// What is published here for a shard that another broker leads goes through an outbox (sender), over the link (Link), to that
// broker's Shard. Forwards have invariants of their own:
//
//	F1  Each message has the next number of its source (a process) and shard. It stays in the outbox until it is answered, a
//	    bounded time and amount; an answer takes it out and reaches its publisher in one step.
//	F2  With another epoch, leader or link, or when the leader asks for it, a round begins: all that isn't answered goes again, in
//	    order, before what is newer. A number that is answered goes as void, so a round has no gaps.
//	F3  A leader judges the numbers of a source in their order, each once, and takes none behind a gap. It takes nothing that was
//	    meant for an epoch before it began to lead, so what a former round left behind somewhere does no harm.
//	F4  A batch says whose numbers its records are (forwardedFrom), so whoever has the batch knows them: leader, followers
//	    as they append and truncate, a broker that starts from the end of its log. What is kept is acknowledged again, as it was first;
//	    what was judged and not kept is refused again. What a leader can't know, as it reads its log back a bounded
//	    way only, is refused: nothing is kept twice.
//	F5  An ack is true whenever it comes. A refusal counts only in the round in which it was given: of two leaders, the former may not
//	    refuse what the latter keeps.
//	F6  What is taken by the leader that it is published to has numbers of the same sequence, in the order of its log. When that broker
//	    leads no more, what isn't safe goes from its log into the outbox before the log is truncated, and before anything that has a
//	    later number goes to the next leader. What is an answer only, and rests on such a message, isn't known.
//
// When the process dies in it: what was in its outboxes is judged or lost, and its publishers' connections end with it. Another
// process is another source.
//
// When the process dies in it: nothing is kept in memory that the logs don't hold. The ids of the
// deduplication window, which followers keep as well, and the last message's are read again from the end of the log. Deleting a log is
// one step; logs of which the first was deleted and the second not are set aside.
//
// A broker's part in it: it reports each replica that it can't vouch for (coordination.Suspect), as soon as it has registered
// and knows. That is one whose recovery cut or refused something; and, after a life that did not end in order, each of a
// Topic that is not Synced and of which the in-sync set names an earlier life, a log or none. A replica stays in the
// report until the set names the life that it is in, or it leads alone; and it says anew how far it goes when nobody leads.
package topic
