/*
Package system answers the requests on $SYS.REQ by which NATS tools look at servers: `nats server
list`, `info`, `ping`, `report` and `check`.

A request to all servers is answered by each broker: the one that the client is connected to passes
it to the others. A request to one server is answered by that one. What is answered is the pages of
package monitoring.

Invariants:

	Y1  A reader's goroutine never waits here: answers are made on a bounded pool. A request for
	    which it has no room is not answered.
	Y2  A request from another broker is never passed on.

The package keeps nothing; when the process dies, tools get one answer less.
*/
package system
