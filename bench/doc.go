// Package bench measures a pub-sub server from outside, over the NATS protocol and nothing
// else, so that any server that speaks it can be measured in the same way and in the same run.
//
// A Workload is a pure plan: who subscribes to what, who publishes what, and when each
// message is due. A run takes a Workload to a Target; a Campaign takes Workloads to one or
// two Targets in turn and makes a Report, which prints as a table, as JSON and as an HTML page.
//
// What holds:
//
//   - The load of forward, fanout, filter, requery and cluster is open loop, and so is that of
//     request and of noisy's bystander at a rate. Every message is due at a time fixed before the
//     run starts, a late publisher skips nothing, and latency counts from the time when the
//     message was due.
//   - Publishers and subscribers share one process and one monotonic clock.
//   - Each message says which run, publisher and sequence it is, under a checksum, so lost,
//     duplicated, reordered, damaged and misrouted messages are counted exactly.
//   - Memory is bounded by the Workload: one bit per expected delivery, one histogram per
//     worker, and nothing that grows with the time a server takes.
//   - Every run ends: connecting, settling, publishing and draining each have a deadline.
//
// Nothing is kept on disk. A process that dies leaves no trace but closed connections; the
// subjects of a run carry its random id, so a second run never meets the messages of the first.
package bench
