package publish

import (
	"errors"
	"testing"
)

// TestWhatIsBeyondALimit: the oldest records go, and of a message that carries more than the limit
// its own first ones.
func TestWhatIsBeyondALimit(t *testing.T) {
	for _, c := range []struct {
		limit, count, records, older, own uint64
	}{
		{limit: 0, count: 100, records: 7},
		{limit: 1, count: 0, records: 1},
		{limit: 1, count: 1, records: 1, older: 1},
		{limit: 1, count: 0, records: 5, own: 4},
		{limit: 1, count: 1, records: 5, older: 1, own: 4},
		{limit: 3, count: 2, records: 1},
		{limit: 3, count: 3, records: 1, older: 1},
		{limit: 3, count: 3, records: 3, older: 3},
		{limit: 3, count: 2, records: 5, older: 2, own: 2},
		{limit: 3, count: 100, records: 1, older: 98}, // it was lowered
		{limit: 3, count: 100, records: 4, older: 100, own: 1},
	} {
		older, own, refusal := Limits{PerSubject: c.limit}.Beyond("orders", c.count, c.records)
		if older != c.older || own != c.own || refusal != nil {
			t.Errorf("%+v: %d, %d, %v", c, older, own, refusal)
		}
		older, own, refusal = Limits{PerSubject: c.limit, DiscardNew: true}.Beyond("orders", c.count, c.records)
		_, full := errors.AsType[*FullError](refusal)
		if full != (c.older+c.own > 0) || older+own > 0 {
			t.Errorf("%+v with discard new: %d, %d, %v", c, older, own, refusal)
		}
	}
}

// TestRollUpsNeedAPermission: a message without one needs none.
func TestRollUpsNeedAPermission(t *testing.T) {
	for _, r := range []Rollup{NoRollup, RollupSubject, RollupAll} {
		for _, permitted := range []bool{false, true} {
			if refusal := (Limits{RollUps: permitted}).MayRollUp("orders", r); (refusal == nil) != (permitted || r == NoRollup) {
				t.Errorf("%d, permitted %v: %v", r, permitted, refusal)
			}
		}
	}
}
