// Package lapse deletes the attributes that are bound to a publisher's connection, some time after
// it is gone.
//
// Invariants:
//
//  1. A connection is gone if its broker says so. The connections of a process are gone if no
//     broker is registered with it: then the controller says so, and nobody else.
//  2. Attributes go when their connection has been gone for Grace. Until then a publisher claims
//     them by setting them from another connection, and nobody sees a difference.
//  3. A deletion compares that the attributes are what they were, and that the broker is still not
//     registered. So what was claimed meanwhile stays, whatever this broker has heard.
//  4. They go in batches, one after the other, with a pause: a broker with many of them delays no
//     changes.
//
// A broker whose lease has ended registers again as the same process, so its publishers keep their
// attributes unless it takes longer than Grace.
//
// When the process dies in it, its connections are gone, and the controller deletes what they held.
// The next controller begins anew: what goes may go Grace later.
package lapse
