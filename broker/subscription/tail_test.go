package subscription

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// standsAt returns where a cursor is, without moving it.
func standsAt(s *Subscription) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor.offset
}

// TestOnlyASubscriptionWithAMatchIsWoken: others don't move, until they are asked.
func TestOnlyASubscriptionWithAMatchIsWoken(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		const n = 100
		for i := range n {
			w.declare(fmt.Sprint("s", i), int64(i+1), where(fmt.Sprintf("json.k == %d", i)))
		}
		for i := range n {
			w.find(fmt.Sprint("s", i)).Pull(pull("a", 9))
		}
		synctest.Wait()
		for range 10 {
			w.say(`{"k": 5}`, `{"k": 1000}`)
		}
		synctest.Wait()
		for i := range n {
			name := fmt.Sprint("s", i)
			got, at := w.box(name).take("a"), standsAt(w.find(name))
			if i == 5 && (len(got) != 9 || at != 17) || i != 5 && (len(got) != 0 || at != 0) {
				t.Errorf("%s got %q and stands at %d", name, got, at)
			}
			if is := w.find(name).Info(); i != 5 && (is.Lag != 0 || !is.LagExact || is.DeliveredOffset > 20) {
				t.Errorf("%s: %+v", name, is)
			}
		}
	})
}

// flood appends many records that no condition matches.
func (w *world) flood(n int) {
	records := make([]log.Record, 0, 1000)
	for ; n > 0; n -= len(records) {
		records = records[:0]
		for range min(n, cap(records)) {
			records = append(records, record("orders.eu", `{"k": 0}`))
		}
		w.shard.append(records...)
		synctest.Wait()
	}
}

// TestAFloodThatDoesNotMatch: a cursor that waits follows at a bounded distance, also in the state
// log, and one that sleeps finds the match behind the flood.
func TestAFloodThatDoesNotMatch(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("waits", 1, where("json.k == 1"))
		w.declare("sleeps", 2, where("json.k == 2"))
		w.find("waits").Pull(pull("a", 9))
		w.find("sleeps")
		w.flood(3 * lazySkips)
		time.Sleep(time.Second)
		if at := standsAt(w.find("waits")); at < 2*lazySkips || at == 3*lazySkips {
			t.Errorf("a waiting cursor stands at %d, %d behind", at, 3*lazySkips-at)
		}
		if at := standsAt(w.find("sleeps")); at != 0 {
			t.Errorf("a sleeping one stands at %d", at)
		}
		w.restart()
		synctest.Wait()
		if at := standsAt(w.find("waits")); at < 2*lazySkips {
			t.Errorf("the next leader has the cursor at %d", at)
		}
		w.say(`{"k": 2}`, `{"k": 1}`)
		w.find("waits").Pull(pull("b", 9))
		w.expect("waits", "b", fmt.Sprint(3*lazySkips+2))
		w.find("sleeps").Pull(pull("b", 9))
		w.expect("sleeps", "b", fmt.Sprint(3*lazySkips+1))
		if last := w.box("sleeps").last(); last.Pending != 0 {
			t.Errorf("%d are pending behind the last match", last.Pending)
		}
	})
}

// TestACursorThatIsBlockedMissesNoMatch: more records match meanwhile than the tail remembers.
func TestACursorThatIsBlockedMissesNoMatch(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		spec := where("json.k == 1")
		spec.Ack.MaxPending = 2
		w.declare("blocked", 1, spec)
		w.declare("other", 2, where("json.k == 1 && json.n > 0"))
		s := w.find("blocked")
		s.Pull(pull("a", 1000))
		w.find("other").Pull(pull("a", 1))
		const n = 5 * mostRecent
		for range n {
			w.say(`{"k": 1, "n": 0}`, `{"k": 2}`)
			w.find("other").Pull(Pull{To: []byte("b"), Batch: 1, NoWait: true})
		}
		var got []string
		for offset := uint64(1); offset < 2*n; offset += 2 {
			synctest.Wait()
			got = append(got, w.box("blocked").take("a")...)
			s.Ack(offset, 0, 0, Done, 0, nil)
		}
		for i := range got {
			if got[i] != fmt.Sprint(2*i+1) {
				t.Fatalf("%d. came %s", i, got[i])
			}
		}
		if len(got) != n {
			t.Errorf("%d came, want %d", len(got), n)
		}
	})
}

// TestEverySubscriptionGetsWhatMatches compares what many Subscriptions get with what their
// conditions say, while they come, go, change, are reset, sleep and wait, and leaders change.
func TestEverySubscriptionGetsWhatMatches(t *testing.T) {
	for seed := range uint64(4) {
		story(t, func(t *testing.T, w *world) { matchAll(t, w, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func matchAll(t *testing.T, w *world, random *rand.Rand) {
	conditions := map[string]func(k, n int, subject string) bool{
		"json.k == 1":               func(k, _ int, _ string) bool { return k == 1 },
		"json.k == 2 && json.n > 4": func(k, n int, _ string) bool { return k == 2 && n > 4 },
		`json.k in [1, 3]`:          func(k, _ int, _ string) bool { return k == 1 || k == 3 },
		`json.n < 3`:                func(_, n int, _ string) bool { return n < 3 },
		`json.n + json.k > 8.0`:     func(k, n int, _ string) bool { return n+k > 8 },
		`subject == "a.1"`:          func(_, _ int, subject string) bool { return subject == "a.1" },
		`json.k == 77`:              func(int, int, string) bool { return false },
		`has(json.k)`:               func(int, int, string) bool { return true },
		`json.k == 3 && subject.matches("^a[.]2$")`: func(k, _ int, subject string) bool { return k == 3 && subject == "a.2" },
	}
	type model struct {
		match func(k, n int, subject string) bool
		only  string // filter by subject; empty: none
		want  []uint64
	}
	models := map[string]*model{}
	for text, match := range conditions {
		for _, only := range []string{"", "a.1", "a.2"} {
			name := fmt.Sprintf("s%d", len(models))
			models[name] = &model{match: match, only: only}
			spec := where(text)
			if only != "" {
				spec.Subjects = []string{only}
			}
			spec.Ack.Policy = coordination.AckNone
			w.declare(name, int64(len(models)), spec)
		}
	}
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	slices.Sort(names)
	offset := uint64(0)
	got := map[string][]uint64{}
	gather := func() {
		synctest.Wait()
		for _, name := range names {
			box := w.box(name)
			box.mu.Lock()
			for _, d := range box.all {
				got[name] = append(got[name], d.Offset)
			}
			box.all = nil
			box.mu.Unlock()
		}
	}
	for range 200 {
		switch random.IntN(12) {
		case 0:
			time.Sleep(time.Second)
			gather()
			w.restart()
		case 1, 2, 3:
			name := names[random.IntN(len(names))]
			w.find(name).Pull(Pull{To: []byte("a"), Batch: 1 + random.IntN(50), NoWait: random.IntN(3) == 0})
		case 4:
			w.find(names[random.IntN(len(names))]).Info()
		default:
			var records []log.Record
			for range 1 + random.IntN(300) {
				k, n, subject := random.IntN(5), random.IntN(10), []string{"a.1", "a.2"}[random.IntN(2)]
				offset++
				records = append(records, record(subject, fmt.Sprintf(`{"k": %d, "n": %d}`, k, n)))
				for _, m := range models {
					if m.match(k, n, subject) && (m.only == "" || m.only == subject) {
						m.want = append(m.want, offset)
					}
				}
			}
			w.shard.append(records...)
		}
	}
	for _, name := range names {
		w.find(name).Pull(pull("a", 1<<20))
	}
	gather()
	for _, name := range names {
		if m := models[name]; !slices.Equal(got[name], m.want) {
			t.Errorf("%s got %d, want %d: %v, %v", name, len(got[name]), len(m.want), got[name][:min(len(got[name]), 20)], m.want[:min(len(m.want), 20)])
		}
		if i := w.find(name).Info(); i.Lag != 0 || !i.LagExact {
			t.Errorf("%s: a lag of %d, exact: %v", name, i.Lag, i.LagExact)
		}
	}
}

// TestALargeRecordMissesNoSubscription: the tail passes over it, and each judges it for itself.
func TestALargeRecordMissesNoSubscription(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		conditions := []string{"json.k == 1", "json.k == 1 && json.n > 0", "json.n > 0", "json.n > 5"}
		for i, text := range conditions {
			name := fmt.Sprint("s", i)
			w.declare(name, int64(i+1), where(text))
			w.find(name).Pull(pull("a", 9))
		}
		large := strings.Repeat("x", 1<<16)
		w.say(`{"k": 1, "n": 1}`, `{"k": 1, "n": 1, "x": "`+large+`"}`, `{"k": 2, "n": 1, "x": "`+large+`"}`, `{"k": 1, "n": 1}`)
		w.expect("s0", "a", "1", "2", "4")
		w.expect("s1", "a", "1", "2", "4")
		w.expect("s2", "a", "1", "2", "3", "4")
		w.expect("s3", "a")
		w.say(`{"k": 1, "n": 9, "x": "` + large + `"}`)
		for i := range conditions {
			w.expect(fmt.Sprint("s", i), "a", "5")
			if i := w.find(fmt.Sprint("s", i)).Info(); i.Lag != 0 || !i.LagExact || i.Unjudged != 0 {
				t.Errorf("%+v", i)
			}
		}
	})
}
