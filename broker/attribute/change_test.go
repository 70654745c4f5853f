package attribute

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestChangesMergeReplaceAndDelete(t *testing.T) {
	holder, at := Holder{"a", 1, 2}, int64(7)
	before := Entry{Subject: "s", Revision: 7, Text: `{"floor":3,"room":"410"}`, Holder: holder, User: "ann"}
	for _, tc := range []struct {
		change Change
		want   string
		bound  Holder
	}{
		{Change{Set: Set{"room": String("411")}}, `{"floor":3,"room":"411"}`, holder},
		{Change{Set: Set{"x": Bool(true)}, Delete: []string{"floor", "none"}}, `{"room":"410","x":true}`, holder},
		{Change{Set: Set{"x": Bool(true)}, Replace: true, Holder: &Holder{}}, `{"x":true}`, Holder{}},
		{Change{Holder: &Holder{"b", 1, 9}, If: &at}, before.Text, Holder{"b", 1, 9}},
		{Change{Delete: []string{"floor", "room"}}, "", Holder{}},
		{Change{Replace: true}, "", Holder{}},
	} {
		tc.change.Subject, tc.change.User = "s", "bob"
		after, err := tc.change.Apply(before)
		if err != nil || after.Text != tc.want || after.Holder != tc.bound || tc.want != "" && after.User != "bob" {
			t.Errorf("%+v makes %+v, %v", tc.change, after, err)
		}
	}
	for _, tc := range []struct {
		before Entry
		bound  Holder
	}{{Entry{}, Holder{"b", 1, 9}}, {before, Holder{"b", 1, 9}}, {Entry{Subject: "s", Revision: 7, Text: before.Text}, Holder{}}} {
		after, err := (&Change{Subject: "s", Set: Set{"x": Bool(true)}, Holder: &Holder{"b", 1, 9}, KeepsUnbound: true}).Apply(tc.before)
		if err != nil || after.Holder != tc.bound {
			t.Errorf("of %+v becomes %+v, %v", tc.before, after, err)
		}
	}
	if before.Text != `{"floor":3,"room":"410"}` {
		t.Error("a change has changed what it was applied to")
	}
}

func TestChangesAreRefusedWhole(t *testing.T) {
	none, seven := int64(0), int64(7)
	full := Entry{Subject: "s", Revision: 7, Text: string(Set{"a": String(strings.Repeat("x", MaxBytes-100))}.AppendJSON(nil))}
	if _, err := (&Change{Subject: "s", Set: Set{"b": String(strings.Repeat("x", 200))}}).Apply(full); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("attributes that are too large: %v", err)
	}
	for _, tc := range []struct {
		If     *int64
		before Entry
		moved  bool
	}{{&none, full, true}, {&seven, Entry{}, true}, {&seven, full, false}, {&none, Entry{}, false}} {
		_, err := (&Change{Subject: "s", Set: Set{"c": Bool(true)}, If: tc.If}).Apply(tc.before)
		if moved := (*MovedError)(nil); errors.As(err, &moved) != tc.moved {
			t.Errorf("of revision %d, if it is at %d: %v", tc.before.Revision, *tc.If, err)
		}
	}
	negative := int64(-1)
	for _, c := range []Change{
		{Subject: ""}, {Subject: "a..b"}, {Subject: "a.*"}, {Subject: "a.>"}, {Subject: "$SYS.x"}, {Subject: "_INBOX.x"}, {Subject: strings.Repeat("s", 1025)},
		{Subject: "s", Delete: []string{"1"}}, {Subject: "s", Set: Set{"a": Bool(true)}, Delete: []string{"a"}}, {Subject: "s", If: &negative},
		{Subject: "s", Set: Set{"a b": Bool(true)}},
	} {
		if c.Check() == nil {
			t.Errorf("%s is accepted", fmt.Sprint(c))
		}
	}
	if err := (&Change{Subject: "s.1", Set: Set{"a": Bool(true)}}).Check(); err != nil {
		t.Error(err)
	}
}
