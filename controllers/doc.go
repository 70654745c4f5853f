// Package controllers makes the cluster match what users wrote.
//
// One pass over a Broker is: observe (gather facts, judge nothing), plan (pure: facts to the one
// next action, with a reason from a closed list), act (apply what build made, or replace one pod),
// status. Nothing is remembered between passes but caches that can be lost: an operator that dies
// anywhere leaves objects that the next one reads as facts and goes on from.
//
// A pass over a Topic or a Subscription is the same with etcd in the place of objects: mirror knows
// what each Broker's etcd holds and tells whom it concerns, and writing goes through the same
// client.
//
// The rooms: observe, plan, build and status; pki for certificates; mirror for etcd, and tell for
// events; broker, topic and subscription are the thin reconcilers. What the operator may do in the
// API is in rbac.go, and nowhere else.
package controllers
