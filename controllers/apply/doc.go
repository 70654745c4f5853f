// Package apply writes objects by server-side apply, and only those that differ.
//
// An object is left unchanged if its annotation has the hash of the wanted fields, and if it
// contains all wanted fields. The hash detects our own changes, including fields that are not
// wanted any more; the comparison detects changes by others. So a converged object costs no
// request, and a restart loses nothing.
//
// An object of the wanted name that belongs to another owner is never changed. The cache has
// objects with our labels only, so the API server is asked before an object is created.
package apply
