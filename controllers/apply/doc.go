// Package apply writes objects by server-side apply, and only those that differ.
//
// An object is left alone when it carries the hash of what was last applied, that hash is of what
// is wanted now, and everything wanted is found in it: the first finds what we changed (a field
// that is no longer wanted, too), the last what somebody else changed. So a converged object costs
// no request, and nothing is remembered here that a restart could lose.
//
// An object of the wanted name that is not this Broker's is never touched. The cache sees only
// objects with our labels, so before an object is made for the first time the API server is asked.
package apply
