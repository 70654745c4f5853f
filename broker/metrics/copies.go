package metrics

import "github.com/carillon-mq/carillon/broker/sourcing"

var (
	descCopies      = describe("sources", "Sources and mirrors of the shards that this broker leads, as far as it copies them.")
	descCopiesWait  = describe("sources_waiting", "Sources and mirrors of those shards that this broker does not copy, since it copies 1,024 others.")
	descCopiesFail  = describe("sources_failing", "Sources and mirrors that this broker can't copy at present.")
	descCopiesLag   = describe("source_lag_messages", "Messages of their origins that are not copied yet: at most, where there are filters.")
	descCopiesMost  = describe("source_lag_messages_max", "The largest number of messages that one source lacks.")
	descCopiesQuiet = describe("source_silent_seconds", "The longest time since an origin was heard of.")
	descCopied      = describe("source_messages_total", "Messages copied, those included that were duplicates.")
	descCopiesSkip  = describe("source_skipped_total", "Messages passed over because they are too large for a link.")
	descCopiesLost  = describe("source_losses_total", "Times that an origin was found to have lost messages that were copied.")
)

func copies(to sample, s sourcing.Stats) {
	to.gauge(descCopies, float64(s.Sources))
	to.gauge(descCopiesWait, float64(s.Waiting))
	to.gauge(descCopiesFail, float64(s.Failing))
	to.gauge(descCopiesLag, float64(s.Lag))
	to.gauge(descCopiesMost, float64(s.Most))
	to.gauge(descCopiesQuiet, s.Silent.Seconds())
	to.count(descCopied, s.Copied)
	to.count(descCopiesSkip, s.Skipped)
	to.count(descCopiesLost, s.Lost)
}
