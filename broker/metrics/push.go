package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-mq/carillon/broker/push"
)

var (
	descPushEndpoints = describe("push_endpoints", "Endpoints that this broker pushes to, one for each shard and Subscription.")
	descPushOpen      = describe("push_endpoints_unreached", "Of these, those that are not reached now: their circuit is open.")
	descPushUnderWay  = describe("push_requests_under_way", "Requests to endpoints that have no answer yet.")
	descPushHeld      = describe("push_messages_held", "Messages in memory for endpoints, with those under way.")
	descPushBytes     = describe("push_bytes_held", "Bytes of these.")
	descPushAnswers   = describe("push_requests_total", "Requests to endpoints, by what came of them.", "result")
	descPushSeconds   = describe("push_request_seconds", "How long requests to endpoints took.")
)

func pushes(to sample, s push.Stats) {
	to.gauge(descPushEndpoints, float64(s.Endpoints))
	to.gauge(descPushOpen, float64(s.Open))
	to.gauge(descPushUnderWay, float64(s.Requests))
	to.gauge(descPushHeld, float64(s.Held))
	to.gauge(descPushBytes, float64(s.Bytes))
	for result, n := range s.Answers {
		to.count(descPushAnswers, n, result)
	}
	to <- prometheus.MustNewConstHistogram(descPushSeconds, s.Count, s.Seconds, s.Durations)
}
