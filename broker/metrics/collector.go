package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-mq/carillon/broker/route"
	"github.com/carillon-mq/carillon/broker/session"
)

// Collector collects the metrics of one broker.
type Collector struct{ sources Sources }

var _ prometheus.Collector = Collector{}

// New returns a Collector that reads sources at each scrape.
func New(sources Sources) Collector { return Collector{sources} }

// sample emits the metrics of one scrape.
type sample chan<- prometheus.Metric

func (s sample) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sample) count(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// seconds emits a counter of seconds.
func (s sample) seconds(d *prometheus.Desc, v float64) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("carillon_"+name, help, labels, nil)
}

var (
	descInfo        = describe("info", "What runs here; always 1.", "version", "cluster", "broker", "zone")
	descReady       = describe("ready", "1 while clients are taken.")
	descJoined      = describe("joined", "1 once this node has registered.")
	descMembers     = describe("members", "Brokers in the membership as this node knows it.")
	descGeneration  = describe("etcd_generation", "How often etcd was restored from a backup, as brokers noticed it.")
	descConnections = describe("connections", "Clients connected.")
	descAccepted    = describe("connections_total", "Clients that ever connected.")
	descClosed      = describe("connections_closed_total", "Clients that are gone, by reason.", "reason")
	descWebSockets  = describe("websocket_connections", "Clients connected by WebSocket.")
	descUpgrades    = describe("websocket_upgrades_total", "Requests to the port for WebSocket, by outcome: done, refused, or timeout.", "outcome")
	descSlow        = describe("slow_consumers_total", "Clients closed because they did not keep up.")
	descSubs        = describe("subscriptions", "Subscriptions of this node's clients.")
	descInterest    = describe("interest_bytes", "What the subscriptions of this node's clients are estimated to take.")
	descMessages    = describe("messages_total", "Messages from (in) and to (out) clients.", "direction")
	descBytes       = describe("message_bytes_total", "Their bytes, headers included.", "direction")
	descPending     = describe("pending_bytes", "Bytes waiting for clients that are behind.")
	descPendingMax  = describe("pending_bytes_limit", "What may wait for all clients together.")
	descInput       = describe("input_bytes", "Buffers of large operations that are being read from clients.")
	descInputMax    = describe("input_bytes_limit", "What these buffers may take.")
	descInputWait   = describe("input_waiting", "Clients whose large operations wait for room.")
	descInputEvict  = describe("input_evictions_total", "Clients closed because others waited for the room of their slow operations.")
	descBehind      = describe("connections_behind", "Clients that are behind now.")
	descStalls      = describe("publisher_stalls_total", "Times that a publisher waited for a sender loop.")
	descRateWait    = describe("user_rate_wait_seconds_total", "For how long connections waited, because their users published all that their limits allow.")
	descRateBrokers = describe("user_rate_brokers", "Other brokers that divide users' limits a second with this one, while a broker has users that need it: heard, or unheard, which then have equal portions.", "state")
	descHandshakes  = describe("tls_handshakes_total", "TLS handshakes with clients, by outcome: done, failed, timeout, or a plaintext client that was refused.", "outcome")
	descRefusals    = describe("auth_refusals_total", "Clients refused for wrong or missing credentials.")
	descViolations  = describe("permission_violations_total", "Publishes and subscriptions that clients had no right to.")
	descUsers       = describe("users", "Users in etcd, as this node applied them: those that may connect (valid), and those with a mistake (wrong).", "state")
	descUsersStale  = describe("users_stale_seconds", "For how long etcd has been silent, so that changes of users don't arrive; 0 while it answers.")
	descRouteUp     = describe("route_up", "1 while the link to that broker is up.", "peer")
	descRouteRTT    = describe("route_rtt_seconds", "Round trip on that link.", "peer")
	descRoutePend   = describe("route_pending_bytes", "Bytes waiting for that broker.", "peer")
	descRouteMsgs   = describe("route_messages_total", "Messages over that link.", "peer", "direction")
	descRouteBytes  = describe("route_bytes_total", "Bytes over that link.", "peer", "direction")
	descRouteLost   = describe("route_lost_messages_total", "Messages dropped with a link that ended.", "peer")
	descRouteRefuse = describe("route_refusals_total", "Connections on the route port that were turned away.", "cause")
	descCertificate = describe("certificate_not_after_seconds", "When this node's certificate for links expires, in Unix time.")
	descReloads     = describe("certificate_reload_failures_total", "Certificate files that could not be read again.")
	descEtcdCert    = describe("etcd_certificate_not_after_seconds", "When this node's certificate for etcd expires, in Unix time. Absent if it is the one for links.")
	descEtcdReads   = describe("etcd_certificate_reload_failures_total", "Files of the certificate for etcd that could not be read again.")
	descClientCert  = describe("client_certificate_not_after_seconds", "When the certificate that clients see expires, in Unix time.")
	descClientReads = describe("client_certificate_reload_failures_total", "Files of that certificate that could not be read again.")
)

// Describe sends the descriptors of all metrics of a scrape.
func (c Collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect reads all sources.
func (c Collector) Collect(to chan<- prometheus.Metric) {
	c.node(to)
	clients(to, c.sources.Clients.Stats())
	if c.sources.Routes != nil {
		routes(to, c.sources.Routes.Stats())
	}
	stall := c.sources.Node.Stall()
	sample(to).gauge(descDiskStalled, stall.For.Seconds())
	if stall.What != "" {
		// A goroutine that hangs on the disk may hold the locks that the rest needs.
		return
	}
	c.topics(to)
	c.replicas(to)
	c.subscriptions(to)
	pushes(to, c.sources.Push.Stats())
	copies(to, c.sources.Sourcing.Stats())
	views(to, c.sources.Views.Stats())
	c.disk(to)
	c.clock(to)
}

func (c Collector) node(to sample) {
	s := &c.sources
	to.gauge(descInfo, 1, s.Version, s.Cluster, s.Broker, s.Zone)
	to.gauge(descReady, truth(s.Node.Ready()))
	to.gauge(descJoined, truth(s.Node.Joined()))
	to.gauge(descMembers, float64(len(s.Node.Members())))
	to.gauge(descGeneration, float64(s.Node.Generation()))
	to.gauge(descPendingMax, float64(s.ClientPendingLimit))
	if s.TLS != nil {
		failures, _ := s.TLS.ReloadFailures()
		to.gauge(descCertificate, float64(s.TLS.NotAfter().Unix()))
		to.count(descReloads, failures)
	}
	if s.EtcdTLS != nil {
		failures, _ := s.EtcdTLS.ReloadFailures()
		to.gauge(descEtcdCert, float64(s.EtcdTLS.NotAfter().Unix()))
		to.count(descEtcdReads, failures)
	}
	if s.Users != nil {
		right, wrong := s.Users.Counts()
		to.gauge(descUsers, float64(right), "valid")
		to.gauge(descUsers, float64(wrong), "wrong")
		to.gauge(descUsersStale, s.Users.Stale().Seconds())
	}
	if s.ClientTLS != nil {
		failures, _ := s.ClientTLS.ReloadFailures()
		to.gauge(descClientCert, float64(s.ClientTLS.NotAfter().Unix()))
		to.count(descClientReads, failures)
	}
}

func clients(to sample, s session.Stats) {
	to.gauge(descConnections, float64(s.Connections))
	to.count(descAccepted, s.TotalConnections)
	for why, n := range s.Ended {
		to.count(descClosed, n, string(why))
	}
	to.count(descSlow, s.SlowConsumers())
	to.gauge(descSubs, float64(s.Subscriptions))
	to.gauge(descInterest, float64(s.InterestBytes))
	to.count(descMessages, s.InMsgs, "in")
	to.count(descMessages, s.OutMsgs, "out")
	to.count(descBytes, s.InBytes, "in")
	to.count(descBytes, s.OutBytes, "out")
	to.gauge(descPending, float64(s.PendingBytes))
	to.gauge(descInput, float64(s.InputBytes))
	to.gauge(descInputMax, float64(s.InputLimit))
	to.gauge(descInputWait, float64(s.InputWaiting))
	to.count(descInputEvict, s.Ended[session.SlowProducer])
	to.gauge(descBehind, float64(s.Parked))
	to.count(descStalls, s.Stalls)
	to.seconds(descRateWait, s.RateWaited.Seconds())
	to.gauge(descRateBrokers, float64(s.RateHeard), "heard")
	to.gauge(descRateBrokers, float64(s.RateUnheard), "unheard")
	to.count(descRefusals, s.Refusals)
	to.count(descViolations, s.Violations)
	for outcome, n := range s.Handshakes {
		to.count(descHandshakes, n, string(outcome))
	}
	to.gauge(descWebSockets, float64(s.WebSockets))
	for outcome, n := range s.Upgrades {
		to.count(descUpgrades, n, string(outcome))
	}
}

func routes(to sample, s route.Stats) {
	for cause, n := range s.Refused {
		to.count(descRouteRefuse, n, string(cause))
	}
	named := make(map[string]bool)
	for _, p := range s.Peers {
		peer := p.Name
		// An earlier process of the same pod: labels must be unique.
		if named[peer] {
			peer += "/" + p.ID
		}
		named[peer] = true
		to.gauge(descRouteUp, truth(p.Up), peer)
		to.gauge(descRouteRTT, p.RTT.Seconds(), peer)
		to.gauge(descRoutePend, float64(p.Pending), peer)
		to.count(descRouteMsgs, p.InMessages, peer, "in")
		to.count(descRouteMsgs, p.OutMessages, peer, "out")
		to.count(descRouteBytes, p.InBytes, peer, "in")
		to.count(descRouteBytes, p.OutBytes, peer, "out")
		to.count(descRouteLost, p.LostMessages, peer)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
