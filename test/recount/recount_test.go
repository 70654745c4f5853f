package recount

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const second = int64(time.Second)

var twoSeconds = Windows{Size: 2 * time.Second, Lateness: time.Second}

// over5 raises above 5 and clears below 3.
var over5 = Trigger{Name: "over5", When: func(s Sum) bool { return s.Total > 5 }, Until: func(s Sum) bool { return s.Total < 3 }}

// readingsOf returns readings of room a at these seconds, stored in this order.
func readingsOf(n float64, seconds ...int64) (log []Reading) {
	for i, s := range seconds {
		log = append(log, Reading{Offset: uint64(i + 1), Stored: 100 * second, At: s * second, Room: "a", N: n})
	}
	return log
}

// TestARecountOfWindows: a window has the readings of all shards that its own shard had not closed.
// The slowest shard decides which windows are results.
func TestARecountOfWindows(t *testing.T) {
	first := readingsOf(2, 10, 11, 13, 11, 12, 10000, 15) // the second one at 11 is late, and the one at 10000 has no time
	second1 := readingsOf(1, 11, 10, 12, 15)
	got := Count([][]Reading{first, second1}, twoSeconds)
	want := []Written{{Room: "a", Start: 10 * second, End: 12 * second, Sum: Sum{4, 6}}, {Room: "a", Start: 12 * second, End: 14 * second, Sum: Sum{3, 5}}}
	open := []Written{{Room: "a", Start: 14 * second, End: 16 * second, Sum: Sum{2, 3}}}
	if !slices.Equal(got.Closed, want) || !slices.Equal(got.Open, open) || got.Late != 1 || got.Untimed != 1 {
		t.Errorf("got %+v, want %+v, and open %+v, and one late and one without a time", got, want, open)
	}
	if got = Count([][]Reading{first, second1[:3]}, twoSeconds); len(got.Closed) != 0 {
		t.Errorf("a shard is behind, and there is %+v", got.Closed)
	}
	if got = Count([][]Reading{first, nil}, twoSeconds); len(got.Closed) != 0 {
		t.Errorf("a shard has nothing, and there is %+v", got.Closed)
	}
}

// TestARecountOfSlidingWindows: a reading is in all windows that hold its time, and late for those
// that are closed.
func TestARecountOfSlidingWindows(t *testing.T) {
	got := Count([][]Reading{readingsOf(1, 10, 13, 11)}, Windows{Size: 2 * time.Second, Every: time.Second, Lateness: time.Second})
	want := []Written{{Room: "a", Start: 9 * second, End: 11 * second, Sum: Sum{1, 1}}, {Room: "a", Start: 10 * second, End: 12 * second, Sum: Sum{1, 1}}}
	open := []Written{{Room: "a", Start: 11 * second, End: 13 * second, Sum: Sum{1, 1}}, {Room: "a", Start: 12 * second, End: 14 * second, Sum: Sum{1, 1}},
		{Room: "a", Start: 13 * second, End: 15 * second, Sum: Sum{1, 1}}}
	if !slices.Equal(got.Closed, want) || !slices.Equal(got.Open, open) || got.Late != 1 {
		t.Errorf("got %+v, want %+v, and open %+v, and one late", got, want, open)
	}
}

// TestARecountOfSessions: sessions of several shards that touch are one. A reading before the
// watermark is late, unless an open session of its shard holds its time.
func TestARecountOfSessions(t *testing.T) {
	first := readingsOf(1, 10, 12, 20, 21, 20, 15, 30) // the second one at 20 is in an open session, the one at 15 is late
	got := Count([][]Reading{first, readingsOf(2, 13, 31)}, Windows{Session: 3 * time.Second})
	want := []Written{{Room: "a", Start: 10 * second, End: 16 * second, Sum: Sum{3, 4}}, {Room: "a", Start: 20 * second, End: 24 * second, Sum: Sum{3, 3}}}
	open := []Written{{Room: "a", Start: 30 * second, End: 34 * second, Sum: Sum{2, 3}}}
	if !slices.Equal(got.Closed, want) || !slices.Equal(got.Open, open) || got.Late != 1 {
		t.Errorf("got %+v, want %+v, and open %+v, and one late", got, want, open)
	}
}

// TestARecountOfAlerts: an alert raises and clears with hysteresis, for each room.
func TestARecountOfAlerts(t *testing.T) {
	var results []Written
	for i, total := range []float64{4, 6, 4, 7, 2, 4, 9} {
		results = append(results, Written{Room: "a", End: int64(i), Sum: Sum{1, total}})
	}
	results = append(results, Written{Room: "b", End: 1, Sum: Sum{1, 6}})
	var got []Written
	for _, is := range []int{1, 4, 6, 7} {
		got = append(got, results[is])
	}
	for i, serial := range []int{1, 2, 3, 1} {
		got[i].Serial, got[i].Raised = serial, serial%2 == 1
	}
	if want := over5.Alerts(results); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", want, got)
	}
}

// TestResultsThatDifferAreFound: one is there twice, is missing, has another sum, or is out of
// order. The order of rooms is open.
func TestResultsThatDifferAreFound(t *testing.T) {
	want := []Written{{Room: "a", End: 2, Sum: Sum{3, 4}}, {Room: "a", End: 4, Sum: Sum{1, 2}}, {Room: "b", End: 2, Sum: Sum{5, 6}}}
	if err := Compare("results", []Written{want[2], want[0], want[1]}, want); err != nil {
		t.Error(err)
	}
	other := want[1]
	other.Readings++
	for what, got := range map[string][]Written{
		"twice":        {want[0], want[0], want[1], want[2]},
		"missing":      {want[0], want[2]},
		"last missing": {want[0], want[1]},
		"nothing":      nil,
		"another sum":  {want[0], other, want[2]},
		"out of order": {want[1], want[0], want[2]},
		"one too many": append(slices.Clone(want), Written{Room: "c"}),
	} {
		if err := Compare("results", got, want); err == nil || !strings.Contains(err.Error(), "disagree with a recount") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPresentAlertsThatDifferAreFound: alerts of all readings so far hold against a recount of
// those that each of them names.
func TestPresentAlertsThatDifferAreFound(t *testing.T) {
	shards := [][]Reading{readingsOf(3, 1, 2, 3), readingsOf(-3, 1, 2, 3)}
	alert := func(serial int, sum Sum, offsets ...uint64) Present {
		return Present{Written{Room: "a", Sum: sum, Serial: serial, Raised: serial%2 == 1}, map[uint32]uint64{0: offsets[0], 1: offsets[1]}}
	}
	raised, cleared := alert(1, Sum{2, 6}, 3, 1), alert(2, Sum{4, 0}, 3, 3)
	if err := over5.Judge(shards, []Present{raised, cleared}); err != nil {
		t.Error(err)
	}
	later, unlike := alert(1, Sum{2, 6}, 3, 1), alert(2, Sum{4, 0}, 3, 3)
	later.Offsets = maps.Clone(later.Offsets)
	delete(later.Offsets, 1)
	unlike.Raised = true
	for what, got := range map[string][]Present{
		"no alert that clears":     {raised},
		"raised twice":             {raised, raised, cleared},
		"a gap of numbers":         {cleared},
		"a wrong state":            {raised, unlike},
		"another sum":              {alert(1, Sum{2, 7}, 3, 1), cleared},
		"no reason":                {alert(1, Sum{1, 3}, 2, 1), cleared},
		"a shard without offset":   {later, cleared},
		"of fewer readings":        {raised, alert(2, Sum{3, -3}, 2, 3)},
		"cleared without a reason": {raised, alert(2, Sum{3, 3}, 3, 2)},
	} {
		if err := over5.Judge(shards, got); err == nil || !strings.Contains(err.Error(), "disagree with a recount") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := over5.Judge([][]Reading{shards[0]}, nil); err == nil {
		t.Error("no alert was raised, and that was not found")
	}
}
