// Package selftest checks an installation from inside the cluster: it makes a small Broker of its
// own, publishes and receives through it as any client would, and removes it again. The chart's
// `helm test` runs it.
//
// Invariants: it touches no Broker but the one it made, whose name the API server generates; and
// whatever the outcome, it removes that Broker and its volumes before it returns, within a time of
// its own, so that a test that was cancelled cleans up too. If the process dies, the Broker is left
// behind: its name begins with "selftest-", and it is deleted as any other.
package selftest
