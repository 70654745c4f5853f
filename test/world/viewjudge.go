package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/view"
	"github.com/carillon-mq/carillon/broker/viewing"
	"github.com/carillon-mq/carillon/test/recount"
)

// Views are judged by a recount of what their Topic's shards have, in the end and again of what is
// on the disks after it: each closed window is there once, and each alert, in order. A View of a
// Topic that has lost records, or removes some, is not judged: what it had read of them is in its
// results. Neither is one whose output has lost messages. In all worlds what was acknowledged to
// the owner of a View stays where it is (J1).

// presentTime bounds a question for present values. Otherwise it is asked again.
const presentTime = 5 * time.Second

// readings notes what a message says to Views.
func (h *history) reads(value string, r *recount.Reading) {
	if r != nil {
		h.readings[value] = r
	}
}

// writes notes a message that a View may have written from now on. The function that is returned
// notes at which offset it is acknowledged.
func (j *judge) writes(topic, on, value string) (wrote func(offset uint64)) {
	for _, d := range j.w.outputs {
		if d.name != topic {
			continue
		}
		id, call := d.shard(d.shardOf(on)), j.w.stamp()
		j.mu.Lock()
		defer j.mu.Unlock()
		h := j.of(id)
		if _, again := h.made[value]; !again {
			h.made[value], h.subjects[value] = j.w.now(), on
		}
		return func(offset uint64) {
			j.mu.Lock()
			defer j.mu.Unlock()
			h.learn(j.w, call, offset, value, "acknowledged")
		}
	}
	return func(uint64) {}
}

// judged reports whether a recount says what the Views of a Topic have to have.
func (j *judge) judged(d *declared) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if d.viewed == nil || d.retained() || d.kept() > 0 || d.removes() || !j.keeps(d) {
		return false
	}
	return !slices.ContainsFunc(j.w.outputs, func(o *declared) bool { return !j.keeps(o) })
}

// whyUnlikeARecount says in what Views differ from a recount of what is there, or returns an empty
// string.
func (w *world) whyUnlikeARecount() string {
	for _, d := range w.topics {
		if !w.judge.judged(d) {
			continue
		}
		if err := w.unlikeARecount(d); err != nil {
			return fmt.Sprintf("%s: the views %s and %s: %v", d.name, d.viewed.windowed, d.viewed.endless, err)
		}
	}
	return ""
}

func (w *world) unlikeARecount(d *declared) error {
	logs := map[shardID][]record{}
	var first *life
	var late uint64
	for _, of := range append(slices.Clone(w.outputs), d) {
		for n := range of.shards() {
			l, s, err := w.led(of, n)
			if err != nil {
				return err
			}
			if of == d {
				late += lateIn(l, s, d.viewed.windowed)
			}
			if first == nil && of == d {
				first = l
			}
			start, end := s.Offsets()
			if logs[of.shard(n)], err = readRecords(s.NewCursor(start), start, end); err != nil {
				return err
			}
		}
	}
	counted, err := w.judge.recount(d, logs)
	if err != nil {
		return err
	}
	if late != uint64(counted.Late) {
		return fmt.Errorf("views disagree with a recount: %d readings are late, want %d", late, counted.Late)
	}
	return w.presentUnlike(d, first, counted.Open, recount.Totals(w.judge.readings(d, logs), nil))
}

// led returns the leader of a shard.
func (w *world) led(d *declared, n int) (*life, *topic.ShardLeader, error) {
	l, why := w.inSync(d, n)
	if why != "" {
		return nil, nil, errors.New(d.shard(n).String() + " " + why)
	}
	if t := l.service.Topic(d.name); t != nil && t.ShardAt(n) != nil {
		return l, t.ShardAt(n), nil
	}
	return nil, nil, errors.New(d.shard(n).String() + " isn't led")
}

// lateIn returns how many messages of a shard were too late for a View's windows, as its leader
// reports it.
func lateIn(l *life, s *topic.ShardLeader, name string) uint64 {
	reports := l.views.Reports(s)
	if i := slices.IndexFunc(reports, func(r view.Report) bool { return r.Name == name }); i >= 0 {
		return reports[i].Late
	}
	return 0
}

// presentUnlike compares the present values of Views with those of a recount.
func (w *world) presentUnlike(d *declared, owner *life, open []recount.Written, totals map[string]recount.Sum) error {
	var want []recount.Written
	for room, sum := range totals {
		want = append(want, recount.Written{Room: room, Sum: sum})
	}
	slices.SortFunc(want, func(a, b recount.Written) int { return strings.Compare(a.Room, b.Room) })
	for name, want := range map[string][]recount.Written{d.viewed.windowed: open, d.viewed.endless: want} {
		ctx, cancel := context.WithTimeout(context.Background(), presentTime)
		_, s, err := w.led(d, 0)
		if err != nil {
			cancel()
			return err
		}
		page, err := owner.views.Values(ctx, s, name, &viewing.Ask{})
		cancel()
		if err != nil {
			return err
		}
		var got []recount.Written
		for i := range page.Values {
			data, err := json.Marshal(&page.Values[i])
			if err != nil {
				return err
			}
			is, _, err := recount.Parse(data)
			if err != nil {
				return err
			}
			if name == d.viewed.endless { // its times are those of the first and the last reading
				is.Start, is.End = 0, 0
			}
			got = append(got, is.Written)
		}
		if err := recount.Compare("present values of "+name, got, want); err != nil {
			return err
		}
	}
	return nil
}

// readings returns what shards have for Views.
func (j *judge) readings(d *declared, logs map[shardID][]record) [][]recount.Reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([][]recount.Reading, d.shards())
	for n := range all {
		h := j.of(d.shard(n))
		for _, r := range logs[h.id] {
			is := h.readings[r.value]
			if is == nil {
				continue // it has no room
			}
			one := *is
			if one.Offset, one.Stored = r.offset, r.time; d.viewed.stored {
				one.At = r.time
			}
			all[n] = append(all[n], one)
		}
	}
	return all
}

// recount compares what the Views of a Topic have written with a recount of logs.
func (j *judge) recount(d *declared, logs map[shardID][]record) (recount.Counted, error) {
	v, shards := d.viewed, j.readings(d, logs)
	counted := recount.Count(shards, v.windows)
	written := map[string][]recount.Present{} // by View and trigger
	for _, o := range j.w.outputs {
		for n := range o.shards() {
			for _, r := range logs[o.shard(n)] {
				part := strings.Split(r.subject, ".") // TOPIC.VIEW.KEY or TOPIC.VIEW.TRIGGER.KEY
				is, trigger, err := recount.Parse([]byte(r.value))
				if err != nil || len(part) < 3 || (trigger == "") != (o.name == resultsName) || trigger != "" && part[2] != trigger || part[len(part)-1] != is.Room {
					return counted, fmt.Errorf("views disagree with a recount: on %s stands %s (%v)", r.subject, r.value, err)
				}
				of := part[1] + trigger
				written[of] = append(written[of], is)
			}
		}
	}
	plain := func(of string) (all []recount.Written) {
		for _, is := range written[of] {
			all = append(all, is.Written)
		}
		return all
	}
	due := hot.Alerts(counted.Closed)
	err := errors.Join(
		recount.Compare("results", plain(v.windowed), counted.Closed),
		recount.Compare("alerts", plain(v.windowed+hot.Name), due),
		many.Judge(shards, written[v.endless+many.Name]),
		warm.Judge(shards, written[v.endless+warm.Name]))
	if j.ended {
		j.results += len(counted.Closed)
		j.alerts += len(due) + len(written[v.endless+many.Name]) + len(written[v.endless+warm.Name])
	}
	return counted, err
}

// views judges what Views have written, by what is on disks at the end.
func (j *judge) views(logs map[shardID][]record) {
	if j.w.broken != nil {
		return
	}
	for _, d := range j.w.topics {
		if !j.judged(d) || slices.ContainsFunc(append(slices.Clone(j.w.outputs), d), func(of *declared) bool {
			for n := range of.shards() {
				if _, judged := logs[of.shard(n)]; !judged {
					return true
				}
			}
			return false
		}) {
			continue
		}
		if _, err := j.recount(d, logs); err != nil {
			j.w.fail("%s: in the end %w", d.name, err)
			return
		}
	}
}
