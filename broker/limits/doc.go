// Package limits has the bounds that several packages share, each with its reason, and the
// Profiles, which scale the few that depend on the size of the node. The bounds of one package are
// in its own limits.go.
//
// It has constants and values only, so nothing is lost with the process.
package limits
