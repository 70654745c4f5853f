// Package status says in conditions what planning found. It is pure: the former status and the
// outcome of a pass go in, the new status comes out, equal to the former one if nothing changed.
//
// Conditions and their reasons are a closed list: the types in the API, the reasons in plan and
// here.
package status
