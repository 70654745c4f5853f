package bench

import "time"

// A published figure is what the system that a workload was taken from reported, in
// milliseconds; 0 is "not given". Its hardware differs: compare shapes, not values.
type published struct {
	mean, sd, p50, p95, p99 float64
}

// published returns what the source of a result's workload reported of the same load.
func (r Result) published() (figures published, known bool) {
	p := r.Parameters
	switch {
	case r.Scenario == scenarioRequery && (p.Queries != 500 || p.Share != 0.1 ||
		p.between() != [2]time.Duration{50 * time.Millisecond, 500 * time.Millisecond}),
		r.Scenario == scenarioCluster && (p.Brokers != 3 || p.RatePerPublisher != 5 ||
			p.between() != [2]time.Duration{30 * time.Second, time.Minute}):
		return figures, false // those of another load would mislead
	}
	figures, known = publishedFigures[r.Scenario][r.Size]
	return figures, known
}

// between returns the least and the greatest time between two changes.
func (p Parameters) between() [2]time.Duration {
	return [2]time.Duration{time.Duration(p.LeastNS), time.Duration(p.MostNS)}
}

// publishedBy names the sources, for the footnote.
var publishedBy = map[string]string{
	scenarioForward: "CQBS (Fierro, Krogen, 2016): t2.medium, about 5 ms of network in every figure",
	scenarioRequery: "CQBS: 3 coordinators on EC2, whose leader was killed halfway; p50, p99 from their data",
	scenarioCluster: "CQBS: 3 brokers, 3 coordinators, 30 subscribers, on t2.medium in EC2",
	"fanout":        "Newsome, Jones, 2016: a list per topic, UDP, two hosts on a LAN",
}

var publishedFigures = map[string]map[int]published{
	scenarioForward: {
		1:   {mean: 4.67, sd: 0.55, p95: 4.85},
		10:  {mean: 4.62, sd: 0.37, p95: 4.77},
		100: {mean: 13.58, sd: 67.13, p95: 8.87},
	},
	scenarioRequery: {
		1000: {mean: 95.5, p50: 60.3, p95: 191.2, p99: 447.9},
	},
	scenarioCluster: {
		360: {mean: 129.6, sd: 891, p95: 7.59},
	},
	"fanout": {
		10:     {mean: 0.786, sd: 0.0096},
		100:    {mean: 9.991, sd: 9.283},
		1000:   {mean: 137.854, sd: 28.828},
		10_000: {mean: 1369.857, sd: 270.454},
	},
}
