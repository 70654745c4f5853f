package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Requery configures publishers that arrive and change their attributes, under many live queries:
// the coordinator's workload of the CQBS paper. Latency counts from when a change was due until the
// client of a query has the notice.
type Requery struct {
	Publishers  []int
	Sessions    int // connections that share the queries, and as many that make the changes
	Queries     int
	Share       float64 // of the publishers, that each query matches
	Changes     int     // after all publishers have arrived
	Least, Most time.Duration
	Midway      string                      // command for sh, halfway
	Strike      func(context.Context) error // instead of a command; or nil
	Seed        uint64
}

const scenarioRequery = "requery"

// The bounds of a requery load.
const (
	maxRequeryPublishers = 50_000
	maxRequeryQueries    = 20_000
	maxRequerySessions   = 1000
	maxRequeryChanges    = 1_000_000
	// maxRequeryKeys keeps the attributes of a publisher within what a broker accepts: a key and
	// its value take up to 16 bytes.
	maxRequeryKeys = attributesBytes / 16 / 2
	// maxRequeryBits bounds what keeping account of every notice may take, in bits.
	maxRequeryBits = maxLedgerBytes * 8
)

// A requeryPlan is what a Workload of this scenario adds. Each publisher has an attribute for each
// key, with one of so many values, and all of them change at each of its events. Query q asks for
// value q modulo values of key q / values, so no two queries are alike, and each matches one
// publisher of so many.
type requeryPlan struct {
	publishers, sessions, queries int
	keys, values                  int
	changes                       int
	seed                          uint64
	due                           []time.Duration // of each event
	midway                        string
	strike                        func(context.Context) error
}

// Workloads makes one plan for each number of publishers.
func (c Requery) Workloads() ([]Workload, error) {
	if len(c.Publishers) == 0 {
		return nil, fmt.Errorf("no number of publishers is given")
	}
	for _, bound := range []struct {
		what        string
		value, most int
	}{
		{"publishers", slices.Max(c.Publishers), maxRequeryPublishers}, {"publishers",
			slices.Min(c.Publishers), maxRequeryPublishers},
		{"queries", c.Queries, maxRequeryQueries}, {"sessions", c.Sessions, maxRequerySessions},
		{"changes", max(c.Changes, 1), maxRequeryChanges},
	} {
		if bound.value < 1 || bound.value > bound.most {
			return nil, fmt.Errorf("number of %s is %d; give 1 to %d", bound.what, bound.value,
				bound.most)
		}
	}
	if c.Changes < 0 {
		return nil, fmt.Errorf("number of changes is %d; give 0 to %d", c.Changes,
			maxRequeryChanges)
	}
	if !(c.Share >= 0.001 && c.Share <= 0.5) {
		return nil, fmt.Errorf("a query is to match %v of the publishers; give 0.001 to 0.5",
			c.Share)
	}
	if c.Least <= 0 || c.Most < c.Least || c.Most > time.Hour {
		return nil, fmt.Errorf("events are %v to %v apart; give the least time, more than 0, and the greatest, at most 1h", c.Least, c.Most)
	}
	values := int(math.Round(1 / c.Share))
	keys := (c.Queries + values - 1) / values
	if keys > maxRequeryKeys {
		return nil, fmt.Errorf("%d queries that each match %v of the publishers need %d attributes of each publisher, more than %d: give fewer queries, or a smaller share",
			c.Queries, c.Share, keys, maxRequeryKeys)
	}
	var made []Workload
	for _, publishers := range c.Publishers {
		if bits := 2 * publishers * c.Queries; bits > maxRequeryBits {
			return nil, fmt.Errorf("%d publishers under %d queries: keeping account of every notice would take %d MiB, more than %d; give fewer",
				publishers, c.Queries, bits>>23, maxLedgerBytes>>20)
		}
		plan := &requeryPlan{
			publishers: publishers, sessions: c.Sessions, queries: c.Queries, keys: keys, values: values,
			changes: c.Changes, seed: c.Seed, midway: c.Midway,
			strike: c.Strike,
		}
		random := rand.New(rand.NewPCG(c.Seed, uint64(publishers)))
		for at := time.Duration(0); len(plan.due) < publishers+c.Changes; {
			at += c.Least + time.Duration(random.Int64N(int64(c.Most-c.Least)+1))
			plan.due = append(plan.due, at)
		}
		length := plan.due[len(plan.due)-1]
		notices := 0
		for e := range plan.due {
			notices += plan.expected(plan.event(e))
		}
		made = append(made, Workload{
			Scenario: scenarioRequery, Size: publishers, Client: ClientNATS,
			Parameters: Parameters{
				Publishers: publishers, Subscribers: c.Queries, Sessions: c.Sessions, Queries: c.Queries, Share: 1 / float64(values),
				Changes: c.Changes, LeastNS: int64(c.Least), MostNS: int64(c.Most), DurationNS: int64(length),
				OfferedMessages: float64(len(plan.due)) / length.Seconds(), OfferedDeliveries: float64(notices) / length.Seconds(),
			},
			requery: plan,
		})
	}
	return made, nil
}

// event returns the publisher of an event, and how often it has changed before. Publishers arrive
// one after another, and then change in turn.
func (p *requeryPlan) event(e int) (publisher, generation int) {
	return e % p.publishers, e / p.publishers
}

// value is that of a publisher's key; generations that follow each other have different ones.
func (p *requeryPlan) value(publisher, key, generation int) int {
	random := rand.NewPCG(p.seed, uint64(publisher)<<32|uint64(key))
	return (int(random.Uint64()%uint64(p.values)) + generation) % p.values
}

// joins and leaves tell what a query is to be told of a publisher's event.
func (p *requeryPlan) joins(query, publisher, generation int) bool {
	return p.value(publisher, query/p.values, generation) == query%p.values
}

func (p *requeryPlan) leaves(query, publisher, generation int) bool {
	return generation > 0 && p.joins(query, publisher, generation-1)
}

// expected is how many notices an event causes.
func (p *requeryPlan) expected(publisher, generation int) (notices int) {
	for key := range p.keys {
		if key*p.values+p.value(publisher, key, generation) < p.queries {
			notices++
		}
		if generation > 0 && key*p.values+p.value(publisher, key, generation-1) < p.queries {
			notices++
		}
	}
	return notices
}

func (p *requeryPlan) where(query int) string {
	return fmt.Sprintf("attributes.k%d == %q", query/p.values, strconv.Itoa(query%p.values))
}

func (p *requeryPlan) attributes(publisher, generation int) map[string]any {
	set := map[string]any{"generation": generation}
	for key := range p.keys {
		set["k"+strconv.Itoa(key)] = strconv.Itoa(p.value(publisher, key, generation))
	}
	return set
}

// RequeryFigures are the findings of a run of the requery scenario.
type RequeryFigures struct {
	Answered int64   `json:"answered_changes"`
	Answer   Latency `json:"answer_latency"`   // from when a change was due until it was acknowledged
	Repeated int64   `json:"repeated_changes"` // since coordinators or brokers were not ready
	OpenNS   int64   `json:"open_queries_ns"`
	// StruckNS is when what is done halfway was done, since the first change was due; 0: nothing
	// was.
	StruckNS int64 `json:"struck_after_ns,omitempty"`
}

// summarizeRequery returns medians, but the sum of counts.
func summarizeRequery(runs []Run) *RequeryFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool {
		return r.Requery == nil ||
			r.Requery.Answered == 0
	})
	if len(runs) == 0 {
		return nil
	}
	s := &RequeryFigures{
		Answer: medianOf(runs, func(r Run) Latency { return r.Requery.Answer }),
		OpenNS: median(runs, func(r Run) int64 { return r.Requery.OpenNS }),
	}
	for _, run := range runs {
		s.Answered, s.Repeated = s.Answered+run.Requery.Answered, s.Repeated+run.Requery.Repeated
	}
	return s
}
