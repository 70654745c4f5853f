package bench

// A published figure is what the system that a workload was taken from reported, in
// milliseconds; 0 is "not given". Its hardware differs: compare shapes, not values.
type published struct {
	mean, sd, p95 float64
}

// publishedBy names the sources, for the footnote.
var publishedBy = map[string]string{
	"forward": "CQBS (Fierro, Krogen, 2016): t2.medium, about 5 ms of network in every figure",
	"fanout":  "Newsome, Jones, 2016: a list per topic, UDP, two hosts on a LAN",
}

var publishedFigures = map[string]map[int]published{
	"forward": {
		1:   {mean: 4.67, sd: 0.55, p95: 4.85},
		10:  {mean: 4.62, sd: 0.37, p95: 4.77},
		100: {mean: 13.58, sd: 67.13, p95: 8.87},
	},
	"fanout": {
		10:     {mean: 0.786, sd: 0.0096},
		100:    {mean: 9.991, sd: 9.283},
		1000:   {mean: 137.854, sd: 28.828},
		10_000: {mean: 1369.857, sd: 270.454},
	},
}
