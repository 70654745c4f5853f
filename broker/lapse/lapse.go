package lapse

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

// Attributes are all attributes. *coordination.Attributes implements it.
type Attributes interface {
	Store() *attribute.Store
	DeleteHeld(ctx context.Context, of []attribute.Holder, when *coordination.Registered) (deleted, changed int, err error)
}

// Config configures Run.
type Config struct {
	Self       string // id of this broker
	Process    int64  // when this process started, as in attribute.Holder
	Attributes Attributes
	Connected  func(client uint64) bool   // whether a connection of this process is there
	State      func() *coordination.State // nil before the first
	Controls   func() bool                // whether this broker is the controller
	Logger     *slog.Logger
}

// Run deletes what lapses until ctx ends.
func Run(ctx context.Context, c Config) {
	w := watch{Config: c, since: map[attribute.Holder]time.Time{}}
	for work.Sleep(ctx, every) {
		w.deleteAll(ctx, w.due(time.Now()))
	}
}

// watch knows since when the connections that hold attributes are gone.
type watch struct {
	Config
	since map[attribute.Holder]time.Time
}

// due returns the holders that have been gone for Grace.
func (w *watch) due(now time.Time) (due []attribute.Holder) {
	before := w.since
	w.since = map[attribute.Holder]time.Time{}
	for _, h := range w.Attributes.Store().Holders() {
		if gone, _ := w.gone(h); !gone {
			continue
		}
		since, known := before[h]
		if !known {
			since = now
		}
		w.since[h] = since
		if now.Sub(since) >= Grace {
			due = append(due, h)
		}
	}
	return due
}

// mine reports whether a connection is one of this process.
func (w *watch) mine(h attribute.Holder) bool { return h.Broker == w.Self && h.Process == w.Process }

// gone reports whether a connection is gone as far as this broker is to judge, and how its broker
// must be registered for that; nil: in whatever way.
func (w *watch) gone(h attribute.Holder) (gone bool, when *coordination.Registered) {
	if w.mine(h) {
		return !w.Connected(h.Connection), nil
	}
	state := w.State()
	if state == nil || !w.Controls() {
		return false, nil
	}
	when = &coordination.Registered{Broker: h.Broker, Generation: state.Generation}
	if b, ok := state.Broker(h.Broker); ok {
		if b.Started.UnixMilli() == h.Process {
			return false, nil
		}
		when.Incarnation = b.Incarnation
	}
	return true, when
}

// deleteAll deletes what holders have. Those of one broker share batches: a broker that dies may
// have had as many connections as there are subjects, each with its own.
func (w *watch) deleteAll(ctx context.Context, due []attribute.Holder) {
	type owner struct {
		broker string
		mine   bool // of this process
	}
	owned := map[owner][]attribute.Holder{}
	for _, h := range due {
		by := owner{h.Broker, w.mine(h)}
		owned[by] = append(owned[by], h)
	}
	for by, of := range owned {
		total := 0
		for some := range slices.Chunk(of, attribute.MaxChanges) {
			deleted, err := w.delete(ctx, some)
			if total += deleted; err != nil {
				if ctx.Err() == nil {
					w.Logger.Warn("Could not delete the attributes of connections that are gone; trying again", "broker", by.broker, "connections", len(of), "error", err)
				}
				break
			}
		}
		if total > 0 {
			w.Logger.Info("Deleted the attributes of connections that are gone", "broker", by.broker, "connections", len(of), "subjects", total)
		}
	}
}

// delete deletes what some holders of one owner have, batch by batch.
func (w *watch) delete(ctx context.Context, some []attribute.Holder) (total int, err error) {
	for {
		var of []attribute.Holder
		var when *coordination.Registered
		for _, h := range some {
			gone, now := w.gone(h)
			// Not on another condition, which changes just now: it is none that the first are gone.
			if gone && (len(of) == 0 || when == nil || *now == *when) {
				of, when = append(of, h), now
			}
		}
		if len(of) == 0 {
			return total, nil
		}
		deleted, _, err := w.Attributes.DeleteHeld(ctx, of, when)
		total += deleted
		if err != nil || deleted == 0 {
			return total, err
		}
		if !work.Sleep(ctx, pause) {
			return total, ctx.Err()
		}
	}
}
