package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// event is an input of a shard: a record, or an advance.
type event struct {
	advance bool
	to      int64 // of an advance
	stored  int64 // of a record, in ms
	at      int64 // the time it names, in ms
	key     string
	n       int  // its number
	has     bool // there is one
}

const ms = int64(1e6)

// counted is a window as it should be.
type counted struct {
	key        string
	start, end int64 // ns
	count      int
	sum        int
	numbers    int
}

func (c *counted) String() string {
	mean := ""
	if c.numbers > 0 {
		mean = fmt.Sprint(float64(c.sum) / float64(c.numbers))
	}
	return fmt.Sprintf("%d-%d count=%d mean=%s", c.start/ms, c.end/ms, c.count, mean)
}

// recount computes what the outputs should have of whole logs, in the plainest way: first which
// records are late, shard by shard, and then all windows of the others.
func recount(s *Spec, logs [][]event) (windows map[string][]*counted, late uint64) {
	var accepted []event
	w := &s.Window
	gap, size, every := int64(w.Session), int64(w.Tumbling), int64(w.Tumbling)
	if w.Sliding != nil {
		size, every = int64(w.Sliding.Size), int64(w.Sliding.Every)
	}
	windows = map[string][]*counted{}
	into := func(e event, start, end int64) {
		i := slices.IndexFunc(windows[e.key], func(c *counted) bool { return c.start == start })
		if i < 0 {
			windows[e.key] = append(windows[e.key], &counted{key: e.key, start: start, end: end})
			i = len(windows[e.key]) - 1
		}
		windows[e.key][i].add(e)
	}
	for _, log := range logs {
		mark := int64(math.MinInt64)
		var here []event // accepted of this shard
		for _, e := range log {
			if e.advance {
				mark = max(mark, e.to)
				continue
			}
			at := eventTime(s, e)
			switch {
			case gap > 0:
				if at < mark && !slices.ContainsFunc(sessions(here, s, e.key), func(c *counted) bool {
					return c.end > mark && c.start <= at && at < c.end
				}) {
					late++
					break
				}
				here = append(here, e)
			default:
				for start := int64(math.Floor(float64(at)/float64(every))) * every; start > at-size; start -= every {
					if start+size <= mark {
						late++
					} else {
						into(e, start, start+size)
					}
				}
			}
			mark = max(mark, at-int64(w.Lateness))
		}
		accepted = append(accepted, here...)
	}
	if gap > 0 {
		for _, e := range accepted {
			windows[e.key] = nil
		}
		for key := range windows {
			windows[key] = sessions(accepted, s, key)
		}
	}
	for _, all := range windows {
		slices.SortFunc(all, func(a, b *counted) int { return cmp.Compare(a.end, b.end) })
	}
	return windows, late
}

func (c *counted) add(e event) {
	c.count++
	if e.has {
		c.sum += e.n
		c.numbers++
	}
}

func eventTime(s *Spec, e event) int64 {
	if s.Window.Time == "" {
		return e.stored * ms
	}
	return e.at * ms
}

// sessions returns the sessions of a key.
func sessions(of []event, s *Spec, key string) (all []*counted) {
	var mine []event
	for _, e := range of {
		if e.key == key {
			mine = append(mine, e)
		}
	}
	slices.SortStableFunc(mine, func(a, b event) int { return cmp.Compare(eventTime(s, a), eventTime(s, b)) })
	for _, e := range mine {
		at := eventTime(s, e)
		if n := len(all); n == 0 || at >= all[n-1].end {
			all = append(all, &counted{key: key, start: at})
		}
		last := all[len(all)-1]
		last.end = at + int64(s.Window.Session)
		last.add(e)
	}
	return all
}

// alerts returns those of a trigger: mean > 6, until mean < 4 or, without until, not > 6.
func alerts(windows []*counted, until bool) (all []string) {
	raised := false
	for _, c := range windows {
		if c.numbers == 0 {
			continue
		}
		mean := float64(c.sum) / float64(c.numbers)
		change := mean > 6
		if raised {
			change = mean < 4
			if !until {
				change = mean <= 6
			}
		}
		if change {
			raised = !raised
			all = append(all, fmt.Sprintf("%d %v %d", len(all)+1, raised, c.end/ms))
		}
	}
	return all
}
