package viewing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/view"
)

// Status is what the owner of a view knows of it.
type Status struct {
	Windowed       bool
	Watermark      int64 // up to which all windows are closed, in ns since 1970; without windows it is of no use
	Keys           int   // without windows, and with triggers: keys at the last look
	Counts         view.Counts
	TriggersFailed uint64 // results that triggers could not judge
	RemovedUnread  uint64 // records that retention removed before they were read
	Lost           uint64 // records that no replica can read
	Left           uint64 // offsets that are not read yet
	Waits          string // what it waits for; empty: nothing
	Crowded        bool   // it waits for memory
	Error          string // why it began anew last; empty: all went well since
}

// Stats is what the views of a broker have done, and how far they have come.
type Stats struct {
	Parts   int    // views of shards that are led here
	Owners  int    // views that are owned here
	Waiting int    // views of both kinds that there is no room for
	Failing int    // of Parts and Owners that fail, or wait for something
	Bytes   int64  // of memory, of parts and owners
	Most    int64  // of Bytes
	Crowded int    // of Failing: for want of memory
	Windows uint64 // that are open, or not acknowledged
	Left    uint64 // offsets of led shards that are not read yet
	Records, Late, Failed, Refused,
	RemovedUnread, Lost uint64 // of the parts, since the view began
	Checkpoints, CheckpointBytes uint64
	Results, Alerts, Restarts    uint64 // of owners
}

// Stats returns the present Stats.
func (s *Service[S]) Stats() Stats {
	is := Stats{Waiting: int(s.waiting.Load()), Bytes: s.bytes.Load(), Most: s.memory.Load(), Checkpoints: s.saves.Load(), CheckpointBytes: s.savedBytes.Load(),
		Results: s.written.Load(), Alerts: s.alerts.Load(), Restarts: s.restarts.Load()}
	s.mu.Lock()
	var all []*run[S]
	for _, r := range s.runs {
		if r.ctx.Err() == nil {
			all = append(all, r)
		}
	}
	s.mu.Unlock()
	for _, r := range all {
		if r.owner != nil {
			is.Owners++
			status := r.owner.known()
			if status.Error != "" || status.Waits != "" {
				is.Failing++
			}
			if status.Crowded {
				is.Crowded++
			}
			continue
		}
		is.Parts++
		r.part.count(&is)
	}
	return is
}

// bounded returns the beginning of a reason.
func bounded(why string) string {
	if why = strings.ToValidUTF8(why, "?"); len(why) > maxTrouble {
		why = strings.ToValidUTF8(why[:maxTrouble], "")
	}
	return why
}

// NotKnown begins what is told as trouble if the broker that knows it does not say it.
const NotKnown = "it is not known whether the results are up to date"

// Trouble asks the broker that writes the results of a view why they are not up to date; empty:
// they are. topic is the id of the Topic that it reads. Without an answer it says so.
func (s *Service[S]) Trouble(ctx context.Context, topic, name string, made int64) string {
	a, err := s.ask(ctx, &question{Kind: whyLate, Topic: topic, View: name, Made: made})
	switch {
	case err == nil:
		return bounded(a.Trouble)
	case a != nil && a.Error != errNotLed.Error():
		return "" // an earlier version does not know the question
	}
	return bounded(NotKnown + ": shard 0: " + err.Error())
}

// troubleHere is Trouble for a view whose results this broker writes.
func (s *Service[S]) troubleHere(shard S, name string, made int64) string {
	o := s.owner(shard, name)
	if o == nil || o.of.Made != made {
		return s.notYet("its results", "the results of views", s.maxOwners)
	}
	known := o.known()
	return bounded(known.trouble())
}

// trouble returns why results are not up to date; empty: they are.
func (s *Status) trouble() string { return cmp.Or(s.Error, s.Waits) }

// known returns the status.
func (o *owner[S]) known() Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status
}

// count adds a part.
func (p *part[S]) count(is *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.paused != nil {
		is.Failing++
	}
	if p.err == nil && errors.Is(p.paused, errMemory) {
		is.Crowded++
	}
	is.RemovedUnread, is.Lost = is.RemovedUnread+p.removed, is.Lost+p.lost
	if p.engine == nil {
		return
	}
	if _, end := p.shard.Offsets(); end > p.next {
		is.Left += end - p.next
	}
	c := p.engine.Counts()
	is.Windows += uint64(p.engine.Held())
	is.Records, is.Late, is.Failed, is.Refused = is.Records+c.Records, is.Late+c.Late, is.Failed+c.Failed, is.Refused+c.Refused
}

// Reports returns what is known here of the views of a shard that is led here, sorted by name.
func (s *Service[S]) Reports(shard S) (all []view.Report) {
	place, views := s.Of(shard)
	for _, of := range views {
		r := view.Report{Name: of.Name}
		if p := s.part(shard, of.Name); p != nil {
			p.report(&r)
		} else {
			r.Trouble = s.notYet("this shard", "shards of views", s.maxParts)
		}
		if o := s.owner(shard, of.Name); o != nil {
			known := o.known()
			r.Failed += known.TriggersFailed
			if r.Trouble == "" {
				r.Trouble = known.trouble()
			}
		} else if place.Number == 0 && r.Trouble == "" {
			r.Trouble = s.notYet("its results", "the results of views", s.maxOwners)
		}
		r.Trouble = bounded(r.Trouble)
		all = append(all, r)
	}
	return all
}

// notYet says that a broker has not begun with something, and why that may be.
func (s *Service[S]) notYet(what, of string, most int) string {
	if s.waiting.Load() == 0 {
		return "the leader has not begun with " + what + " yet"
	}
	return fmt.Sprintf("the leader has no room for %s: a broker keeps %d %s (use fewer views or shards, or more brokers)", what, most, of)
}

// report adds what the part knows.
func (p *part[S]) report(r *view.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.RemovedUnread = p.removed
	switch {
	case p.err != nil:
		r.Trouble = p.err.Error()
	case p.paused != nil:
		r.Trouble = p.paused.Error()
	case p.engine == nil:
		r.Trouble = errReading.Error()
	}
	if p.engine == nil {
		return
	}
	c := p.engine.Counts()
	r.Keys, r.Late, r.Failed, r.Refused = int64(p.engine.Keys()), c.Late, c.Failed, c.Refused
	if at := p.engine.Watermark(); p.view.Windowed() && at > earliest && at < latest {
		r.Watermark = time.Unix(0, at).UTC()
	}
}
