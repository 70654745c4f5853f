// Package broker reconciles Brokers: it observes, has the next action planned, does it, and writes
// down what came of it. A pass does at most one thing that a later pass would not do by itself in
// the same way; whatever it was doing when the process died, the next pass begins by looking.
//
// Objects are written before anything else is done, and after a write the pass ends: a decision
// about pods rests on objects that are as they should be, as seen in the cache.
package broker
