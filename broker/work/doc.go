/*
Package work runs background work of a broker on bounded numbers of goroutines. Tasks runs items
that have work again and again, as shards and Subscriptions do; Jobs runs functions once; FairJobs
runs jobs of clients, whose users share a FairQueue; Each does one thing with several items. Sleep
is a pause of a goroutine, Ticker and SleepToTick let goroutines work periodically, Poll often or
rarely, and Backoff is the pause before a retry. Buckets say how long a client waits that asks for
too much. Modest has long work give way to messages. Watchers are called when something has changed.
Behind is the queues that a sender has to wait for, and its pause after refusals.

Invariants:

	W1  A task is stepped by one goroutine at a time. A wake during a step leads to another step.
	W2  Within a lane, items run in the order in which they were queued. A lane is served while the
	    lanes before it are empty.
	W3  An idle task has no goroutine and no place in a queue. Waking and stepping allocate nothing
	    once the queues have grown to their size.
	W4  Close returns after the last step or job has ended; none begins later.
	W5  An item of a FairQueue that may run never waits. One that ends calls Next, and Leave only if
	    Next had none. It makes room for one more at most.
	W6  While a user waits whose items may run, no user with as many running ones is served twice.

Wake and Submit never block and may be called with any lock held.

The package keeps no state outside memory; a process that dies in it loses nothing.
*/
package work
