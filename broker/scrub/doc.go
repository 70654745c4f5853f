// Package scrub decides which segments at rest are read next to find damage, while another replica
// has what is damaged. It is pure: package upkeep reads them.
//
// Invariants:
//
//  1. Each segment is due an hour after it was scrubbed, and after each start that was not orderly.
//  2. A broker that crashes every few minutes comes to its newest segments and to its oldest ones.
//
// The package keeps no state, so a process that dies in it loses nothing.
package scrub
