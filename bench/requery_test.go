package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func smallRequery() Requery {
	return Requery{
		Publishers: []int{8}, Sessions: 2, Queries: 25, Share: 0.1, Changes: 12,
		Least: time.Millisecond, Most: 5 * time.Millisecond, Seed: 7,
	}
}

func requeryPlanOf(t *testing.T, c Requery) *requeryPlan {
	t.Helper()
	made, err := c.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0].requery
}

func TestARequeryPlanIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Requery){
		"publishers is 0":         func(c *Requery) { c.Publishers = []int{0} },
		"no number of publishers": func(c *Requery) { c.Publishers = nil },
		"queries is 0":            func(c *Requery) { c.Queries = 0 },
		"sessions is 1001":        func(c *Requery) { c.Sessions = 1001 },
		"changes is -1":           func(c *Requery) { c.Changes = -1 },
		"match 0.9":               func(c *Requery) { c.Share = 0.9 },
		"0s to 5ms apart":         func(c *Requery) { c.Least = 0 },
		"1ms to 0s apart":         func(c *Requery) { c.Most = 0 },
		"attributes of each":      func(c *Requery) { c.Queries = 10_000 },
		"keeping account of every notice": func(c *Requery) {
			c.Publishers, c.Queries,
				c.Share = []int{50_000}, 20_000, 0.001
		},
	} {
		bad := smallRequery()
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestEachQueryMatchesItsShare: of the paper's parameters, no two queries are alike, each matches
// about a tenth of the publishers, and so many are told of each event.
func TestEachQueryMatchesItsShare(t *testing.T) {
	c := Requery{
		Publishers: []int{1000}, Sessions: 10, Queries: 500, Share: 0.1, Changes: 1000,
		Least: 50 * time.Millisecond, Most: 500 * time.Millisecond, Seed: 1,
	}
	p := requeryPlanOf(t, c)
	texts := map[string]bool{}
	for q := range p.queries {
		texts[p.where(q)] = true
		for generation := range 2 {
			members := 0
			for publisher := range p.publishers {
				if p.joins(q, publisher, generation) {
					members++
				}
				if generation == 1 && p.joins(q, publisher, 1) && p.leaves(q, publisher, 1) {
					t.Fatalf("publisher %d both joins and leaves query %d", publisher, q)
				}
			}
			if members < 50 || members > 150 {
				t.Errorf("query %d matches %d of 1000", q, members)
			}
		}
	}
	if len(texts) != 500 || p.expected(3, 0) != 50 || p.expected(3, 1) != 100 {
		t.Errorf("%d different queries, %d notices of an arrival, %d of a change", len(texts),
			p.expected(3, 0), p.expected(3, 1))
	}
	for i, due := range p.due[1:] {
		if apart := due - p.due[i]; apart < c.Least || apart > c.Most {
			t.Fatalf("event %d comes %v after the one before", i+1, apart)
		}
	}
	if size := len(fmt.Sprint(p.attributes(0, 0))); size > attributesBytes {
		t.Errorf("the attributes take %d bytes", size)
	}
}

// TestNoticesAreCountedExactly: a notice that is missing, comes twice, or is wrong is found, also
// beside others.
func TestNoticesAreCountedExactly(t *testing.T) {
	p := requeryPlanOf(t, smallRequery())
	a := newRequeryAccount(p)
	tell := func(publisher, generation int, but int) (told int) {
		for q := range p.queries {
			if p.joins(q, publisher, generation) && q != but {
				a.joined(q, publisher, generation, 5)
				told++
			}
			if p.leaves(q, publisher, generation) && q != but {
				a.left(q, publisher, 5)
				told++
			}
		}
		return told
	}
	member := func(publisher, generation int, is bool) int {
		for q := range p.queries {
			if p.joins(q, publisher, generation) == is {
				return q
			}
		}
		t.Fatal("no such query")
		return -1
	}
	a.begin(1, 0, 0)
	if a.settled(1) || !a.settled(2) {
		t.Error("an arrival whose notices have not come is settled")
	}
	told := tell(1, 0, -1)
	if !a.settled(1) || told != p.expected(1, 0) {
		t.Errorf("%d of %d were told", told, p.expected(1, 0))
	}
	a.begin(1, 1, 0)
	missed := member(1, 1, true)
	told += tell(1, 1, missed)
	a.begin(2, 0, 0)
	told += tell(2, 0, -1)
	a.joined(member(2, 0, true), 2, 0, 5)  // again
	a.joined(member(2, 0, false), 2, 0, 5) // does not match
	a.joined(member(2, 0, true), 2, 1, 5)  // has not changed
	a.left(member(2, 0, true), 2, 5)       // is a member
	a.left(3, 7, 5)                        // has not arrived
	a.joined(3, -1, 0, 5)                  // is none of ours
	found, first := a.close()
	a.left(3, 7, 5) // does not count
	want := Deliveries{
		Expected: int64(p.expected(1, 0) + p.expected(1, 1) + p.expected(2,
			0)), Received: int64(told), Lost: 1, Duplicated: 1, Unexpected: 5,
	}
	if again, _ := a.close(); found != want || again != want || first == nil ||
		a.latency.count != int64(told) {
		t.Errorf("%+v, then %+v, want %+v; %v", found, again, want, first)
	}
}

// TestAChangeIsRepeatedWhileNobodyLeads: a change that a broker could not carry out, because
// etcd had no leader, is sent again. Other refusals end the run.
func TestAChangeIsRepeatedWhileNobodyLeads(t *testing.T) {
	none := nats.Header{"Status": {"503"}}
	for _, c := range []struct {
		header        nats.Header
		data          string
		again, failed bool
	}{
		{data: `{"subject":"a","revision":3}`},
		{data: `{"error":{"code":"Unavailable","text":"etcd"}}`, again: true},
		{data: `{"error":{"code":"Busy","text":"later"}}`, again: true},
		{data: `{"error":{"code":"NotReady","text":"later"}}`, again: true},
		{data: `{"error":{"code":"Refused","text":"no room"}}`, failed: true},
		{header: none, failed: true},
		{data: `no JSON`, failed: true},
	} {
		r := &requeryRun{unanswered: []bool{true}, answer: newRecorder()}
		again := r.onAnswer(&requeryChange{due: 2}, &nats.Msg{Header: c.header, Data: []byte(c.data)}, 7)
		done := !c.again && !c.failed
		if again != c.again || (r.failed != nil) != c.failed || r.unanswered[0] == done || (r.answer.max == 5) != done {
			t.Errorf("%+v: again %t, %+v", c, again, r)
		}
	}
}

func TestRequerysTable(t *testing.T) {
	c := smallRequery()
	c.Publishers, c.Queries = []int{100, 1000}, 500
	c.Least, c.Most = 50*time.Millisecond, 500*time.Millisecond
	made, err := c.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Servers: []Server{{Name: "carillon"}}}
	for _, w := range made {
		result := newResult(w, []Target{{Name: "carillon"}})
		run := sampleRun(1, 20_000, time.Millisecond)
		run.Requery = &RequeryFigures{Answered: 20, Repeated: 4, OpenNS: 3e6, Answer: run.Latency}
		result.Measured[0].Runs = append(result.Measured[0].Runs, run)
		result.summarize()
		r.Results = append(r.Results, result)
	}
	table := string(tableOf(t, r, true))
	for _, want := range []string{
		"requery: 500 live queries on 2 connections, each matches 10 % of the publishers", "every 50ms to 500ms; then 12 changes", "published *", "95.5ms", "191ms", "60.3ms", "448ms",
		"carillon, 1,000 publishers: all queries were open after 3.00ms;", "  20 changes were acknowledged: p50 1.00ms", "; 4 were repeated.", "* CQBS",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	// The paper's figures are of one load, and say nothing of another.
	for i := range r.Results {
		r.Results[i].Parameters.LeastNS--
	}
	if table := string(tableOf(t, r, true)); strings.Contains(table, "published *") {
		t.Errorf("another load has the paper's figures in\n%s", table)
	}
}

func TestAServerWithoutLiveQueriesIsRefused(t *testing.T) {
	t.Parallel()
	made, err := smallRequery().Workloads()
	if err != nil {
		t.Fatal(err)
	}
	c := Campaign{
		Workloads: made, Server: startFakeServer(t,
			&fakeServer{}), Repeat: 1, Wait: testLimits.Connect, Limits: testLimits,
		Status: quietly,
	}
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
		"give the address of a Carillon broker") {
		t.Error(err)
	}
}
