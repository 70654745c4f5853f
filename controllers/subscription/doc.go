// Package subscription reconciles Subscriptions. Brokers can't serve them yet, and their status says so; nothing
// is made from them, so there is nothing that a dying process could leave half done.
package subscription
