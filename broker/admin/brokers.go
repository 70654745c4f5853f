package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/placement"
)

// maxBlocked bounds the shards of drained brokers whose reason to stay is computed.
const maxBlocked = 256

// BrokerList is one page of all brokers, sorted by id.
type BrokerList struct {
	Error    *Error   `json:"error,omitempty"`
	Revision int64    `json:"revision"`
	Total    int      `json:"total"`
	Brokers  []Member `json:"brokers"`
	Next     string   `json:"next,omitempty"` // set if there is more: request the page after this id
}

// BrokerInfo is one broker.
type BrokerInfo struct {
	Error    *Error  `json:"error,omitempty"`
	Revision int64   `json:"revision"`
	Broker   *Member `json:"broker,omitempty"`
}

// Member is a registered broker, or one that is away and has shards or is drained. Of the latter
// the addresses are unknown.
type Member struct {
	Broker
	Zone        string    `json:"zone,omitempty"`
	Version     string    `json:"version,omitempty"`
	Started     time.Time `json:"started,omitzero"`
	Incarnation int64     `json:"incarnation,omitempty"`
	Client      string    `json:"client,omitempty"` // host:port, as the following
	Route       string    `json:"route,omitempty"`
	HTTP        string    `json:"http,omitempty"`
	Controller  bool      `json:"controller,omitempty"` // it places shards and elects their leaders

	Leads   int `json:"leads"`   // shards
	Holds   int `json:"holds"`   // replicas, including those it leads, receives or gives up
	InSync  int `json:"inSync"`  // of Holds
	Suspect int `json:"suspect"` // of Holds: replicas that it cannot vouch for

	Drain coordination.DrainMode `json:"drain,omitempty"`
	// Blocked is the number of replicas that cannot leave a drained broker, and Why the reason for
	// one of them.
	Blocked int    `json:"blocked,omitempty"`
	Why     string `json:"why,omitempty"`
}

// members returns all brokers that are registered, have shards or are drained, sorted by id.
func (v view) members() []Member {
	all := make(map[string]*Member, len(v.state.Brokers))
	of := func(id string) *Member {
		m := all[id]
		if m == nil {
			m = &Member{Broker: v.broker(id), Drain: v.state.Drain(id)}
			all[id] = m
		}
		return m
	}
	for _, b := range v.state.Brokers {
		*of(b.ID) = Member{
			Broker: v.broker(b.ID), Zone: b.Zone, Version: b.Version, Started: b.Started, Incarnation: b.Incarnation,
			Client: b.Client, Route: b.Route, HTTP: b.HTTP, Drain: v.state.Drain(b.ID),
			Controller: v.state.Controller.Term != 0 && v.state.Controller.Broker == b.ID,
		}
	}
	for id := range v.state.Drains() {
		of(id)
	}
	leaving := map[*coordination.Topic]bool{}
	for s := range v.state.AllShards() {
		if v.led(s) {
			of(s.Leader).Leads++
		}
		for _, id := range s.Replicas {
			m := of(id)
			m.Holds++
			if r := v.replica(s, id); r.InSync {
				m.InSync++
			} else if r.Suspect {
				m.Suspect++
			}
			if t := v.state.TopicByID(s.Topic); m.Drain == coordination.DrainAll && t != nil && len(leaving) < maxBlocked {
				leaving[t] = true
			}
		}
	}
	v.blocked(all, leaving)
	members := make([]Member, 0, len(all))
	for _, m := range all {
		members = append(members, *m)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return members
}

// blocked sets why drained brokers keep replicas, as the planner sees it.
func (v view) blocked(members map[string]*Member, leaving map[*coordination.Topic]bool) {
	if len(leaving) == 0 {
		return
	}
	topics := make([]*coordination.Topic, 0, len(leaving))
	for t := range leaving {
		topics = append(topics, t)
	}
	for _, w := range placement.Decide(placement.FactsOf(v.state, topics...)).Waits {
		s := v.state.Shard(w.Topic.ID, w.Shard)
		if w.Reason != placement.DrainBlocked || s == nil {
			continue
		}
		for _, id := range s.Replicas {
			if m := members[id]; m.Drain == coordination.DrainAll {
				m.Blocked++
				if m.Why == "" {
					m.Why = w.Why
				}
			}
		}
	}
}

func (v view) brokerList(page ListRequest) BrokerList {
	all := v.members()
	list := BrokerList{Revision: v.state.Revision, Total: len(all), Brokers: []Member{}}
	for _, m := range all {
		switch {
		case m.ID <= page.After:
			continue
		case len(list.Brokers) == page.Limit:
			list.Next = list.Brokers[page.Limit-1].ID
			return list
		}
		list.Brokers = append(list.Brokers, m)
	}
	return list
}

// member returns the broker with that id, or nil.
func (v view) member(id string) *Member {
	all := v.members()
	i, ok := slices.BinarySearchFunc(all, id, func(m Member, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return &all[i]
}

// drain begins or ends a drain.
func (s *Server) drain(ctx context.Context, r *request) BrokerInfo {
	v := s.view()
	info := BrokerInfo{Revision: v.state.Revision}
	before := v.member(r.broker)
	if before == nil {
		info.Error = refuse(NotFound, "there is no broker with the id %.100q (see: carillon brokers)", r.broker)
		return info
	}
	mode, err := coordination.DrainMode(""), error(nil)
	if r.kind == brokerDrain {
		if mode = r.drain.Mode; mode == "" {
			mode = coordination.DrainAll
		}
		err = s.store.Drain(ctx, coordination.Replica{Broker: r.broker}, mode, false)
	} else {
		err = s.store.EndDrain(ctx, r.broker)
	}
	if err != nil {
		info.Error = s.notWritten("drain broker "+r.broker, err)
		return info
	}
	if before.Drain != mode {
		s.log.Info("A client changed what a broker is relieved of", "broker", r.broker, "name", before.Name, "was", before.Drain, "drain", mode)
		s.followed(ctx, func(state *coordination.State) bool { return state.Drain(r.broker) != before.Drain })
	}
	v = s.view()
	after := v.member(r.broker)
	if after == nil { // it was known for its drain only
		after = &Member{Broker: before.Broker}
	}
	info.Revision, info.Broker = v.state.Revision, after
	return info
}
