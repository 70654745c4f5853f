package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// members returns all brokers, sorted by name, those without a known name last.
func (b *brokers) members(ctx context.Context) ([]admin.Member, error) {
	all := []admin.Member{}
	for after := ""; ; {
		var list admin.BrokerList
		if err := b.ask(ctx, admin.BrokerListSubject, admin.ListRequest{After: after}, &list); err != nil {
			return nil, err
		}
		if list.Error != nil {
			return nil, list.Error
		}
		all = append(all, list.Brokers...)
		if after = list.Next; after == "" {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b admin.Member) int {
		if (a.Name == "") != (b.Name == "") {
			return strings.Compare(b.Name, a.Name)
		}
		return byNumber(a.Name, b.Name)
	})
	return all, nil
}

// byNumber compares names so that main-2 comes before main-10.
func byNumber(a, b string) int {
	part := func(name string) (string, int) {
		i := strings.LastIndexByte(name, '-')
		n, err := strconv.Atoi(name[i+1:])
		if err != nil || n < 0 {
			return name, -1
		}
		return name[:i+1], n
	}
	setA, numberA := part(a)
	setB, numberB := part(b)
	return cmp.Or(strings.Compare(setA, setB), cmp.Compare(numberA, numberB))
}

// member finds a broker by its name or its id.
func (b *brokers) member(ctx context.Context, name string) (*admin.Member, error) {
	all, err := b.members(ctx)
	if err != nil {
		return nil, b.explain("list brokers", err)
	}
	var found []admin.Member
	for _, m := range all {
		if m.ID == name {
			return &m, nil
		}
		if m.Name == name {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return &found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no broker %q (see: carillon brokers; one that is away may go by its id only)", name)
	}
	ids := make([]string, 0, len(found))
	for _, m := range found {
		ids = append(ids, m.ID)
	}
	return nil, fmt.Errorf("%d brokers are named %s (give the id of one: %s)", len(found), name, strings.Join(ids, ", "))
}

func printBrokers(w io.Writer, members []admin.Member) error {
	rows := [][]string{{"NAME", "ID", "ZONE", "VERSION", "AGE", "LEADS", "HOLDS", "IN SYNC", "SUSPECT", "STATUS"}}
	for _, m := range members {
		rows = append(rows, []string{cmp.Or(m.Name, "-"), m.ID, cmp.Or(m.Zone, "-"), cmp.Or(m.Version, "-"), agoText(m.Started),
			strconv.Itoa(m.Leads), strconv.Itoa(m.Holds), strconv.Itoa(m.InSync), strconv.Itoa(m.Suspect), memberStatus(&m)})
	}
	return printTable(w, rows)
}

// memberStatus returns the text of the last column.
func memberStatus(m *admin.Member) string {
	status := "member"
	switch {
	case m.Away:
		status = "away"
	case m.Controller:
		status = "member, controller"
	}
	if text := drainText(m); text != "" {
		status += ", " + text
	}
	return status
}

// drainText describes the progress of a drain; empty: none.
func drainText(m *admin.Member) string {
	switch m.Drain {
	case "":
		return ""
	case coordination.DrainLeadership:
		if m.Leads > 0 {
			return "draining leadership"
		}
		return "drained of leadership"
	}
	switch {
	case m.Blocked > 0:
		return fmt.Sprintf("drain blocked for %d", m.Blocked)
	case m.Holds > 0:
		return "draining"
	}
	return "drained"
}
