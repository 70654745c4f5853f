package viewing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/carillon-mq/carillon/broker/view"
)

// event is a record of the source.
type event struct {
	At  int64  `json:"t"` // ms
	Key string `json:"k"`
	N   int    `json:"n"`
}

// input is what a shard of the source has got: records from offset 1 on, and advances.
type input struct {
	events   []event
	advances []advance
}

// span is a window of a key, in ms; without windows it has no times.
type span struct {
	key      string
	from, to int64
}

type total struct{ count, sum int }

func (s span) line(t total) string {
	return fmt.Sprintf("%d-%d count %d sum %d", s.from, s.to, t.count, t.sum)
}

// recounted is what a view has to know of inputs.
type recounted struct {
	totals map[span]total
	closed int64 // ms: windows that end here or before are closed in all shards
	late   int
}

// recount counts in the plainest way: first which records are late, shard by shard, and then all
// windows of the others.
func recount(of *view.Spec, inputs []input) recounted {
	w := &of.Window
	gap, size, every := w.Session.Milliseconds(), w.Tumbling.Milliseconds(), w.Tumbling.Milliseconds()
	if w.Sliding != nil {
		size, every = w.Sliding.Size.Milliseconds(), w.Sliding.Every.Milliseconds()
	}
	all := recounted{totals: map[span]total{}, closed: math.MaxInt64}
	var inSessions []event
	for _, in := range inputs {
		// A checkpoint that is written before an advance is made has it once more behind it.
		advances := slices.SortedStableFunc(slices.Values(in.advances), func(a, b advance) int { return cmp.Compare(a.next, b.next) })
		mark := int64(math.MinInt64) // ns
		pass := func(offset int) {
			for len(advances) > 0 && advances[0].next <= uint64(offset) {
				mark, advances = max(mark, advances[0].to), advances[1:]
			}
		}
		var here []event
		for i, e := range in.events {
			pass(i + 1)
			at := e.At * 1e6
			switch {
			case gap > 0:
				mine := sessionsOf(here, e.Key, gap)
				if at < mark && !slices.ContainsFunc(slices.Collect(maps.Keys(mine)), func(s span) bool { return s.to*1e6 > mark && s.from <= e.At && e.At < s.to }) {
					all.late++
				} else {
					here = append(here, e)
				}
			case size > 0:
				for from := e.At / every * every; from > e.At-size; from -= every {
					if (from+size)*1e6 <= mark {
						all.late++
					} else {
						all.add(span{e.Key, from, from + size}, total{1, e.N})
					}
				}
			default:
				all.add(span{key: e.Key}, total{1, e.N})
			}
			mark = max(mark, at-int64(w.Lateness))
		}
		pass(len(in.events) + 1)
		if all.closed = min(all.closed, mark); mark > math.MinInt64 {
			all.closed = min(all.closed, mark/1e6)
		}
		inSessions = append(inSessions, here...)
	}
	keys := map[string]bool{}
	for _, e := range inSessions {
		if !keys[e.Key] {
			keys[e.Key] = true
			maps.Copy(all.totals, sessionsOf(inSessions, e.Key, gap))
		}
	}
	return all
}

func (r *recounted) add(s span, t total) {
	is := r.totals[s]
	r.totals[s] = total{is.count + t.count, is.sum + t.sum}
}

// sessionsOf returns the sessions of a key.
func sessionsOf(events []event, key string, gap int64) map[span]total {
	var mine []event
	for _, e := range events {
		if e.Key == key {
			mine = append(mine, e)
		}
	}
	slices.SortStableFunc(mine, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	all, s, t := map[span]total{}, span{}, total{}
	for _, e := range mine {
		if t.count > 0 && e.At >= s.to {
			all[s], t = t, total{}
		}
		if t.count == 0 {
			s = span{key: key, from: e.At}
		}
		s.to, t = e.At+gap, total{t.count + 1, t.sum + e.N}
	}
	if t.count > 0 {
		all[s] = t
	}
	return all
}

// expected returns the results and alerts of inputs as lines by subject, but for those of the key
// that is called end: its windows may close later.
func expected(of *view.Spec, inputs []input) (results, alerts map[string][]string) {
	results, alerts = map[string][]string{}, map[string][]string{}
	raised, all := map[string]bool{}, recount(of, inputs)
	for _, s := range slices.SortedFunc(maps.Keys(all.totals), func(a, b span) int { return cmp.Compare(a.to, b.to) }) {
		if s.key == "end" {
			continue
		}
		t := all.totals[s]
		results["out.means."+s.key] = append(results["out.means."+s.key], s.line(t))
		if !raised[s.key] && t.sum > 30 || raised[s.key] && t.sum < 20 {
			raised[s.key] = !raised[s.key]
			at := "alerts.means.high." + s.key
			alerts[at] = append(alerts[at], fmt.Sprintf("%d %v %d", len(alerts[at])+1, raised[s.key], s.to))
		}
	}
	return results, alerts
}

// before returns what precedes the offsets of the shards.
func before(inputs []input, offset func(shard int) uint64) []input {
	some := make([]input, len(inputs))
	for n, in := range inputs {
		some[n].events = in.events[:max(offset(n), 1)-1]
		for _, a := range in.advances {
			if a.next <= offset(n) {
				some[n].advances = append(some[n].advances, a)
			}
		}
	}
	return some
}

// ends returns the offsets behind the last records of the source.
func (w *world) ends() (all []uint64) {
	for _, in := range w.inputs() {
		all = append(all, uint64(len(in.events)+1))
	}
	return all
}

// told are present values that a client got, and the results that were there then.
type told struct {
	page    *Values
	results map[string][]string
}

// has reports whether the result of a window was there. That of a session has the records that came
// behind the offsets of the page, too, and may be longer.
func (t *told) has(s span) bool {
	return slices.ContainsFunc(t.results["out.means."+s.key], func(line string) bool {
		var from, to int64
		_, err := fmt.Sscanf(line, "%d-%d ", &from, &to)
		return err == nil && from <= s.from && s.to <= to
	})
}

// judgePages requires present values to be those of a recount of the records before their offsets:
// each of them is, and none is missing but of windows that are closed. Such a window may be open
// for a leader that still reads what an earlier one had read.
func (w *world) judgePages() {
	w.t.Helper()
	w.asking.Wait()
	inputs := w.inputs()
	for _, told := range w.pages {
		page := told.page
		want := recount(&w.declared.Spec, before(inputs, func(shard int) uint64 { return page.Offsets[shard] }))
		for _, v := range page.Values {
			s := span{key: v.Keys[0].Text}
			if w.declared.Output != "" {
				s.from, s.to = v.From.UnixMilli(), v.To.UnixMilli()
			}
			got := total{int(v.Values["readings"].Count), int(v.Values["sum"].Number)}
			if is, there := want.totals[s]; !there || got != is {
				w.t.Errorf("at %v the value of %+v is %+v, want %+v (%v)", page.Offsets, s, got, is, there)
			}
			delete(want.totals, s)
		}
		for s, t := range want.totals {
			if w.declared.Output == "" || s.to > want.closed && !told.has(s) {
				w.t.Errorf("at %v there is no value of %+v, want %+v", page.Offsets, s, t)
			}
		}
	}
}

// judgePresentAlerts judges the alerts of a view without windows.
func (w *world) judgePresentAlerts() {
	w.t.Helper()
	inputs, raised := w.inputs(), map[string]bool{}
	for subject, all := range w.messages("alerts") {
		last := map[int]uint64{}
		for i, b := range all {
			var is struct {
				Serial  int
				State   string
				Key     []string
				Values  struct{ Readings, Sum float64 }
				Offsets map[int]uint64
			}
			if err := json.Unmarshal(b, &is); err != nil || len(is.Key) != 1 || len(is.Offsets) != len(inputs) {
				w.t.Fatalf("an alert is %s: %v", b, err)
			}
			want := recount(&w.declared.Spec, before(inputs, func(shard int) uint64 { return is.Offsets[shard] })).totals[span{key: is.Key[0]}]
			raises := i%2 == 0
			if subject != "alerts.means.high."+is.Key[0] || is.Serial != i+1 || (is.State == "raised") != raises || raises && want.sum <= 30 || !raises && want.sum >= 20 ||
				is.Values.Readings != float64(want.count) || is.Values.Sum != float64(want.sum) {
				w.t.Errorf("alert %d of %s is %s, want %+v", i+1, subject, b, want)
			}
			for n, offset := range is.Offsets {
				if offset < last[n] {
					w.t.Errorf("alert %d of %s is of offset %d of shard %d, and the one before of %d", i+1, subject, offset, n, last[n])
				}
				last[n] = offset
			}
			raised[is.Key[0]] = raises
		}
	}
	for s, t := range recount(&w.declared.Spec, inputs).totals {
		if t.sum > 30 && !raised[s.key] || t.sum < 20 && raised[s.key] {
			w.t.Errorf("in the end %s has %+v, and is raised: %v", s.key, t, raised[s.key])
		}
	}
}
