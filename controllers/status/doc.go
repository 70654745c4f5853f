// Package status turns the outcome of a pass into conditions. It is pure: its input is the former
// status and the outcome, its output the new status, which equals the former one if nothing
// changed.
//
// Conditions and their reasons are a closed list: the types in the API, the reasons in plan and
// here.
package status
