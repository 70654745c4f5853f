package docs

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/jsapi"
)

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$")

// section returns the rows of the tables under a heading of docs/jetstream.md, by the name in their
// first column.
func section(t *testing.T, heading string) map[string]string {
	t.Helper()
	_, text, ok := strings.Cut(pages(t)["docs/jetstream.md"], "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/jetstream.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]string{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		rows[row[1]] = row[2]
	}
	return rows
}

// fields returns the names of a configuration's fields in JSON.
func fields(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// TestJetStreamPageHasEverySetting: each setting that nats.go knows stands in the page. What the
// broker refuses by name is declined there, and nothing else is.
func TestJetStreamPageHasEverySetting(t *testing.T) {
	streams, consumers := jsapi.UnsupportedSettings()
	for _, kind := range []struct {
		heading            string
		theirs, ours       reflect.Type
		refused, notByName []string
	}{
		// An unknown field is refused, too.
		{"Settings of streams", reflect.TypeFor[jetstream.StreamConfig](), reflect.TypeFor[jsapi.StreamConfig](), streams, []string{"template_owner"}},
		{"Settings of consumers", reflect.TypeFor[jetstream.ConsumerConfig](), reflect.TypeFor[jsapi.ConsumerConfig](), consumers, nil},
	} {
		rows := section(t, kind.heading)
		known := slices.Concat(fields(kind.theirs), fields(kind.ours))
		if len(known) < 60 {
			t.Fatalf("only %d settings: %q", len(known), known)
		}
		for _, name := range known {
			if rows[name] == "" {
				t.Errorf("docs/jetstream.md, %s: %s is missing (served, or declined and why)", kind.heading, name)
			}
		}
		declined := map[string]bool{}
		for _, name := range kind.notByName {
			declined[name] = true
		}
		for _, setting := range kind.refused {
			name, value, some := strings.Cut(setting, ": ")
			if !some {
				declined[name] = true
			} else if !strings.Contains(rows[name], "`"+value+"`") || !strings.Contains(rows[name], "declined") {
				t.Errorf("docs/jetstream.md: %s is refused, and its row does not say so: %s", setting, rows[name])
			}
		}
		for name, says := range rows {
			if !slices.Contains(known, name) {
				t.Errorf("docs/jetstream.md, %s: there is no %s", kind.heading, name)
			}
			if strings.HasPrefix(says, "declined") != declined[name] {
				t.Errorf("docs/jetstream.md: %s is %q, and the broker refuses it: %v", name, says, declined[name])
			}
		}
	}
}

// TestJetStreamPageHasEveryCall: the page says of each call what the broker does with it.
func TestJetStreamPageHasEveryCall(t *testing.T) {
	rows := section(t, "Calls")
	told := map[jsapi.Call]bool{}
	for call, says := range rows {
		subject := jsapi.APIPrefix + strings.NewReplacer("<", "", ">", "").Replace(call)
		r, ok := jsapi.ParseSubject([]byte(subject))
		if !ok {
			t.Errorf("%s is no call", call)
		}
		told[r.Call] = true
		want := "served"
		switch {
		case r.Call == jsapi.Unknown:
			want = "not answered"
		case r.Call.Declined(false) != nil:
			want = "declined"
		}
		if !strings.HasPrefix(says, want) && !(want == "served" && strings.HasPrefix(says, "refused")) {
			t.Errorf("docs/jetstream.md: %s is %q, and the broker has it %s", call, says, want)
		}
	}
	for call := range jsapi.Calls {
		if !told[call] {
			t.Errorf("docs/jetstream.md does not have the call %d (%s)", call, call.ResponseType())
		}
	}
}
