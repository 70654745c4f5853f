// Package quota divides the limits of users a second among the brokers of a cluster: each broker
// has a portion of a limit, which follows what is demanded of it. It is pure.
//
//	divide.go    Divide: max-min fair portions of one limit, by demand
//	report.go    a broker's report of what its users demand, as bytes
//	ledger.go    Ledger: what the other brokers reported, and the portions that follow
//	standing.go  Standing: when a portion of one user changes
//	limits.go    every bound, with its reason
//
// Demands and portions are parts of a limit, so that a change of the limit needs no report.
//
// # Invariants
//
//	Q1  The portions that Divide makes of a limit add up to it.
//	Q2  No portion is below a twentieth of an equal one (the floor). A demand up to the floor needs
//	    no report, so users that publish little cost no frames.
//	Q3  A broker that is not heard has an equal portion, limit/n: in its own view if it hears
//	    nobody, and in that of the others.
//	Q4  A portion falls when the report arrives that lowers it, and rises an interval after the one
//	    that raises it. So others have given up what a broker gains, while reports take less than
//	    an interval.
//	Q5  A broker reports while its users demand more than their floor, and while it hears others
//	    that do. Otherwise nobody reports, and all portions are equal.
//
//	Q6  Registered brokers count, and others while they are heard: those serve clients still, and
//	    count themselves.
//
// Rejected: one broker that hands out the room of a user. It would have to be elected, and a user
// could not publish, or without a limit, while it is away.
//
// The process's death loses all of it: the next process begins with equal portions, and the others
// count the dead one with an equal portion until it is no longer registered. A process that slept
// has its former portions until its next interval: what it may publish of them is a burst.
package quota
