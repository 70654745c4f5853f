package lapse

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

// Attributes are all attributes. *coordination.Attributes implements it.
type Attributes interface {
	Store() *attribute.Store
	DeleteHeld(ctx context.Context, of attribute.Holder, when *coordination.Registered) (deleted, changed int, err error)
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
		for _, of := range w.due(time.Now()) {
			w.delete(ctx, of)
		}
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

// gone reports whether a connection is gone as far as this broker is to judge, and how its broker
// must be registered for that; nil: in whatever way.
func (w *watch) gone(h attribute.Holder) (gone bool, when *coordination.Registered) {
	if h.Broker == w.Self && h.Process == w.Process {
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

// delete deletes what a holder has, batch by batch.
func (w *watch) delete(ctx context.Context, h attribute.Holder) {
	total := 0
	for {
		gone, when := w.gone(h)
		if !gone {
			break
		}
		deleted, _, err := w.Attributes.DeleteHeld(ctx, h, when)
		total += deleted
		if err != nil && ctx.Err() == nil {
			w.Logger.Warn("Could not delete the attributes of a connection that is gone; trying again", "broker", h.Broker, "connection", h.Connection, "error", err)
		}
		if err != nil || deleted == 0 || !work.Sleep(ctx, pause) {
			break
		}
	}
	if total > 0 {
		w.Logger.Info("Deleted the attributes of a connection that is gone", "broker", h.Broker, "connection", h.Connection, "subjects", total)
	}
}
