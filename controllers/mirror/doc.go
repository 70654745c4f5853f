// Package mirror follows, for each Broker, what its coordinators hold: one client, one watch, and
// one look in half a minute at the brokers' numbers. Whoever reconciles Topics and Subscriptions
// reads from here and writes through the same client; nobody else watches, and nobody polls for
// one Topic.
//
// Invariants:
//
//   - M1 A Broker that is there has one mirror, and one that is gone has none: its client is closed
//     and its goroutines have ended before the next for that name begins.
//   - M2 Nothing is read before the keys are known to be this Broker's.
//   - M3 What was known once stands until something newer is known: an etcd that is away, or a
//     broker that does not answer, changes nothing.
//   - M4 Of every change, each manifest that it may concern hears; whose manifest is gone hears
//     too, by the owner that is written in etcd.
//
// There is nothing to lose: a process that dies leaves what is in etcd, which the next one reads.
package mirror
