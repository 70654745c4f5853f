package broker

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads the node's counters when it is asked; nothing on the way of a message knows of it.
type metrics struct{ b *Broker }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("carillon_"+name, help, labels, nil)
}

var (
	descInfo        = describe("info", "What runs here; always 1.", "version", "cluster", "broker", "zone")
	descReady       = describe("ready", "1 while clients are taken.")
	descJoined      = describe("joined", "1 once this node has registered.")
	descMembers     = describe("members", "Brokers in the membership as this node knows it.")
	descConnections = describe("connections", "Clients connected.")
	descAccepted    = describe("connections_total", "Clients that ever connected.")
	descClosed      = describe("connections_closed_total", "Clients that are gone, by reason.", "reason")
	descSlow        = describe("slow_consumers_total", "Clients closed because they did not keep up.")
	descSubs        = describe("subscriptions", "Subscriptions of this node's clients.")
	descMessages    = describe("messages_total", "Messages from (in) and to (out) clients.", "direction")
	descBytes       = describe("message_bytes_total", "Their bytes, headers included.", "direction")
	descPending     = describe("pending_bytes", "Bytes waiting for clients that are behind.")
	descPendingMax  = describe("pending_bytes_limit", "What may wait for all clients together.")
	descBehind      = describe("connections_behind", "Clients that are behind now.")
	descStalls      = describe("publisher_stalls_total", "Times that a publisher waited for a sender loop.")
	descRefusals    = describe("auth_refusals_total", "Clients refused for wrong or missing credentials.")
	descRouteUp     = describe("route_up", "1 while the link to that broker is up.", "peer")
	descRouteRTT    = describe("route_rtt_seconds", "Round trip on that link.", "peer")
	descRoutePend   = describe("route_pending_bytes", "Bytes waiting for that broker.", "peer")
	descRouteMsgs   = describe("route_messages_total", "Messages over that link.", "peer", "direction")
	descRouteBytes  = describe("route_bytes_total", "Bytes over that link.", "peer", "direction")
	descRouteLost   = describe("route_lost_messages_total", "Messages dropped with a link that ended.", "peer")
	descRouteRefuse = describe("route_refusals_total", "Connections on the route port that were turned away.", "cause")
	descCertificate = describe("certificate_not_after_seconds", "When this node's certificate expires, in Unix time.")
	descReloads     = describe("certificate_reload_failures_total", "Certificate files that could not be read again.")
)

func (m metrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

func (m metrics) Collect(to chan<- prometheus.Metric) {
	b := m.b
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	s := b.hub.Stats()
	b.mu.Lock()
	members := len(b.members)
	b.mu.Unlock()
	gauge(descInfo, 1, b.config.Version, b.config.Cluster, b.identity.ID, b.config.Zone)
	gauge(descReady, truth(b.ready.Load()))
	gauge(descJoined, truth(b.joined.Load()))
	gauge(descMembers, float64(members))
	gauge(descConnections, float64(s.Connections))
	count(descAccepted, s.TotalConnections)
	for why, n := range s.Ended {
		count(descClosed, n, string(why))
	}
	count(descSlow, s.SlowConsumers())
	gauge(descSubs, float64(s.Subscriptions))
	count(descMessages, s.InMsgs, "in")
	count(descMessages, s.OutMsgs, "out")
	count(descBytes, s.InBytes, "in")
	count(descBytes, s.OutBytes, "out")
	gauge(descPending, float64(s.PendingBytes))
	gauge(descPendingMax, float64(b.config.Profile.NodePending))
	gauge(descBehind, float64(s.Parked))
	count(descStalls, s.Stalls)
	count(descRefusals, s.Refusals)
	if t := b.config.TLS; t != nil {
		failures, _ := t.ReloadFailures()
		gauge(descCertificate, float64(t.NotAfter().Unix()))
		count(descReloads, failures)
	}
	b.topicMetrics(to, gauge, count)
	if b.mesh == nil {
		return
	}
	routes := b.mesh.Stats()
	for cause, n := range routes.Refused {
		count(descRouteRefuse, n, string(cause))
	}
	named := make(map[string]bool)
	for _, p := range routes.Peers {
		peer := p.Name
		if named[peer] { // an old life of the same pod: tell them apart
			peer += "/" + p.ID
		}
		named[peer] = true
		gauge(descRouteUp, truth(p.Up), peer)
		gauge(descRouteRTT, p.RTT.Seconds(), peer)
		gauge(descRoutePend, float64(p.Pending), peer)
		count(descRouteMsgs, p.InMessages, peer, "in")
		count(descRouteMsgs, p.OutMessages, peer, "out")
		count(descRouteBytes, p.InBytes, peer, "in")
		count(descRouteBytes, p.OutBytes, peer, "out")
		count(descRouteLost, p.LostMessages, peer)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
