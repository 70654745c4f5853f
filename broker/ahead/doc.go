// Package ahead bounds what the leader of a shard appends beyond its high watermark, and says when
// publishers wait for it and when they are refused. Package topic counts appends with it.
//
// The counts belong to one leadership. When the process dies they end with it: the next leader
// begins with nothing beyond its watermark.
package ahead
