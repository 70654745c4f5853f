package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/trigger"
)

// Spec says what a view computes.
type Spec struct {
	Filter Filter `json:"filter,omitzero"`
	// By are the expressions of the key, with commas. Empty: one key.
	By     string `json:"by,omitempty"`
	Window Window `json:"window,omitzero"`
	// Values are functions by the names of their results: "mean": "mean(json.celsius)".
	Values   map[string]string `json:"values"`
	Triggers []trigger.Spec    `json:"triggers,omitempty"`
}

// Filter chooses the records of a view.
type Filter struct {
	Subjects []string `json:"subjects,omitempty"` // patterns; empty: all
	Where    string   `json:"where,omitempty"`    // a condition; empty: all
}

// Window says which windows there are. The zero Window: one of all records.
type Window struct {
	Tumbling time.Duration `json:"tumbling,omitempty"`
	Sliding  *Sliding      `json:"sliding,omitempty"`
	Session  time.Duration `json:"session,omitempty"` // the time without a record that ends one
	// Time is the expression of a record's time. Empty: when it was stored.
	Time string `json:"time,omitempty"`
	// Lateness is how much earlier than the latest one of its shard a record's time may be.
	Lateness time.Duration `json:"lateness,omitempty"`
	// Idle is after how long a shard without records is passed over. 0: it is waited for.
	Idle time.Duration `json:"idle,omitempty"`
}

// Sliding are windows of a size that begin at multiples of another time.
type Sliding struct {
	Size  time.Duration `json:"size"`
	Every time.Duration `json:"every"`
}

// View is a compiled Spec. Goroutines may share it.
type View struct {
	spec        Spec
	fingerprint uint64 // of what decides results
	subjects    [][]byte
	where       *filter.Filter // nil: all
	query       *aggregate.Query
	names       []string
	triggers    []*trigger.Trigger
	sessions    bool
	stored      bool // the time of a record is when it was stored
}

// Compile compiles a spec. The error names the field.
func Compile(s Spec) (*View, error) {
	v := &View{spec: s, sessions: s.Window.Session > 0, stored: s.Window.Time == ""}
	for _, step := range []func() error{v.filter, v.window, v.values, v.compileTriggers} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	decides := s
	decides.Triggers, decides.Window.Idle = nil, 0
	text, err := json.Marshal(&decides)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	v.fingerprint = xxhash.Sum64(text)
	return v, nil
}

func (v *View) filter() error {
	f := &v.spec.Filter
	if len(f.Subjects) > maxSubjects {
		return fmt.Errorf("filter.subjects: %d patterns, and the bound is %d", len(f.Subjects), maxSubjects)
	}
	for _, pattern := range f.Subjects {
		if !subject.ValidPattern([]byte(pattern)) {
			return fmt.Errorf("filter.subjects: %q is no subject and no pattern of subjects", pattern)
		}
		v.subjects = append(v.subjects, []byte(pattern))
	}
	if f.Where == "" {
		return nil
	}
	var err error
	if v.where, err = filter.CompileStored(f.Where); err != nil {
		return fmt.Errorf("filter.where: %w", err)
	}
	return nil
}

func (v *View) window() error {
	w := &v.spec.Window
	kinds := 0
	for _, there := range []bool{w.Tumbling != 0, w.Sliding != nil, w.Session != 0} {
		if there {
			kinds++
		}
	}
	if kinds > 1 {
		return errors.New("window: choose one of tumbling, sliding and session")
	}
	if w.Sliding != nil && (w.Sliding.Size == 0 || w.Sliding.Every == 0) {
		return errors.New("window.sliding: say the size of a window, and every how long one begins")
	}
	if kinds == 0 && (w.Time != "" || w.Lateness != 0 || w.Idle != 0) {
		return errors.New("window: time, lateness and idle are about windows: choose tumbling, sliding or session")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"lateness", w.Lateness}, {"idle", w.Idle}} {
		if d.value < 0 || d.value > maxDuration {
			return fmt.Errorf("window.%s: %s is not within 0s and %s", d.name, d.value, maxDuration)
		}
	}
	return nil
}

func (v *View) values() error {
	if n := len(v.spec.Values); n == 0 || n > maxValues {
		return fmt.Errorf("values: %d of them (use 1 to %d)", n, maxValues)
	}
	v.names = slices.Sorted(maps.Keys(v.spec.Values))
	var list []string
	for _, name := range v.names {
		text := v.spec.Values[name] + " as " + name
		one, err := aggregate.Compile(aggregate.Options{Functions: text, Attributes: true})
		if err != nil {
			return fmt.Errorf("values.%s: %w", name, err)
		}
		if !slices.Equal(one.Columns(), []string{name}) {
			return fmt.Errorf("values.%s: %q is not one function, or the name is not one of letters, digits and _", name, v.spec.Values[name])
		}
		list = append(list, text)
	}
	w := &v.spec.Window
	o := aggregate.Options{Functions: strings.Join(list, ", "), By: v.spec.By, Window: w.Tumbling, Session: w.Session, Time: w.Time, Attributes: true}
	if w.Sliding != nil {
		o.Window, o.Slide = w.Sliding.Size, w.Sliding.Every
	}
	var err error
	if v.query, err = aggregate.Compile(o); err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*aggregate.Error](err); ok {
		switch wrong.What {
		case "by":
			return fmt.Errorf("by: %w", err)
		case "time":
			return fmt.Errorf("window.time: %w", err)
		}
		return fmt.Errorf("values: %w", err)
	}
	return fmt.Errorf("window: %w", err)
}

func (v *View) compileTriggers() error {
	if len(v.spec.Triggers) > maxTriggers {
		return fmt.Errorf("triggers: %d of them, and the bound is %d", len(v.spec.Triggers), maxTriggers)
	}
	seen := map[string]bool{}
	for _, s := range v.spec.Triggers {
		if seen[s.Name] {
			return fmt.Errorf("triggers: two have the name %q", s.Name)
		}
		seen[s.Name] = true
		t, err := trigger.Compile(s, v.names)
		if err != nil {
			return err
		}
		v.triggers = append(v.triggers, t)
	}
	return nil
}

// Names returns the names of the values, in the order of a row's.
func (v *View) Names() []string { return v.names }

// Fingerprint returns a number of all that decides results. What was computed by another one is of
// no use to the View.
func (v *View) Fingerprint() uint64 { return v.fingerprint }

// Spec returns what the View was compiled of. It must not be changed.
func (v *View) Spec() *Spec { return &v.spec }

// Windowed reports whether there are windows or sessions, which close.
func (v *View) Windowed() bool { return v.query.Windowed() }

// Triggers returns the triggers, all of them cleared.
func (v *View) Triggers() *trigger.Set { return trigger.NewSet(v.triggers, v.names) }

// matches returns whether a record is one of the view's.
func (v *View) matches(r *filter.Record) filter.Verdict {
	if len(v.subjects) > 0 && !slices.ContainsFunc(v.subjects, func(p []byte) bool { return subject.Matches(p, r.Subject) }) {
		return filter.No
	}
	if v.where == nil {
		return filter.Yes
	}
	return v.where.Judge(r)
}
