// Package admission decides which large operations of clients a broker reads into memory at a time:
// it divides a budget of bytes among them. It is pure; package session does the I/O and locks it.
//
//	budget.go  Budget and Claim: grants room for operations, by address in turns
//	evict.go   Budget.Evict: which slow claims give way to those that wait
//	limits.go  every bound, with its reason
//
// # Invariants
//
//	A1  The sizes of held claims add up to the budget at most, and those of one address to its share.
//	    A claim beyond the share is its address's only one, and one beyond the budget is alone.
//	A2  Addresses with waiting claims take turns, and each address has its own claims wait in the
//	    order of their arrival. Nobody overtakes the address whose turn it is, except while that one
//	    has its whole share.
//	A3  When Ask, Return or Close return, no claim waits that could be held.
//	A4  Only a held claim is evicted, once, and only if it was slower than Floor throughout its last
//	    Window while others have waited for Patience that get room by that.
//	A5  An address gives way to itself first: claims that wait since their address has its share
//	    evict claims of that address only.
//
// Rejected: first come, first served. One address with a thousand connections would have all others
// wait for a thousand operations. Rejected: a deadline for each operation. While there is room, a
// slow client disturbs nobody.
//
// The process's death loses all of it, and the connections with it.
package admission
