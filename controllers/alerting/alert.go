package alerting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Alert is a change of a trigger's state for a key, as docs/views.md describes the message.
type Alert struct {
	Trigger string         `json:"trigger"`
	Serial  uint64         `json:"serial"`
	State   string         `json:"state"`
	Keys    []any          `json:"key"`
	From    time.Time      `json:"from"`
	To      time.Time      `json:"to"`
	Values  map[string]any `json:"values"`
}

const raised, cleared = "raised", "cleared"

// Raised reports whether the alert was raised, and not cleared.
func (a *Alert) Raised() bool { return a.State == raised }

// parse reads a message on a subject that begins with prefix: TOPIC.VIEW.TRIGGER of that trigger.
// ok is false for what is no alert of it.
func parse(prefix, trigger, subject string, data []byte) (a Alert, ok bool) {
	rest, ours := strings.CutPrefix(subject, prefix)
	if !ours || rest != "" && rest[0] != '.' || len(data) > maxAlert {
		return Alert{}, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a number is shown as it was written
	if d.Decode(&a) != nil || a.Trigger != trigger || a.Serial == 0 || a.State != raised && a.State != cleared {
		return Alert{}, false
	}
	return a, true
}

// Note returns the alert for people.
func (a *Alert) Note() string {
	var b strings.Builder
	fmt.Fprintf(&b, "trigger %s %s an alert", a.Trigger, a.State)
	if key := a.key(); key != "" {
		fmt.Fprintf(&b, " of key %s", key)
	}
	fmt.Fprintf(&b, " (number %d): %s", a.Serial, a.values())
	if a.To.After(a.From) {
		fmt.Fprintf(&b, ", of %s to %s", a.From.UTC().Format(time.RFC3339), a.To.UTC().Format(time.RFC3339))
	}
	return b.String()
}

func (a *Alert) key() string {
	var texts []string
	for _, v := range a.Keys {
		texts = append(texts, shown(v))
	}
	return cut(strings.Join(texts, ","))
}

func (a *Alert) values() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(a.Values)) {
		texts = append(texts, strings.Trim(quoted(name), `"`)+" "+shown(a.Values[name]))
	}
	return cut(strings.Join(texts, ", "))
}

// shown returns a value of JSON. Texts are quoted: anyone may have chosen them.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		return quoted(v)
	case json.Number, bool:
		return cut(fmt.Sprint(v))
	}
	return "?" // there are no lists and objects in alerts
}

func quoted(text string) string { return strconv.QuoteToGraphic(cut(text)) }

// cut returns at most maxText bytes of a text.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
}
