package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/viewing"
)

const (
	// maxPresentKeys is of how many keys a View is shown with its values: they fit on a screen.
	maxPresentKeys = 10
	// maxPresentValues bounds the values of these keys: a key may have many open windows.
	maxPresentValues = 100
	// maxPresentPages is how many pages are read to count the others. A page has up to 1,000 values.
	maxPresentPages = 10
	// maxPresentText is how many characters of a text the table shows. A key may have many KiB, and
	// each line is as wide as the widest.
	maxPresentText = 80
)

// presentView is a View with its first present values.
type presentView struct {
	*admin.View
	Present presentValues `json:"present"`
}

// presentValues are the first present values of a View, or why there are none.
type presentValues struct {
	Why string `json:"why,omitempty"`
	// Trouble is why results are not up to date.
	Trouble string `json:"trouble,omitempty"`

	Values []fetchedValue `json:"values"`
	// MoreValues are the values beyond these, and MoreKeys the keys that have no value here.
	MoreValues int `json:"moreValues"`
	MoreKeys   int `json:"moreKeys"`
	// More reports that there are even more, which were not counted.
	More bool `json:"more,omitempty"`

	keys int      // in Values
	last []string // the key of the latest value that was added
	any  bool     // whether there is a latest one
}

// add takes the next value. Values of a key follow each other.
func (p *presentValues) add(v *fetchedValue) {
	key := make([]string, 0, len(v.Keys))
	for _, part := range v.Keys {
		key = append(key, fmt.Sprintf("%T %v", part, part)) // 4 and "4" are two keys
	}
	isNew := !p.any || !slices.Equal(key, p.last)
	p.last, p.any = key, true
	if len(p.Values) < maxPresentValues && (!isNew || p.keys < maxPresentKeys) && p.MoreValues == 0 {
		p.Values = append(p.Values, *v)
		if isNew {
			p.keys++
		}
		return
	}
	p.MoreValues++
	if isNew {
		p.MoreKeys++
	}
}

// rest says how many values are not shown; empty: all are.
func (p *presentValues) rest(view string) string {
	if p.MoreValues == 0 && !p.More {
		return ""
	}
	text := "more values"
	if p.MoreValues > 0 {
		text = fmt.Sprintf("%d more values", p.MoreValues)
		if p.MoreKeys > 0 {
			text += fmt.Sprintf(", of %d more keys", p.MoreKeys)
		}
		if p.More {
			text = "at least " + text
		}
	}
	return fmt.Sprintf("%s: carillon view get %s has all", text, view)
}

// present gets the first present values of a View, and counts the others, within the time for one
// answer. It does not wait for a View that is not served yet. The error is that of the context.
func (b *brokers) present(ctx context.Context, view string) (presentValues, error) {
	p := presentValues{Values: []fetchedValue{}}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	request := admin.ViewGetRequest{View: view}
	for range maxPresentPages {
		page, err := b.valuesNow(ctx, request)
		if err == nil {
			err = asError(page.Error)
		}
		if err != nil && len(p.Values) > 0 && whole.Err() == nil {
			break // there are more, which could not be counted
		}
		if err != nil {
			p.Why = err.Error()
			if _, denied := errors.AsType[*deniedError](err); denied {
				return p, nil // a reason like others
			}
			return p, whole.Err()
		}
		p.Trouble = page.Trouble
		for i := range page.Values {
			p.add(&page.Values[i])
		}
		if request.After = page.Next; page.Next == "" {
			return p, nil
		}
	}
	p.More = true
	return p, nil
}

func printPresent(w io.Writer, view string, p *presentValues) error {
	if p.Trouble != "" {
		text := "The results are not up to date: " + p.Trouble
		if why, unknown := strings.CutPrefix(p.Trouble, viewing.NotKnown); unknown {
			text = "It is not known whether the results are up to date" + why
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", printable(text)); err != nil {
			return err
		}
	}
	if p.Why != "" {
		_, err := fmt.Fprintf(w, "\nThe present values can't be had: %s\n", printable(p.Why))
		return err
	}
	if len(p.Values) == 0 {
		_, err := fmt.Fprintln(w, "\nThere are no present values.")
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := printValues(w, shortened(p.Values)); err != nil {
		return err
	}
	rest := p.rest(view)
	if rest == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, rest)
	return err
}

// shortened returns values whose texts fit into a table.
func shortened(all []fetchedValue) []fetchedValue {
	short := func(v any) any {
		if text, ok := v.(string); ok {
			if few := []rune(text); len(few) > maxPresentText {
				return string(few[:maxPresentText-1]) + "…"
			}
		}
		return v
	}
	some := slices.Clone(all)
	for i := range some {
		v := &some[i]
		v.Keys, v.Values = slices.Clone(v.Keys), maps.Clone(v.Values)
		for j := range v.Keys {
			v.Keys[j] = short(v.Keys[j])
		}
		for name := range v.Values {
			v.Values[name] = short(v.Values[name])
		}
	}
	return some
}
