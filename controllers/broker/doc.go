// Package broker reconciles Brokers: it observes, plans the next action, carries it out, and writes
// the status. A pass takes at most one action that a later pass would not repeat in the same way.
// When the process dies, the next pass begins by observing.
//
// Objects are written before anything else, and after a write the pass ends: a decision about pods
// needs objects that the cache shows as wanted.
package broker
