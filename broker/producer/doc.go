// Package producer publishes messages of this broker itself into Topics, and brings their answers
// to whoever published them. Dead letters go this way, and results and
// alerts of views.
//
// A message is published as a client's: by the Topic's sender, to the leader of its shard, on any
// broker. Its reply subject belongs to the Producer, which takes the answer out of what the Topics
// send to clients (Hub).
//
// Invariants:
//
//	D1  Store and Append call done once, unless the process dies: with the Topic's answer, or with
//	the reason
//	    why the Topic is not asked.
//	D2  Store and Append never wait, and done is called without a lock of this package.
//	D3  No client receives the answers, and none can forge one: they never go through the Hub.
//
// The caller bounds what is under way. A sender answers each message within forward.OutboxTime.
//
// When the process dies, messages under way may be stored or not. Whoever publishes them again uses
// a message id.
package producer
