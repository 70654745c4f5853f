package coordination

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/trigger"
	"github.com/carillon-mq/carillon/broker/view"
)

// View is a declared result that brokers keep up to date: an aggregate of a Topic's messages, by
// key and by window.
type View struct {
	Name       string
	Spec       *ViewSpec // never changed
	Generation int64     // 1, and one more with every change of the spec
	Owner      Owner
	Created    time.Time

	Revision int64 // of its key, when it was read
	Made     int64 // create revision of its key: a recreated one begins anew

	bytes int64 // that it takes in etcd, see clientRoom
	usage usage // that it is of its user's limits
}

// ViewSpec is the desired state of a View. Comments give the meaning of zero values.
type ViewSpec struct {
	Topic   string      `json:"topic"` // the name of the Topic that it reads
	Compute ViewCompute `json:"compute"`
	// Output is the name of the Topic that gets each closed window. Empty: there are no windows.
	Output string `json:"output,omitempty"`
	// Alerts are the names of the Topics that get the alerts, by the name of the trigger.
	Alerts map[string]string `json:"alerts,omitempty"`
	// User is on whose behalf brokers read and write. Empty: that of nobody, as a manifest's.
	User           string         `json:"user,omitempty"`
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"` // empty: Delete
}

// What a View computes, by names for packages that import nothing else of broker.
type (
	ViewCompute = view.Spec
	ViewFilter  = view.Filter
	ViewWindow  = view.Window
	ViewSliding = view.Sliding
	ViewTrigger = trigger.Spec
)

const (
	// MaxViews bounds the Views of a cluster: whoever writes one reads all of them first, and leaders
	// judge each message for all Views of its Topic.
	MaxViews = 1000
	// maxViewName is the longest name of a View: as that of a Subscription's manifest. It has its
	// place in subjects.
	maxViewName = 128
	// maxViewValue is the size of a View's value: 16 triggers with two conditions of 1 KiB, beside a
	// filter, a key and values of 4 KiB each. MaxViews of them take 64 MB in each broker.
	maxViewValue = 64 << 10
)

type viewValue struct {
	V          int       `json:"v"`
	Spec       *ViewSpec `json:"spec"`
	Generation int64     `json:"generation"`
	Owner      Owner     `json:"owner"`
	Created    time.Time `json:"created"`
}

const viewValueVersion = 1

func (c *Client) allViews() string { return c.prefix + "views/" }

func (c *Client) viewKey(name string) string { return c.allViews() + name }

func (v *View) encode() (string, error) {
	return encodeBounded("view "+v.Name, viewValue{viewValueVersion, v.Spec, v.Generation, v.Owner, v.Created}, maxViewValue)
}

// decodeView decodes a View. Its expressions are not compiled: that costs a millisecond for each.
func (c *Client) decodeView(kv *mvccpb.KeyValue) (*View, error) {
	name := strings.TrimPrefix(string(kv.GetKey()), c.allViews())
	var value viewValue
	if err := decodeValue("view "+name, kv.GetValue(), viewValueVersion, &value, &value.V); err != nil {
		return nil, err
	}
	if value.Spec == nil {
		return nil, fmt.Errorf("decode view %s: it has no spec", name)
	}
	if why := firstUnknown(validName(name, maxViewName), value.Spec.valid()); why != "" {
		return nil, fmt.Errorf("decode view %s: %s", name, why)
	}
	v := &View{Name: name, Spec: value.Spec, Generation: value.Generation, Owner: value.Owner, Created: value.Created, Revision: kv.GetModRevision(), Made: kv.GetCreateRevision()}
	v.bytes, v.usage = v.room(string(kv.GetKey()), len(kv.GetValue())), v.uses()
	return v, nil
}

// room returns what a View counts with, if its value has some bytes.
func (v *View) room(key string, value int) int64 { return int64(len(key)+value) + definitionBytes }

// uses returns what a View uses of its user's limits: it reads as a consumer does.
func (v *View) uses() usage {
	if v.Owner.User == "" {
		return usage{}
	}
	return usage{consumers: 1}
}

// Windowed reports whether there are windows or sessions, which close.
func (s *ViewSpec) Windowed() bool {
	w := &s.Compute.Window
	return w.Tumbling != 0 || w.Sliding != nil || w.Session != 0
}

// Writes returns the names of the Topics that the View writes into, each once, sorted.
func (s *ViewSpec) Writes() []string {
	all := slices.Collect(maps.Values(s.Alerts))
	if s.Output != "" {
		all = append(all, s.Output)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ViewOutput is a Topic that a View writes into, and the pattern of the subjects.
type ViewOutput struct{ Topic, Subjects string }

// Outputs returns all that a View of that name writes: results on TOPIC.VIEW.KEY, and alerts on
// TOPIC.VIEW.TRIGGER.KEY; without a key nothing follows.
func (s *ViewSpec) Outputs(name string) (all []ViewOutput) {
	key := ""
	if s.Compute.By != "" {
		key = ".>"
	}
	if s.Output != "" {
		all = append(all, ViewOutput{s.Output, s.Output + "." + name + key})
	}
	for _, t := range s.Compute.Triggers {
		to := s.Alerts[t.Name]
		all = append(all, ViewOutput{to, to + "." + name + "." + t.Name + key})
	}
	return all
}

// Unkept returns why a Topic does not keep an output, or "".
func (o ViewOutput) Unkept(into *Topic) string {
	switch {
	case into.Spec.Stream.Mirror != nil:
		return fmt.Sprintf("topic %s is a mirror, which takes the messages of its origin alone (name another topic)", o.Topic)
	case !slices.ContainsFunc(into.Spec.Subjects, func(s string) bool { return subject.Covers(s, o.Subjects) }):
		return fmt.Sprintf("topic %s does not keep %s, where the view writes (name a topic that takes its name and what follows it, as topics do by default)", o.Topic, o.Subjects)
	}
	return ""
}

// valid returns why a spec can't be, or "". Expressions are judged by compiles.
func (s *ViewSpec) valid() string {
	if why := validTopicName(s.Topic); why != "" {
		return "topic: " + why
	}
	for _, pattern := range s.Compute.Filter.Subjects {
		if len(pattern) > maxSubject {
			return fmt.Sprintf("filter.subjects: a pattern of %d bytes (use at most %d)", len(pattern), maxSubject)
		}
	}
	switch windowed := s.Windowed(); {
	case windowed && s.Output == "":
		return "output: there are windows, and no topic for their results (name one)"
	case !windowed && s.Output != "":
		return "output: without a window there are only present values, and none that is complete (choose a window, or leave output out)"
	case s.DeletionPolicy == DeleteIfEmpty:
		return "deletionPolicy DeleteIfEmpty is for topics (write Retain or Delete)"
	}
	if s.Output != "" {
		if why := validTopicName(s.Output); why != "" {
			return "output: " + why
		}
	}
	if why := s.validAlerts(); why != "" {
		return why
	}
	if slices.Contains(s.Writes(), s.Topic) {
		return fmt.Sprintf("it reads topic %s, and would write into it for ever (name another topic for what it writes)", s.Topic)
	}
	return choice("deletionPolicy", s.DeletionPolicy, Retain, Delete)
}

// validAlerts returns why the Topics for alerts can't be, or "": each trigger has one, since its
// state is that of its last alert.
func (s *ViewSpec) validAlerts() string {
	triggers := map[string]bool{}
	for _, t := range s.Compute.Triggers {
		triggers[t.Name] = true
		if s.Alerts[t.Name] == "" {
			return fmt.Sprintf("trigger %q has no topic for its alerts (name one as its output)", t.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Alerts)) {
		if !triggers[name] {
			return fmt.Sprintf("alerts: there is no trigger %q", name)
		}
		if why := validTopicName(s.Alerts[name]); why != "" {
			return fmt.Sprintf("output of trigger %q: %s", name, why)
		}
	}
	return ""
}

// Misjudged returns why a spec is none, with the field, or "". It compiles the expressions.
func (s *ViewSpec) Misjudged() string {
	if why := s.valid(); why != "" {
		return why
	}
	if _, err := view.Compile(s.Compute); err != nil {
		return err.Error()
	}
	return ""
}

// viewCycle returns the Topics through which what a View writes would come back to it, from the one
// that it reads back to that, or nil. others are all Views; one of the same name is replaced.
func viewCycle(name string, spec *ViewSpec, others []*View) []string {
	writes := map[string][]string{spec.Topic: spec.Writes()}
	for _, v := range others {
		if v.Name != name {
			writes[v.Spec.Topic] = append(writes[v.Spec.Topic], v.Spec.Writes()...)
		}
	}
	from := map[string]string{} // by the name of a Topic: one that it is computed of
	for next := []string{spec.Topic}; len(next) > 0; next = next[1:] {
		for _, to := range writes[next[0]] {
			if to == spec.Topic {
				path := []string{to}
				for at := next[0]; at != spec.Topic; at = from[at] {
					path = append(path, at)
				}
				path = append(path, spec.Topic)
				slices.Reverse(path)
				return path
			}
			if from[to] == "" {
				from[to] = next[0]
				next = append(next, to)
			}
		}
	}
	return nil
}

// ReadBy returns the subjects that a View of the Topic reads: those of its filter, and else all of
// the Topic, which may keep messages of others.
func (t *Topic) ReadBy(filter []string) []string {
	if len(filter) > 0 {
		return filter
	}
	if len(t.Spec.Stream.Copies()) > 0 || t.Spec.Stream.Transform != nil {
		return []string{">"}
	}
	return t.Spec.Subjects
}
