package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/admin"
)

// replicaCount returns "2/3": in-sync replicas of all replicas, for the shard with the fewest.
func (v *topicView) replicaCount() string {
	var worst *admin.Shard
	for i := range v.Shards {
		s := &v.Shards[i]
		if s.Want > 0 && (worst == nil || cmp.Or(cmp.Compare(worst.Want-worst.InSync, s.Want-s.InSync), cmp.Compare(s.InSync, worst.InSync)) < 0) {
			worst = s
		}
	}
	switch {
	case worst != nil:
		return fmt.Sprintf("%d/%d", worst.InSync, worst.Want)
	case v.Spec.Replicas > 0:
		return fmt.Sprintf("-/%d", v.Spec.Replicas)
	}
	return "-"
}

// inSync returns the brokers with an in-sync replica, the leaders first.
func (v *topicView) inSync() (names []string) {
	for _, leads := range []bool{true, false} {
		for i := range v.Shards {
			names = distinct(names, inSyncOf(&v.Shards[i], leads))
		}
	}
	return names
}

func (v *topicView) missing() (names []string) {
	for i := range v.Shards {
		names = distinct(names, missingOf(&v.Shards[i]))
	}
	return names
}

func distinct(names, more []string) []string {
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// inSyncOf returns the in-sync replicas of one shard: the leader, or the others.
func inSyncOf(s *admin.Shard, leads bool) (names []string) {
	for _, r := range s.Replicas {
		if r.InSync && leads == (s.Leader != nil && s.Leader.ID == r.ID) {
			names = append(names, brokerText(r.Broker))
		}
	}
	slices.SortFunc(names, byNumber)
	return names
}

// missingOf returns the out-of-sync replicas, each with its reason, and the number of unplaced
// ones.
func missingOf(s *admin.Shard) (names []string) {
	there := 0
	for _, r := range s.Replicas {
		if r.Removing {
			continue
		}
		there++
		switch {
		case r.InSync:
		case r.Away:
			names = append(names, brokerText(r.Broker))
		case r.Suspect:
			names = append(names, brokerText(r.Broker)+" (suspect)")
		default:
			names = append(names, brokerText(r.Broker)+" (catching up)")
		}
	}
	slices.Sort(names)
	if more := s.Want - there; more > 0 {
		names = append(names, fmt.Sprintf("%d without a broker", more))
	}
	return names
}

// replicasText describes the wanted replicas.
func (v *topicView) replicasText() string {
	text := "3, or as many as there are brokers"
	if v.Spec.Replicas > 0 {
		text = fmt.Sprint(v.Spec.Replicas)
	}
	switch {
	case v.Spec.Replicas == 1:
		return text
	case v.Spec.MinInSync > 0:
		return fmt.Sprintf("%s; publishing needs %d in sync", text, v.Spec.MinInSync)
	}
	return text + "; publishing needs a majority in sync"
}

// replicaRows returns rows with the replicas of one shard.
func replicaRows(s *admin.Shard) (rows [][2]string) {
	if s.Want == 0 {
		return nil // not placed yet
	}
	names := append(inSyncOf(s, true), inSyncOf(s, false)...)
	rows = append(rows, [2]string{"  in sync", fmt.Sprintf("%d of %d, at least %d: %s", s.InSync, s.Want, s.MinInSync, cmp.Or(strings.Join(names, ", "), "-"))})
	if names := missingOf(s); len(names) > 0 {
		rows = append(rows, [2]string{"  missing", strings.Join(names, ", ")})
	}
	var leaving []string
	for _, r := range s.Replicas {
		if r.Removing {
			leaving = append(leaving, brokerText(r.Broker))
		}
	}
	if len(leaving) > 0 {
		rows = append(rows, [2]string{"  leaving", strings.Join(leaving, ", ")})
	}
	return rows
}
