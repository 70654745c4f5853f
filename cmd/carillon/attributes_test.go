package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAttributesFromTheCommandLine: attributes of a running broker are set, seen and deleted, and
// those of a publisher's connection go with it.
func TestAttributesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	first := read[admin.SubjectAttributes](s, "attributes set sensors.7 room=410 floor:=4", `tags:=["a","b"]`)
	if attributesText(first.Attributes) != `floor:=4 room=410 tags:=["a","b"]` || first.Bound {
		t.Errorf("set %+v", first)
	}
	if got := s.does("attributes set sensors.7 room=411 --delete floor,tags"); !strings.HasPrefix(got, "sensors.7: room=411 (revision ") {
		t.Errorf("printed %q", got)
	}
	s.fails(exitFailure, "at revision", "attributes set sensors.7 room=412 --if-revision 0")
	s.fails(exitFailure, "no attributes", "attributes get sensors.8")
	s.fails(exitFailure, "without wildcards", "attributes set sensors.* a=1")
	s.fails(exitUsage, "is no attribute", "attributes set sensors.7 room")
	if got := read[admin.SubjectAttributes](s, "attributes get sensors.7"); attributesText(got.Attributes) != "room=411" {
		t.Errorf("got %+v", got)
	}

	publisher, err := nats.Connect(dev.url, nats.Timeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	if _, err := publisher.Request(admin.AttributesSetSubject, []byte(`{"changes":[{"subject":"sensors.8","set":{"room":"1"},"bound":true},{"subject":"other","set":{"room":"1"},"bound":true}]}`), testutil.Patience); err != nil {
		t.Fatal(err)
	}
	list := read[struct{ Subjects []admin.SubjectAttributes }](s, "attributes list sensors.>").Subjects
	if len(list) != 2 || list[0].Subject != "sensors.7" || !list[1].Bound {
		t.Errorf("listed %+v", list)
	}
	if got := s.does("attributes list"); !strings.Contains(got, "sensors.8   room=1       yes") {
		t.Errorf("listed\n%s", got)
	}
	publisher.Close()
	testutil.EventuallyTrue(t, "the publisher's attributes gone", func() bool {
		left := read[struct{ Subjects []admin.SubjectAttributes }](s, "attributes list").Subjects
		return len(left) == 1 && left[0].Subject == "sensors.7"
	})
	s.prints("the set of attributes of sensors.7 is deleted\n", "attributes delete sensors.7")
	s.fails(exitFailure, "no attributes", "attributes get sensors.7")
}

func TestAttributesAreParsed(t *testing.T) {
	var change admin.AttributesChange
	if err := parseAttributes([]string{"room=410", "n:=4", `tags:=["a",true]`, "empty=", "a=b=c"}, &change); err != nil {
		t.Fatal(err)
	}
	if got := string(change.Set.AppendJSON(nil)); got != `{"a":"b=c","empty":"","n":4,"room":"410","tags":["a",true]}` {
		t.Errorf("parsed %s", got)
	}
	if got := attributesText(json.RawMessage(change.Set.AppendJSON(nil))); got != `a=b=c empty= n:=4 room=410 tags:=["a",true]` {
		t.Errorf("printed %s", got)
	}
	for _, args := range [][]string{{"room"}, {"=x"}, {"1=x"}, {"a:=x"}, {"a:={}"}, {"a=1", "a=2"}, {"a:="}} {
		if parseAttributes(args, &change) == nil {
			t.Errorf("%q is parsed", args)
		}
	}
}
