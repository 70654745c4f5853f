package broker

import "github.com/prometheus/client_golang/prometheus"

var (
	descReplicaLed      = describe("replica_shards_led", "Shards with replicas that this broker leads.")
	descReplicaShort    = describe("replica_shards_short", "Of these, those of which a replica is not in sync.")
	descReplicaFollowed = describe("replica_shards_followed", "Shards that this broker has a replica of and another one leads.")
	descReplicaCopying  = describe("replica_shards_copying", "Of these, those that it copies from their leaders now.")
	descReplicaSuspect  = describe("replica_shards_suspect", "Shards of which this broker can't vouch for its copy.")
	descReplicaSent     = describe("replica_sent_bytes_total", "Bytes of batches sent to followers.")
	descReplicaCatchUp  = describe("replica_catch_up_bytes_total", "Of these, what followers lacked when they asked.")
	descReplicaReceived = describe("replica_received_bytes_total", "Bytes of batches received from leaders.")
	descReplicaCuts     = describe("replica_truncations_total", "Logs whose end was cut since their leader never had it.")
	descReplicaResets   = describe("replica_resets_total", "Logs that were fetched anew since they shared nothing with their leader's.")
	descRepairs         = describe("replica_repairs_total", "Damage to this broker's copies, by what of them was fetched from the leader: the damaged segment, or the whole copy.", "fetched")
	descRepairBytes     = describe("replica_repair_bytes_total", "Bytes of batches that were received from leaders (in) or sent to followers (out) for damaged segments.", "direction")
	descReplicaSwaps    = describe("replica_in_sync_changes_total", "Changes of in-sync sets that this broker wrote (written), or could not, or does not know of (failed).", "outcome")
	descScrubbed        = describe("scrubbed_bytes_total", "Bytes of sealed segments that were read again to find damage.")
	descScrubDamages    = describe("scrub_damages_total", "Damages that were found so.")
	descSaved           = describe("compressed_bytes_saved_total", "Room on the disk that compressing sealed segments saved.")
	descReplicaLinks    = describe("replica_connections", "Connections for replication, to and from other brokers.")
)

// replicaMetrics is what the node knows of replicas.
func (b *Broker) replicaMetrics(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	s := b.topics.exchange.Stats()
	gauge(descReplicaLed, float64(s.Leads))
	gauge(descReplicaShort, float64(s.Short))
	gauge(descReplicaFollowed, float64(s.Follows))
	gauge(descReplicaCopying, float64(s.Copying))
	gauge(descReplicaSuspect, float64(b.topics.topics.Suspects()))
	count(descReplicaSent, s.OutBytes)
	count(descReplicaCatchUp, s.CatchUpBytes)
	count(descReplicaReceived, s.InBytes)
	count(descReplicaCuts, s.Truncations)
	count(descReplicaResets, s.Resets)
	care := b.topics.topics.Care()
	count(descRepairs, s.Repaired, "segment")
	count(descRepairs, care.Copies, "copy")
	count(descRepairBytes, s.InRepairBytes, "in")
	count(descRepairBytes, s.OutRepairBytes, "out")
	count(descReplicaSwaps, s.Swaps, "written")
	count(descReplicaSwaps, s.SwapsFailed, "failed")
	count(descScrubbed, care.Scrubbed)
	count(descScrubDamages, care.Damages)
	count(descSaved, care.Saved)
	gauge(descReplicaLinks, float64(s.Connections))
}
