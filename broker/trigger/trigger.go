package trigger

import (
	"fmt"
	"regexp"

	"github.com/carillon-mq/carillon/broker/aggregate"
	"github.com/carillon-mq/carillon/broker/filter"
)

// Spec says when a trigger raises and clears.
type Spec struct {
	Name  string `json:"name"`
	When  string `json:"when"`
	Until string `json:"until,omitempty"` // empty: when When is false
}

// Trigger is a compiled Spec. Goroutines may share it.
type Trigger struct {
	name  string
	when  *filter.Results
	until *filter.Results // nil: when when is false
}

var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Compile compiles a trigger over results with these names.
func Compile(s Spec, results []string) (*Trigger, error) {
	if len(s.Name) > maxName || !namePattern.MatchString(s.Name) {
		return nil, fmt.Errorf("trigger %q: a name has up to %d lower-case letters, digits and dashes, and begins and ends with none of the last", s.Name, maxName)
	}
	t := &Trigger{name: s.Name}
	var err error
	if t.when, err = filter.CompileResults(s.When, results); err != nil {
		return nil, fmt.Errorf("trigger %s: when: %w", s.Name, err)
	}
	if s.Until != "" {
		if t.until, err = filter.CompileResults(s.Until, results); err != nil {
			return nil, fmt.Errorf("trigger %s: until: %w", s.Name, err)
		}
	}
	return t, nil
}

// changes reports whether values change the state. The error says why they can't be judged.
func (t *Trigger) changes(raised bool, values []filter.Value) (bool, error) {
	condition, wanted := t.when, filter.Yes
	if raised {
		if wanted = filter.No; t.until != nil {
			condition, wanted = t.until, filter.Yes
		}
	}
	v, err := condition.Judge(values)
	return err == nil && v == wanted, err
}

// operands are results as conditions take them: numbers as doubles.
func operands(all []filter.Value, values []aggregate.Value) []filter.Value {
	for _, v := range values {
		o := filter.Value{}
		switch v.Kind {
		case aggregate.Bool:
			o = filter.Value{Kind: filter.Bool, Truth: v.Truth}
		case aggregate.Number:
			o = filter.Value{Kind: filter.Number, Number: v.Number}
		case aggregate.Count:
			o = filter.Value{Kind: filter.Number, Number: float64(v.Count)}
		case aggregate.Time:
			o = filter.Value{Kind: filter.Time, Time: v.Time}
		case aggregate.Text:
			o = filter.Value{Kind: filter.Text, Text: []byte(v.Text)}
		}
		all = append(all, o)
	}
	return all
}
