package quota

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func decoded(report []byte) (uses []Use, full bool, err error) {
	full, err = decode(report, func(user []byte, d Demand) { uses = append(uses, Use{string(user), d}) })
	return uses, full, err
}

func TestAReportIsWhatWasEncoded(t *testing.T) {
	for _, uses := range [][]Use{
		nil,
		{{"ann", Demand{1, Whole}}},
		{{"ann", Demand{Whole, 0}}, {strings.Repeat("x", maxName), Demand{7, 8}}, {"b\x00b", Demand{256, 255}}},
	} {
		report, named := encode(uses)
		got, full, err := decoded(report)
		if err != nil || full || named != len(uses) || !reflect.DeepEqual(got, uses) {
			t.Errorf("%v is %v, %v, %v", uses, got, full, err)
		}
	}
}

// TestAReportIsBounded: in users and bytes, and those that demand least are left out.
func TestAReportIsBounded(t *testing.T) {
	for _, name := range []string{"%d", "%0256d"} {
		var uses []Use
		for i := range MaxUsers + 100 {
			uses = append(uses, Use{fmt.Sprintf(name, i), Demand{Messages: uint16(i)}})
		}
		report, named := encode(uses)
		got, full, err := decoded(report)
		if err != nil || !full || len(report) > MaxReport || len(got) != named || named == 0 || named > MaxUsers {
			t.Fatalf("%d bytes with %d users, full=%v, %v", len(report), len(got), full, err)
		}
		if least := got[named-1].Messages; int(least) != MaxUsers+100-named {
			t.Errorf("the %d users demand %d or more", named, least)
		}
		if room := useSize + len(got[0].User); named < MaxUsers && len(report)+room <= MaxReport {
			t.Errorf("only %d users are in %d bytes", named, len(report))
		}
	}
}

func TestABrokenReportIsRefused(t *testing.T) {
	whole, _ := encode([]Use{{"ann", Demand{1, 2}}, {"bob", Demand{3, 4}}})
	ends := map[int]bool{1: true, 1 + useSize + 3: true, len(whole): true}
	for n := range len(whole) + 1 {
		if _, _, err := decoded(whole[:n]); (err == nil) != ends[n] {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	long := append([]byte{0}, 1, 1)
	many := append([]byte{0}, strings.Repeat("\x00\x01x\x00\x00\x00\x00", MaxUsers+1)...)
	for _, bad := range [][]byte{{2}, {0, 0, 0, 0, 0, 0, 0}, append(long, make([]byte, 300)...), many} {
		if _, _, err := decoded(bad); err == nil {
			t.Errorf("%.10q is no report", bad)
		}
	}
}

func FuzzReport(f *testing.F) {
	whole, _ := encode([]Use{{"ann", Demand{1, 2}}})
	f.Add(whole)
	f.Fuzz(func(t *testing.T, report []byte) {
		uses, full, err := decoded(report)
		if err != nil || full || len(report) > MaxReport {
			return
		}
		if again, _ := encode(uses); string(again) != string(report) {
			t.Fatalf("%q is encoded as %q", report, again)
		}
	})
}
