package view

import (
	"encoding/json"
	"testing"
	"time"
)

// TestReportsOfShardsAreOne: the watermark is the least, and none if a shard has none.
func TestReportsOfShardsAreOne(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	a := Report{Name: "v", Keys: 2, Watermark: at.Add(time.Second), Late: 1, Failed: 2, Refused: 3, RemovedUnread: 4}
	b := Report{Name: "v", Keys: 3, Watermark: at, Late: 1, Failed: 1, Refused: 1, RemovedUnread: 1, Trouble: "x"}
	want := Report{Name: "v", Keys: 5, Watermark: at, Late: 2, Failed: 3, Refused: 4, RemovedUnread: 5, Trouble: "x"}
	for _, got := range []Report{a.Plus(b), b.Plus(a)} {
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	none := Report{Name: "v"}
	want.Watermark = time.Time{}
	for _, got := range []Report{a.Plus(b).Plus(none), none.Plus(a).Plus(b)} {
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	text, err := json.Marshal(none)
	if want := `{"name":"v","keys":0,"late":0,"failed":0,"refused":0,"removedUnread":0}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
