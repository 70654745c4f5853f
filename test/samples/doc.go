// Package samples holds config/samples to the API: a field that a kind does not have, or a kind
// that nobody serves, fails here before a reader copies it.
package samples
