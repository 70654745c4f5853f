package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

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
	descAhead        = describe("topic_unconfirmed_bytes", "Bytes of messages appended here that not all in-sync replicas have confirmed.")
	descSources      = describe("topic_senders", "Senders that the shards led here remember, to recognise what they send again.")
	descResent       = describe("forwards_resent_total", "Messages forwarded once more, to another leader or over another link.")
	descForwardsFail = describe("forwards_failed_total", "Messages refused here since no leader answered in time.")
	descForwardsFull = describe("forwards_full_total", "Times that publishers were refused since too much was forwarded and not answered.")
	descDeduplicated = describe("forwards_deduplicated_total", "Messages forwarded to this broker once more that it had kept before.")
	descOutbox       = describe("forwards_outbox_bytes", "Memory for messages that were forwarded and not answered.")
	descCompactRuns  = describe("compactions_total", "Times that a Topic's log was compacted here.")
	descCompactGone  = describe("compacted_messages_total", "Messages that went because there was a newer one of their subject, on this broker's copies.")
	descCompactBytes = describe("compacted_bytes_total", "Bytes that went with them, uncompressed.")
	descCompactTime  = describe("compaction_seconds_total", "Time spent on it.")
	descCompactLast  = describe("compaction_last_timestamp_seconds", "When it was done last; 0: not in this life.")
	descExpungeRuns  = describe("expunges_total", "Times that removed messages left the files of a Topic's log here.")
	descExpungeGone  = describe("expunged_messages_total", "Removed messages that left the files of this broker's copies.")
	descExpungeBytes = describe("expunged_bytes_total", "Bytes that went with them, uncompressed.")
	descExpungeTime  = describe("expunge_seconds_total", "Time spent on it.")
	descExpungeLast  = describe("expunge_last_timestamp_seconds", "When it was done last; 0: not in this life.")
	descIDs          = describe("topic_ids", "Message ids in the deduplication windows of shards that this broker leads.")
	descFollowedIDs  = describe("topic_followed_ids", "The same of shards that it follows.")
	descDurable      = describe("durable_subscriptions", "Subscriptions that this broker serves, those in memory included.")
	descEphemeral    = describe("ephemeral_subscriptions", "Of these, those in memory only.")
	descPulls        = describe("subscription_waiting", "Requests for messages that wait.")
	descPullBytes    = describe("subscription_waiting_bytes", "What the requests of clients that wait take in memory, about.")
	descPullsRefused = describe("subscription_waiting_refused_total", "Requests refused because their user or address has its share of these, or its limit.")
	descDelivered    = describe("subscription_delivered_total", "Messages delivered to Subscriptions.")
	descRedelivered  = describe("subscription_redelivered_total", "Of these, those delivered before.")
	descAcked        = describe("subscription_acked_total", "Messages acknowledged by receivers.")
	descExhausted    = describe("subscription_exhausted_total", "Messages given up after their last attempt.")
	descDeadLettered = describe("subscription_dead_lettered_total", "Messages given up and stored in a dead-letter Topic.")
	descWaitingDead  = describe("subscription_given_up", "Messages given up that no dead-letter Topic has stored yet.")
	descUnjudged     = describe("subscription_unjudged_total", "Messages that the condition of a Subscription could not judge.")
	descSkipped      = describe("subscription_lost_total", "Messages skipped because they can't be read.")
	descReleased     = describe("subscription_released_total", "Messages removed since no Subscription needs them, by the retention of their Topic.")
	descStateBytes   = describe("subscription_state_bytes_total", "Bytes written to keep cursors.")
	descAPICalls     = describe("api_calls_total", "Calls of the JetStream API.")
	descAPIErrors    = describe("api_errors_total", "Of these, those that were refused.")
	descAPIOverload  = describe("api_overloaded_total", "Of these, those refused because too much was under way.")
	descDefinitions  = describe("client_definitions_bytes", "Bytes in etcd of the definitions of clients' streams and consumers, of the cluster.")
	descDefMax       = describe("client_definitions_limit_bytes", "How many these may be.")
	descDefRefused   = describe("client_definitions_refused_total", "Creations and updates of clients that this broker refused, by what was exceeded.", "limit")
	descDefPaced     = describe("client_definitions_delayed_total", "Creations, updates and deletions that waited since their client asked for too many.")
	descRepublished  = describe("republished_total", "Messages that streams publish again when they are stored.", "outcome")
	descAdvisories   = describe("advisories_total", "Advisories of JetStream that somebody wanted.", "outcome")
	descAdminRefused = describe("admin_overloaded_total", "Requests of the command line and for records refused because too much was under way.")
	descAPIForwarded = describe("api_forwarded_total", "Calls, requests for messages and acks handed on to the leading broker.")
	descDiskFailed   = describe("disk_failed", "1 once the disk takes no appends; restart the broker when it is repaired.")
	descDiskStalled  = describe("disk_stalled_seconds", "For how long an operation on the disk, or a commit round, has been under way if that is too long; else 0.")
	descDiskFree     = describe("disk_free_bytes", "Room left on the volume.")
	descDiskBacklog  = describe("disk_backlog_bytes", "Bytes that wait to be written.")
	descDiskRounds   = describe("disk_commit_rounds_total", "Rounds of the committer: writes and one sync for all that gathered.")
	descDiskSyncs    = describe("disk_syncs_total", "Syncs of single files (file) and of the file system at once (all).", "of")
	descDiskSyncTime = describe("disk_sync_seconds_total", "Time spent in them.")
	descDiskLogs     = describe("disk_logs", "Logs that are open.")
	descAside        = describe("disk_set_aside", "Pieces that are set aside on the volume, as of a minute ago at most.")
	descAsideBytes   = describe("disk_set_aside_bytes", "Bytes of these pieces.")
)

func (c Collector) topics(to sample) {
	control := c.sources.Controller.Stats()
	to.gauge(descController, truth(control.Leads))
	for reason, n := range control.Writes {
		to.count(descPlaced, n, string(reason))
	}
	for reason, n := range control.Waits {
		to.gauge(descWaiting, float64(n), string(reason))
	}
	s := c.sources.Topics.Stats()
	to.gauge(descTopics, float64(s.Topics))
	to.gauge(descShards, float64(s.Open))
	to.gauge(descTroubled, float64(s.Troubled))
	to.gauge(descKept, float64(s.Messages))
	to.gauge(descKeptBytes, float64(s.Bytes))
	to.count(descAppended, s.Appended)
	to.count(descDuplicates, s.Duplicates)
	for reason, n := range s.Refused {
		to.count(descRefused, n, reason)
	}
	rewrites(to, c.sources.Topics.Compacted(), descCompactRuns, descCompactGone, descCompactBytes, descCompactTime, descCompactLast)
	rewrites(to, c.sources.Topics.Expunged(), descExpungeRuns, descExpungeGone, descExpungeBytes, descExpungeTime, descExpungeLast)
	to.gauge(descUnanswered, float64(s.Unanswered))
	to.gauge(descAhead, float64(s.Ahead))
	to.gauge(descSources, float64(s.Sources))
	to.gauge(descIDs, float64(s.IDs))
	to.gauge(descFollowedIDs, float64(s.Followed))
	to.count(descResent, s.Resent)
	to.count(descForwardsFail, s.Failed)
	to.count(descForwardsFull, s.OutboxFull)
	to.count(descDeduplicated, s.Deduplicated)
	to.gauge(descOutbox, float64(s.OutboxBytes))
	to.count(descRepublished, s.Republish.Published, "published")
	to.count(descRepublished, s.Republish.Dropped, "dropped")
}

func (c Collector) subscriptions(to sample) {
	u := c.sources.Subscriptions.Stats()
	to.gauge(descDurable, float64(u.Subscriptions))
	to.gauge(descEphemeral, float64(u.Ephemerals))
	to.gauge(descPulls, float64(u.Waiting))
	to.count(descDelivered, u.Delivered)
	to.count(descRedelivered, u.Redelivered)
	to.count(descAcked, u.Acked)
	to.count(descExhausted, u.Exhausted)
	to.count(descDeadLettered, u.DeadLettered)
	to.gauge(descWaitingDead, float64(u.GivenUp))
	to.count(descSkipped, u.Lost)
	to.count(descUnjudged, u.Unjudged)
	to.count(descReleased, u.Released)
	to.count(descStateBytes, u.StateBytes)
	a := c.sources.JetStream.Stats()
	to.count(descAPICalls, a.Calls)
	to.count(descAPIErrors, a.Errors)
	to.count(descAPIOverload, a.Overloaded)
	to.gauge(descPullBytes, float64(a.PullBytes))
	to.count(descPullsRefused, a.TooMany)
	to.count(descAPIForwarded, a.Forwarded)
	to.count(descAdminRefused, c.sources.Admin.Stats().Overloaded)
	room := c.sources.Definitions.ClientRoom()
	to.gauge(descDefinitions, float64(room.Bytes))
	to.gauge(descDefMax, coordination.ClientBytes)
	to.count(descDefRefused, room.Refused, "bytes")
	to.count(descDefRefused, a.TooFast, "rate")
	for _, limit := range []string{coordination.LimitStreams, coordination.LimitConsumers, coordination.LimitStoredBytes} {
		to.count(descDefRefused, room.RefusedOf[limit], limit)
	}
	to.count(descDefPaced, a.Paced)
	to.count(descAdvisories, a.Advisories.Published, "published")
	to.count(descAdvisories, a.Advisories.Dropped, "dropped")
}

func (c Collector) disk(to sample) {
	d := c.sources.Disk.Stats()
	to.gauge(descDiskFailed, truth(d.Failed != nil))
	if free, err := c.sources.Disk.Free(); err == nil {
		to.gauge(descDiskFree, float64(free))
	}
	if pieces, bytes, err := c.sources.Disk.AsideUsage(); err == nil {
		to.gauge(descAside, float64(pieces))
		to.gauge(descAsideBytes, float64(bytes))
	}
	to.gauge(descDiskBacklog, float64(d.Backlog))
	to.gauge(descDiskLogs, float64(d.Logs))
	to.count(descDiskRounds, d.Rounds)
	to.count(descDiskSyncs, d.FileSyncs, "file")
	to.count(descDiskSyncs, d.SyncAlls, "all")
	to.seconds(descDiskSyncTime, d.SyncSeconds)
}

// rewrites adds the counters of compaction, or of expunging.
func rewrites(to sample, done upkeep.Rewrites, runs, records, bytes, seconds, last *prometheus.Desc) {
	to.count(runs, done.Runs)
	to.count(records, done.Records)
	to.count(bytes, done.Bytes)
	to.seconds(seconds, done.Duration.Seconds())
	at := 0.0
	if !done.Last.IsZero() {
		at = float64(done.Last.Unix())
	}
	to.gauge(last, at)
}
