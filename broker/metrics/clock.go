package metrics

import "github.com/carillon-mq/carillon/broker/clock"

var (
	descClockDoubt = describe("clock_in_doubt", "1 for the reason for which the time is in doubt, so that nothing is deleted by its age; carillon brokers clocks shows more.", "reason")
	descClockAway  = describe("clock_away_seconds", "How far this machine's clock is ahead of the time that brokers go by; negative: behind.")
	descClockJumps = describe("clock_jumps_total", "Times that this machine's clock jumped.")
	descClockVotes = describe("clock_votes", "Brokers whose clocks this one knows, its own among them (known), and of these those that agree and are sure (sure).", "are")
	descClockSteps = describe("clock_steps_total", "Times that the time itself went forward or back by more than clocks that agree.")
)

// doubts are the reasons why the time may be in doubt.
var doubts = []clock.Reason{clock.Jumped, clock.Disagree, clock.Implausible, clock.Stepped}

func (c Collector) clock(to sample) {
	v := c.sources.Clock.Verdict()
	for _, reason := range doubts {
		to.gauge(descClockDoubt, truth(v.Doubt == reason), string(reason))
	}
	to.gauge(descClockAway, c.sources.Clock.Away().Seconds())
	to.count(descClockJumps, c.sources.Clock.Jumps())
	to.gauge(descClockVotes, float64(v.Known), "known")
	to.gauge(descClockVotes, float64(v.Sure), "sure")
	to.count(descClockSteps, v.Steps)
}
