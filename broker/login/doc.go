// Package login authenticates clients: it finds out which user gave the credentials of a CONNECT.
//
// A Login holds the present table of users. It may be exchanged at any time, and Hub.Recheck then
// applies it to the clients that are connected.
//
// Invariants:
//
//	V1  A password is compared with bcrypt on a bounded number of goroutines, in turns that are fair
//	    by address: who tries a thousand passwords delays others by one of them. The users of the
//	    moment after the wait decide.
//	V2  A password that was right is remembered as a keyed hash, with a key of this process, until
//	    the hashes of its user change. So clients that come back cost no bcrypt.
//	    It is remembered with the hash that verified it, and no password is kept.
//	V3  The duration of a refusal does not tell whether the user exists.
//	V4  A file of users that can't be read, is wrong or is no regular file changes nothing: the last
//	    good table stays, and the log says so. Reading it never waits for a writer.
//	V5  A connected client keeps its access while its user lists what it proved itself by: the hash
//	    that verified its password, its token or nkey, or a name in its certificate. Two hashes of
//	    one password are two credentials, since nothing but the password could tell.
//
// Rejected: remembering wrong passwords. It would need memory that strangers can fill.
//
// When the process dies, what was remembered is gone, and the next process compares again.
package login
