// Package controllers makes the cluster match what users wrote.
//
// One pass over a Broker is: observe (gather facts, judge nothing), plan (pure: facts to the one
// next action, with a reason from a closed list), act (apply what build made, or replace one pod),
// status. Nothing is remembered between passes but caches that can be lost: an operator that dies
// anywhere leaves objects that the next one reads as facts and goes on from.
//
// The rooms: observe, plan, build and status; pki for certificates; broker, topic and subscription
// are the thin reconcilers. What the operator may do in the API is in rbac.go, and nowhere else.
package controllers
