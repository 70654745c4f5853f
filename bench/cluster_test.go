package bench

import (
	"strings"
	"testing"
	"time"
)

func smallCluster() Cluster {
	return Cluster{
		Brokers: 3, Subscribers: 1, Rate: 10, PayloadBytes: 32, Least: 200 * time.Millisecond,
		Most: 600 * time.Millisecond, Duration: 3 * time.Second, Seed: 7,
	}
}

func clusterPlanOf(t *testing.T, c Cluster) *clusterPlan {
	t.Helper()
	made, err := c.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	return made[0].cluster
}

func TestAClusterPlanIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Cluster){
		"brokers is 0":             func(c *Cluster) { c.Brokers = 0 },
		"at a broker is 201":       func(c *Cluster) { c.Subscribers = 201 },
		"payload is 16":            func(c *Cluster) { c.PayloadBytes = 16 },
		"rate is 0":                func(c *Cluster) { c.Rate = 0 },
		"changes are 0s to":        func(c *Cluster) { c.Least = 0 },
		"changes are 200ms to 1ms": func(c *Cluster) { c.Most = time.Millisecond },
		"duration is 0s":           func(c *Cluster) { c.Duration = 0 },
		"account of every message": func(c *Cluster) {
			c.Subscribers, c.Rate, c.Duration = 200,
				1000, 24*time.Hour
		},
	} {
		bad := smallCluster()
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestTheClusterOfThePaper: of the paper's parameters, each subscriber has four publishers at each
// broker, a third of all are members, and each changes every 30 to 60 s.
func TestTheClusterOfThePaper(t *testing.T) {
	p := clusterPlanOf(t, Cluster{
		Brokers: 3, Subscribers: 10, Rate: 5, PayloadBytes: 32, Least: 30 * time.Second, Most: time.Minute,
		Duration: 5 * time.Minute, Seed: 1,
	})
	if p.subscribers != 30 || p.publishers != 360 {
		t.Fatalf("%d subscribers, %d publishers", p.subscribers, p.publishers)
	}
	at := map[[2]int]int{}
	for publisher := range p.publishers {
		at[[2]int{publisher / clusterRooms, p.broker(publisher)}]++
		last := 0
		for _, s := range p.changes[publisher] {
			if apart := time.Duration(s-last) * p.schedule.period; apart < 29*time.Second ||
				apart > 61*time.Second {
				t.Errorf("publisher %d changes after %v", publisher, apart)
			}
			last = s
		}
	}
	for subscriber := range p.subscribers {
		members := 0
		for room := range clusterRooms {
			if p.member(subscriber*clusterRooms+room, 0) {
				members++
			}
		}
		if members != clusterChosen || at[[2]int{subscriber, 0}] != 4 || at[[2]int{subscriber,
			2}] != 4 {
			t.Errorf("subscriber %d has %d members, and %v at brokers", subscriber, members, at)
		}
		if n := strings.Count(p.where(subscriber), "attributes.room =="); n != clusterChosen {
			t.Errorf("%s", p.where(subscriber))
		}
	}
}

// clusterWorld publishes all messages of a plan, and delivers what has to come, but for what a test
// changes.
func clusterWorld(t *testing.T, change func(a *clusterAccount, publisher,
	sequence int) (handled bool)) (Deliveries, ClusterFigures, error) {
	t.Helper()
	p := clusterPlanOf(t, smallCluster())
	a := newClusterAccount(p, 77, int64(time.Second))
	for subscriber := range p.subscribers {
		a.told(subscriber)
	}
	for i := range p.schedule.len() {
		m := p.schedule.slot(i)
		generation, _ := p.generation(m.publisher, m.sequence)
		subscriber := m.publisher / clusterRooms
		a.publish(m.publisher, m.sequence)
		is, was := p.member(m.publisher, m.sequence), m.sequence > 0 && p.member(m.publisher,
			m.sequence-1)
		if is && !was {
			a.joined(subscriber, m.publisher, generation)
		}
		if was && !is {
			a.left(subscriber, m.publisher)
		}
		if is && (change == nil || !change(a, m.publisher, m.sequence)) {
			a.deliver(subscriber, clusterPayload(77, m.publisher, m.sequence), 9)
		}
	}
	if change == nil && !a.complete() {
		t.Error("all has come, and it is not complete")
	}
	found, figures, published, err := a.close()
	if published != p.schedule.len() {
		t.Errorf("%d of %d were published", published, p.schedule.len())
	}
	return found, figures, err
}

func clusterPayload(run uint64, publisher, sequence int) []byte {
	payload := make([]byte, headerBytes)
	stamp{run: run, publisher: uint32(publisher), sequence: uint32(sequence), due: 1}.put(payload)
	return payload
}

// TestMessagesOfMembersAreCountedExactly: what is lost, comes twice, is foreign, or comes to a
// subscriber whose query its publisher does not match is found, and what is missed by a new member
// is told apart.
func TestMessagesOfMembersAreCountedExactly(t *testing.T) {
	good, figures, err := clusterWorld(t, nil)
	if err != nil || good.faulty() || good.Received != good.Expected || good.Received == 0 ||
		figures.Missed != 0 || figures.Notices == 0 || figures.Changes == 0 {
		t.Fatalf("%+v %+v %v", good, figures, err)
	}
	p := clusterPlanOf(t, smallCluster())
	// A publisher that is a member with a message and with those before and after it.
	publisher, middle := -1, 0
	for n := range p.publishers {
		for s := 1; s+1 < p.schedule.ticks && publisher < 0; s++ {
			if p.member(n, s-1) && p.member(n, s) && p.member(n, s+1) {
				publisher, middle = n, s
			}
		}
	}
	at := func(what func(a *clusterAccount)) func(*clusterAccount, int, int) bool {
		return func(a *clusterAccount, n, s int) bool {
			if n == publisher && s == middle {
				what(a)
				return true
			}
			return false
		}
	}
	subscriber := publisher / clusterRooms
	message := clusterPayload(77, publisher, middle)
	for name, c := range map[string]struct {
		change                  func(*clusterAccount, int, int) bool
		lost, twice, unexpected int64
	}{
		"lost": {change: at(func(*clusterAccount) {}), lost: 1},
		"twice": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, message,
				9)
			a.deliver(subscriber, message, 9)
		}), twice: 1},
		"to another subscriber": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, message, 9)
			a.deliver((subscriber+1)%3, message, 9)
		}), unexpected: 1},
		"damaged": {change: at(func(a *clusterAccount) { a.deliver(subscriber, message[1:], 9) }),
			lost: 1, unexpected: 1},
		"foreign": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, clusterPayload(78,
				publisher, middle), 9)
		}), lost: 1, unexpected: 1},
		"before it is published": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, message, 9)
			a.deliver(subscriber, clusterPayload(77, publisher, middle+1), 9)
		}), unexpected: 1},
		"a wrong member": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, message, 9)
			a.joined((subscriber+1)%3, publisher, 0)
		}), unexpected: 1},
		// The message behind has no member any more, and neither has the end.
		"a wrong Del": {change: at(func(a *clusterAccount) {
			a.deliver(subscriber, message, 9)
			a.left((subscriber+1)%3, publisher)
		}), unexpected: 1},
	} {
		found, _, err := clusterWorld(t, c.change)
		if found.Lost != c.lost || found.Duplicated != c.twice ||
			found.Unexpected != c.unexpected || (err != nil) != (c.unexpected > 0) {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	// The first messages of a member are missed; the middle one came.
	missing := func(a *clusterAccount, n, s int) bool { return n == publisher && s < middle }
	found, figures, _ := clusterWorld(t, missing)
	if found.Lost != 0 || figures.Missed == 0 || found.Received != good.Received-figures.Missed ||
		found.Expected != found.Received {
		t.Errorf("%+v %+v", found, figures)
	}
}

// TestMissedMessagesHoldNobodyUp: what is missed at the beginning of a membership is not waited for
// once a later message has come, and until then one knows that nothing has.
func TestMissedMessagesHoldNobodyUp(t *testing.T) {
	p := clusterPlanOf(t, smallCluster())
	publisher := 0
	for !p.member(publisher, 0) || !p.member(publisher, 1) || !p.member(publisher, 2) {
		publisher++
	}
	a, subscriber := newClusterAccount(p, 77, int64(time.Second)), publisher/clusterRooms
	is := func(when string, settled, entering bool) {
		t.Helper()
		if a.settled(publisher) != settled || a.entering(publisher) != entering {
			t.Errorf("%s: settled %v, entering %v", when, a.settled(publisher), a.entering(publisher))
		}
	}
	a.told(subscriber)
	a.joined(subscriber, publisher, 0)
	a.publish(publisher, 0)
	a.publish(publisher, 1)
	is("nothing has come", false, true)
	a.deliver(subscriber, clusterPayload(77, publisher, 1), 9)
	is("the second one has come", true, false)
	a.publish(publisher, 2)
	is("the third one has not come", false, false)
}

func TestClustersTable(t *testing.T) {
	made, err := Cluster{
		Brokers: 3, Subscribers: 10, Rate: 5, PayloadBytes: 32, Least: 30 * time.Second, Most: time.Minute, Duration: time.Minute, Seed: 1,
	}.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	result := newResult(made[0], []Target{{Name: "carillon"}})
	run := sampleRun(1, 20_000, time.Millisecond)
	run.Cluster = &ClusterFigures{Missed: 3, Notices: 240, Changes: 700}
	result.Measured[0].Runs = append(result.Measured[0].Runs, run)
	result.summarize()
	r := &Report{Servers: []Server{{Name: "carillon"}}, Results: []Result{result}}
	table := string(tableOf(t, r, true))
	for _, want := range []string{
		"cluster: 3 brokers, 30 subscribers with a live query each; 5 msg/s per publisher, 32 B", "every 30s to 1m0s",
		"attributes were changed 700 times, subscribers were told of 240 changes", "3 messages of new members", "130ms", "891ms", "7.59ms", "* CQBS: 3 brokers",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

// TestThePageHasContentQueries: it has a section for each scenario of content queries, with its own
// rows.
func TestThePageHasContentQueries(t *testing.T) {
	r := &Report{Servers: []Server{{Name: "carillon"}}}
	for _, load := range []interface{ Workloads() ([]Workload, error) }{
		smallRequery(), smallCluster(), smallFilter(), smallQuery(nil), forwardBy(10),
	} {
		made, err := load.Workloads()
		if err != nil {
			t.Fatal(err)
		}
		result := newResult(made[0], []Target{{Name: "carillon"}})
		run := sampleRun(1, 20_000, time.Millisecond)
		phase := KVPhase{Operations: 2, Rate: 1234, Latency: run.Latency}
		run.Requery, run.Cluster = &RequeryFigures{Answered: 1, Answer: run.Latency}, &ClusterFigures{Missed: 3}
		run.Query = &QueryFigures{FillRate: 70_000, All: phase, Selective: phase, None: phase}
		result.Measured[0].Runs = append(result.Measured[0].Runs, run)
		result.summarize()
		r.Results = append(r.Results, result)
	}
	r.Results[2].Measured[0].OverFirst = 1.5
	var page strings.Builder
	if err := r.WritePage(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"requery 8 publishers", "cluster 36 publishers", "filter 3 filters", "query 101 records",
		"forward 1 groups, 10 other queries", "change acknowledged: p99", "missed by new members", "1.500 ×",
		"selective: records scanned", "server CPU per message",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
}
