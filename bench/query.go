package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// Query configures scans of a filled Topic: of all records, of those that match a condition, and of
// none. The scan is the program's, so that what is measured is what users run.
type Query struct {
	Records      []int
	PayloadBytes int
	Share        float64 // of the records, that the condition matches
	Scans        int     // of each kind
	Replicas     int
	Durability   string
	Scan         Scan
}

// A Scan reads a whole Topic, and counts the records that match an expression, as carillon query
// does. Empty: all match.
type Scan func(ctx context.Context, nc *nats.Conn, topic, where string) (matched int64, err error)

const scenarioQuery = "query"

// The bounds of a query load.
const (
	maxQueryRecords = 200_000_000
	maxQueryScans   = 1000
)

// A queryPlan is what a Workload of this scenario adds.
type queryPlan struct {
	records, every, scans, replicas int // every: one record of so many matches
	durability                      string
	scan                            Scan
}

// Workloads makes one plan for each number of records.
func (c Query) Workloads() ([]Workload, error) {
	if len(c.Records) == 0 {
		return nil, errors.New("no number of records is given")
	}
	if c.PayloadBytes < leastFilterSize || c.PayloadBytes > maxFilterBytes {
		return nil, fmt.Errorf("records have %d bytes; give %d (what identifies one, as JSON) to %d",
			c.PayloadBytes, leastFilterSize, maxFilterBytes)
	}
	if !(c.Share >= 0.000_001 && c.Share <= 1) {
		return nil, fmt.Errorf("the condition is to match %v of the records; give 0.000001 to 1",
			c.Share)
	}
	if c.Scans < 1 || c.Scans > maxQueryScans {
		return nil, fmt.Errorf("number of scans is %d; give 1 to %d", c.Scans, maxQueryScans)
	}
	if err := checkReplicas(c.Replicas); err != nil {
		return nil, err
	}
	if err := checkDurability(c.Durability); err != nil {
		return nil, err
	}
	var made []Workload
	for _, records := range c.Records {
		if records < 1 || records > maxQueryRecords {
			return nil, fmt.Errorf("number of records is %d; give 1 to %d", records,
				maxQueryRecords)
		}
		plan := &queryPlan{
			records: records, every: int(1/c.Share + 0.5), scans: c.Scans, replicas: c.Replicas,
			durability: c.Durability, scan: c.Scan,
		}
		made = append(made, Workload{
			Scenario: scenarioQuery, Size: records, Client: ClientNATS,
			Parameters: Parameters{
				Publishers: 1, Messages: records, Share: 1 / float64(plan.every), Replicas: c.Replicas,
				Durability: c.Durability, PayloadBytes: c.PayloadBytes, Scans: c.Scans,
			},
			query: plan,
		})
	}
	return made, nil
}

// A queryKind is one kind of scan: its condition, and what it has to find.
type queryKind struct {
	name, where string
	matching    int64
}

// kinds returns the kinds of scans, in the order of QueryFigures.
func (p *queryPlan) kinds() []queryKind {
	return []queryKind{
		{"all", "", int64(p.records)},
		{"selective", "json.k == 0", int64((p.records + p.every - 1) / p.every)},
		{"none", "json.k == -1", 0},
	}
}

// QueryFigures are the findings of a run of the query scenario. Operations are records, and CPU
// times are per record; a latency is that of a scan.
type QueryFigures struct {
	FillRate  float64 `json:"fill_records_per_s"`
	All       KVPhase `json:"all"`       // without a condition
	Selective KVPhase `json:"selective"` // by one that matches a few records
	None      KVPhase `json:"none"`      // by one that matches no record
}

// phases are the figures of each kind.
func (f *QueryFigures) phases() []*KVPhase { return []*KVPhase{&f.All, &f.Selective, &f.None} }

// QueryRatio has a ratio for each kind of scan.
type QueryRatio struct {
	All       KVPhaseRatio `json:"all"`
	Selective KVPhaseRatio `json:"selective"`
	None      KVPhaseRatio `json:"none"`
}

// phases are the ratios of each kind.
func (q *QueryRatio) phases() []*KVPhaseRatio {
	return []*KVPhaseRatio{&q.All, &q.Selective, &q.None}
}

// summarizeQuery returns medians, but sums of counts.
func summarizeQuery(runs []Run) *QueryFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool {
		return r.Query == nil || r.Query.None.Rate == 0
	})
	if len(runs) == 0 {
		return nil
	}
	s := &QueryFigures{FillRate: median(runs, func(r Run) float64 { return r.Query.FillRate })}
	for i, phase := range s.phases() {
		*phase = medianPhase(runs, func(r Run) KVPhase { return *r.Query.phases()[i] })
	}
	return s
}

func ratioOfQuery(a, b *QueryFigures) *QueryRatio {
	if a == nil || b == nil {
		return nil
	}
	q := &QueryRatio{}
	for i, to := range q.phases() {
		x, y := a.phases()[i], b.phases()[i]
		*to = KVPhaseRatio{
			Rate: over(x.Rate, y.Rate), ServerCPU: overCPU(x.Server, y.Server),
			Latency: ratioOf(x.Latency, y.Latency),
		}
	}
	return q
}

// payloadOf appends the payload of record number n. Every p.every-th record has k == 0.
func (p *queryPlan) payloadOf(to []byte, size, n int) []byte {
	to = fmt.Appendf(to, `{"k":%d,"n":%d,"region":"eu","total":%d.5,"pad":"`, n%p.every, n, n%500)
	for len(to) < size-2 {
		to = append(to, 'x')
	}
	return append(to, `"}`...)
}

// scanTimeout bounds one scan: it is given up if a record takes longer than this on the average.
const scanTimeout = 100 * time.Microsecond
