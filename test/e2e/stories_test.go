//go:build e2e

package e2e

import "testing"

// TestStories is the life of one installation. Each story starts with the state that the one before
// left.
func TestStories(t *testing.T) {
	e := newEnvironment(t)
	defer func() {
		if e.watched != nil {
			e.watched.load.Stop()
		}
	}()
	for _, story := range []struct {
		name string
		tell func(*testing.T, *environment)
	}{
		{"helm installs the operator", install},
		{"an endpoint is declared before its Broker", pushDeclared},
		{"the samples become three brokers and three coordinators", samples},
		{"clients talk through every broker", talk},
		{"Topics and Subscriptions serve clients of every broker", topicsServe},
		{"records are pushed to the endpoint of a Service, in order, with a header and a certificate from Secrets", pushServes},
		{"the benchmark Job prints percentiles and loses nothing", benchmark},
		{"a converged cluster is left alone", quiescence},
		{"a manifest that is wrong is refused with a word on what is right", garbage},
		{"users connect by TLS and WebSocket while the certificate is renewed", secured},
		{"a Subscription tells that its endpoint is gone", pushDown},
		{"a View writes each window and each alert once, and its broker is killed meanwhile", viewComputes},
		{"a Topic is used from now on", watchBegins},
		{"a broker pod is deleted under load", brokerDeleted},
		{"a broker is killed under load", brokerKilled},
		{"the broker of a Topic is killed under load", topicBrokerKilled},
		{"a leader of a Topic of several shards is killed under load", shardsLoseALeader},
		{"an endpoint that was gone gets everything, in order", pushEnds},
		{"the node of a Topic's leader is cut off under load", leaderCut},
		{"the node of a Topic's only broker is cut off", onlyBrokerCut},
		{"a broker is taken away and added again under load", scaleDownAndUp},
		{"a coordinator pod is deleted under load", coordinatorDeleted},
		{"a node is cut off under load and heals", nodeCut},
		{"two nodes stop hearing each other and heal", pairCut},
		{"a thousand Topics are applied at once", inPeace(aThousandTopics)},
		{"Topics are deleted and made again", topicOwners},
		{"the Broker is deleted and made again under its Topics", brokerMadeAgain},
		{"a broker's volume is lost under load", volumeLost},
		{"helm upgrades to another image under load", upgrade},
		{"of the Topic that was used all the time nothing is lost, doubled or out of order, on any replica", watchEnds},
		{"helm test passes", helmTest},
		{"everything is deleted in the worst order", removal},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, e) }) {
			return // later stories would fail for the same reason
		}
	}
}
