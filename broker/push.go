package broker

import (
	"net"
	"net/url"
	"os"

	"github.com/carillon-mq/carillon/broker/push"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/broker/topic"
)

// startPush prepares to send records to URLs.
func (b *Broker) startPush() {
	b.topics.push = push.New(push.Config{Cluster: b.config.Cluster, Allowed: b.config.PushAllow, Control: b.controlHosts, Secrets: b.config.PushSecrets, Logger: b.log})
}

// endpoint adapts the pushes to package subscription.
func (t *topics) endpoint(s *subscription.Subscription, of *topic.Shard) subscription.Endpoint {
	return t.push.Endpoint(s, of)
}

// controlHosts returns the hosts that control this cluster, to which nothing is pushed.
func (b *Broker) controlHosts() (hosts []string) {
	if api := os.Getenv("KUBERNETES_SERVICE_HOST"); api != "" {
		hosts = append(hosts, api)
	}
	for _, endpoint := range b.config.Endpoints {
		if u, err := url.Parse(endpoint); err == nil && u.Hostname() != "" {
			hosts = append(hosts, u.Hostname())
		}
	}
	if state := b.topics.topics.State(); state != nil {
		for _, member := range state.Brokers {
			for _, address := range []string{member.Route, member.HTTP, member.Client} {
				if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
					hosts = append(hosts, host)
					break
				}
			}
		}
	}
	return hosts
}
