package broker

import "github.com/prometheus/client_golang/prometheus"

var (
	descController   = describe("controller", "1 while this broker places shards.")
	descPlaced       = describe("shards_placed_total", "Shards that this broker gave a leader, by reason.", "reason")
	descWaiting      = describe("shards_waiting", "Shards that wait, by reason; only from the broker that places shards.", "reason")
	descTopics       = describe("topics", "Topics of the cluster.")
	descShards       = describe("shards_open", "Shards that this broker leads and serves.")
	descTroubled     = describe("shards_troubled", "Shards that this broker leads and can't serve as it should.")
	descKept         = describe("topic_messages", "Messages kept in the shards that this broker leads.")
	descKeptBytes    = describe("topic_bytes", "Bytes on disk of these shards.")
	descAppended     = describe("topic_messages_total", "Messages that were kept.")
	descDuplicates   = describe("topic_duplicates_total", "Messages that had been kept before.")
	descRefused      = describe("topic_refusals_total", "Messages that were not kept, by reason.", "reason")
	descUnanswered   = describe("topic_unanswered", "Messages whose answer waits for the disk.")
	descIDs          = describe("topic_ids", "Message ids in deduplication windows.")
	descDurable      = describe("durable_subscriptions", "Subscriptions that this broker serves, those in memory included.")
	descEphemeral    = describe("ephemeral_subscriptions", "Of these, those in memory only.")
	descPulls        = describe("subscription_waiting", "Requests for messages that wait.")
	descDelivered    = describe("subscription_delivered_total", "Messages delivered to Subscriptions.")
	descRedelivered  = describe("subscription_redelivered_total", "Of these, those delivered before.")
	descAcked        = describe("subscription_acked_total", "Messages acknowledged by receivers.")
	descExhausted    = describe("subscription_exhausted_total", "Messages given up after their last attempt.")
	descSkipped      = describe("subscription_lost_total", "Messages skipped because they can't be read.")
	descStateBytes   = describe("subscription_state_bytes_total", "Bytes written to keep cursors.")
	descAPICalls     = describe("api_calls_total", "Calls of the JetStream API.")
	descAPIErrors    = describe("api_errors_total", "Of these, those that were refused.")
	descAPIOverload  = describe("api_overloaded_total", "Of these, those refused because too much was under way.")
	descAPIForwarded = describe("api_forwarded_total", "Calls, requests for messages and acks handed on to the leading broker.")
	descDiskFailed   = describe("disk_failed", "1 once the disk takes no appends; restart the broker when it is repaired.")
	descDiskFree     = describe("disk_free_bytes", "Room left on the volume.")
	descDiskBacklog  = describe("disk_backlog_bytes", "Bytes that wait to be written.")
	descDiskRounds   = describe("disk_commit_rounds_total", "Rounds of the committer: writes and one sync for all that gathered.")
	descDiskSyncs    = describe("disk_syncs_total", "Syncs of single files (file) and of the file system at once (all).", "of")
	descDiskSyncTime = describe("disk_sync_seconds_total", "Time spent in them.")
	descDiskLogs     = describe("disk_logs", "Logs that are open.")
)

// topicMetrics is what the node knows of Topics, Subscriptions and its disk.
func (b *Broker) topicMetrics(to chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	t := &b.topics
	control := t.controller.Stats()
	gauge(descController, truth(control.Leads))
	for reason, n := range control.Writes {
		count(descPlaced, n, string(reason))
	}
	for reason, n := range control.Waits {
		gauge(descWaiting, float64(n), string(reason))
	}
	b.replicaMetrics(gauge, count)
	s := t.topics.Stats()
	gauge(descTopics, float64(s.Topics))
	gauge(descShards, float64(s.Open))
	gauge(descTroubled, float64(s.Troubled))
	gauge(descKept, float64(s.Messages))
	gauge(descKeptBytes, float64(s.Bytes))
	count(descAppended, s.Appended)
	count(descDuplicates, s.Duplicates)
	for reason, n := range s.Refused {
		count(descRefused, n, reason)
	}
	gauge(descUnanswered, float64(s.Unanswered))
	gauge(descIDs, float64(s.IDs))
	u := t.subscriptions.Stats()
	gauge(descDurable, float64(u.Subscriptions))
	gauge(descEphemeral, float64(u.Ephemerals))
	gauge(descPulls, float64(u.Waiting))
	count(descDelivered, u.Delivered)
	count(descRedelivered, u.Redelivered)
	count(descAcked, u.Acked)
	count(descExhausted, u.Exhausted)
	count(descSkipped, u.Lost)
	count(descStateBytes, u.StateBytes)
	a := t.api.Stats()
	count(descAPICalls, a.Calls)
	count(descAPIErrors, a.Errors)
	count(descAPIOverload, a.Overloaded)
	count(descAPIForwarded, a.Forwarded)
	d := t.disk.Stats()
	gauge(descDiskFailed, truth(d.Failed != nil))
	if free, err := t.disk.Free(); err == nil {
		gauge(descDiskFree, float64(free))
	}
	gauge(descDiskBacklog, float64(d.Backlog))
	gauge(descDiskLogs, float64(d.Logs))
	count(descDiskRounds, d.Rounds)
	count(descDiskSyncs, d.FileSyncs, "file")
	count(descDiskSyncs, d.SyncAlls, "all")
	to <- prometheus.MustNewConstMetric(descDiskSyncTime, prometheus.CounterValue, d.SyncSeconds)
}
