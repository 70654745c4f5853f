// Package subscription serves the durable readers of the shards that this broker leads: where each
// stands, what is on its way to whom, and what is to be delivered again.
package subscription
