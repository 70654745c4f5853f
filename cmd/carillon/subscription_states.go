package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/plan"
	"github.com/carillon-mq/carillon/controllers/status"
)

// conditionView is a condition as the status of a manifest would have it.
type conditionView struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// pushView is the state of the endpoint of one shard's leader.
type pushView struct {
	Shard  int    `json:"shard"`
	Leader string `json:"leader"` // name of the broker
	subscription.PushReport
	// Reason is why the endpoint is not reached; empty: it is, or nothing was sent yet.
	Reason string `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"`
}

// states are what the brokers of a cluster know of the Subscriptions of one Topic.
type states struct {
	reports map[string][]subscription.Report // by Subscription, of each shard
	pushes  map[string][]pushView
	clients map[string]int64 // by Subscription, of all brokers
	unknown bool             // a broker did not tell of its clients
}

// statesOf asks each broker for the state of a Topic's Subscriptions, or of the one with that name.
// Brokers that don't answer are left out: they may be of an earlier version.
func (b *brokers) statesOf(ctx context.Context, topic, name string) *states {
	all := &states{reports: map[string][]subscription.Report{}, pushes: map[string][]pushView{}, clients: map[string]int64{}}
	members, err := b.members(ctx)
	if err != nil {
		all.unknown = true
		return all
	}
	for _, member := range members {
		if member.Away {
			continue
		}
		for after := ""; ; {
			var said admin.SubscriptionStates
			request := admin.StatesRequest{Name: name, ListRequest: admin.ListRequest{After: after}}
			if err := b.ask(ctx, admin.SubscriptionStatesSubject+topic+"."+member.ID, request, &said); err != nil {
				all.unknown = true
				return all // the next one would take as long
			}
			if said.Error != nil {
				all.unknown = true
				break
			}
			all.add(&said)
			if after = said.Next; after == "" {
				break
			}
		}
	}
	return all
}

func (a *states) add(said *admin.SubscriptionStates) {
	for name, n := range said.Clients {
		a.clients[name] += int64(n)
	}
	for _, lead := range said.Shards {
		for _, r := range lead.Subscriptions {
			a.reports[r.Name] = append(a.reports[r.Name], r)
			if r.Push != nil && said.Broker != nil {
				a.pushes[r.Name] = append(a.pushes[r.Name], pushView{lead.Shard, brokerText(*said.Broker), *r.Push, r.Endpoint, r.EndpointWhy})
			}
		}
	}
}

// describe adds to a view what the brokers told of it.
func (a *states) describe(v *subscriptionView) {
	v.Push = a.pushes[v.Name]
	slices.SortFunc(v.Push, func(x, y pushView) int { return cmp.Compare(x.Shard, y.Shard) })
	var sum mirror.SubscriptionNumbers
	trouble := ""
	for _, r := range a.reports[v.Name] {
		endpoints := int64(0)
		if r.Push != nil && r.Push.Answer != "" && r.Endpoint == "" {
			endpoints = 1
		}
		sum = sum.Plus(mirror.SubscriptionNumbers{
			DeadLettered: int64(r.DeadLettered), GivenUp: int64(r.GivenUp), DeadLetterTrouble: r.DeadLetterTrouble,
			Endangered: r.Endangered, Endpoint: r.Endpoint, EndpointWhy: r.EndpointWhy, Endpoints: endpoints,
		})
		if v.Numbers != nil {
			v.Numbers.Unjudged += r.Unjudged
			v.Numbers.UnjudgedWhy = cmp.Or(v.Numbers.UnjudgedWhy, r.UnjudgedWhy)
		}
		trouble = cmp.Or(trouble, r.Trouble)
	}
	if v.Numbers != nil && len(a.reports[v.Name]) > 0 {
		v.Numbers.DeadLettered, v.Numbers.GivenUp = sum.DeadLettered, sum.GivenUp
	}
	sum.Clients = a.clients[v.Name]
	if members := sum.Members(); v.Numbers != nil && !a.unknown {
		v.Numbers.Members = &members
	}
	v.Conditions = conditionsOf(v, trouble)
	for _, c := range status.Troubles(&sum) {
		v.Conditions = append(v.Conditions, conditionView{c.Type, string(c.Status), c.Reason, c.Message})
	}
}

// conditionsOf returns the conditions that are known of each Subscription. trouble is why a leader
// can't read records, or "".
func conditionsOf(v *subscriptionView, trouble string) (all []conditionView) {
	switch {
	case v.Served == nil:
	case !*v.Served:
		all = append(all, conditionView{v1alpha1.ConditionReady, "False", string(v.Reason), v.Why})
	case trouble != "":
		all = append(all, conditionView{v1alpha1.ConditionReady, "False", string(admin.Trouble), trouble})
	default:
		all = append(all, conditionView{v1alpha1.ConditionReady, "True", string(cmp.Or(v.Reason, admin.Reason(plan.Served))), cmp.Or(v.Why, "it is served")})
	}
	if until := v.Spec.Consumer.PauseUntil; until.After(time.Now()) {
		all = append(all, conditionView{v1alpha1.ConditionPaused, "True", status.ReasonRequested, "nothing is delivered before " + timeText(until) + ", and acks count"})
	}
	return all
}

// text returns the state of an endpoint in one line.
func (p *pushView) text(now time.Time) string {
	var parts []string
	switch {
	case !p.Retry.IsZero():
		parts = append(parts, "circuit open, "+nextTry(p.Retry, now))
	case p.Reason != "":
		parts = append(parts, "circuit closed, not reached")
	case p.Answer == "":
		parts = append(parts, "nothing was sent yet")
	default:
		parts = append(parts, "circuit closed")
	}
	if p.Answer != "" {
		parts = append(parts, fmt.Sprintf("last answer %s ago: %s", durationText(max(now.Sub(p.Answered), 0).Round(time.Second)), p.Answer))
	}
	if p.Sending > 0 || p.Held > 0 {
		parts = append(parts, fmt.Sprintf("%d requests under way, %d records at hand", p.Sending, p.Held))
	}
	return strings.Join(parts, "; ")
}

func nextTry(at, now time.Time) string {
	if wait := at.Sub(now).Round(time.Second); wait > 0 {
		return "next try in " + durationText(wait)
	}
	return "next try now"
}

// pushSettings returns the settings of an endpoint in one line.
func pushSettings(p *coordination.Push) string {
	text := fmt.Sprintf("%s (%s)", p.URL, p.Format)
	if p.Batch != nil {
		text += fmt.Sprintf(", up to %d records in a request", p.Batch.MaxRecords)
	}
	return text
}
