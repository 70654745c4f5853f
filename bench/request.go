package bench

import (
	"fmt"
	"slices"
	"time"
)

// Request configures pairs of a requester and a responder, each on a connection of its own.
type Request struct {
	Pairs            []int
	Rate             float64 // requests a second of all pairs; 0 is a closed loop
	PayloadBytes     int     // of a request, and of its reply
	Warmup, Duration time.Duration
	Seed             uint64
}

const scenarioRequest = "request"

// maxPairs bounds the pairs of a request load, and maxRequestRate their rate.
const (
	maxPairs       = 1000
	maxRequestRate = 1_000_000
)

// A requestPlan is what a Workload of this scenario adds.
type requestPlan struct {
	pairs    int
	schedule *ticking // nil: a closed loop
}

// Workloads makes one plan for each number of pairs.
func (c Request) Workloads() ([]Workload, error) {
	if err := checkCommon(c.Pairs, "pairs", c.PayloadBytes, c.Warmup, c.Duration, ClientLight); err != nil {
		return nil, err
	}
	if !(c.Rate >= 0 && c.Rate <= maxRequestRate) {
		return nil, fmt.Errorf("rate is %v requests a second; give up to %d, or 0 to send each request after the reply to the one before", c.Rate, maxRequestRate)
	}
	var made []Workload
	for _, pairs := range c.Pairs {
		if pairs > maxPairs {
			return nil, fmt.Errorf("number of pairs is %d; give 1 to %d", pairs, maxPairs)
		}
		plan := &requestPlan{pairs: pairs}
		if c.Rate > 0 {
			plan.schedule = newTicking(pairs, c.Rate/float64(pairs), c.Warmup, c.Duration, c.Seed)
		}
		made = append(made, Workload{
			Scenario: scenarioRequest, Size: pairs, Client: ClientLight,
			Parameters: Parameters{
				Publishers: pairs, Subscribers: pairs, PayloadBytes: c.PayloadBytes, RequestRate: c.Rate,
				WarmupNS: int64(c.Warmup), DurationNS: int64(c.Duration),
			},
			request: plan,
		})
	}
	return made, nil
}

// RequestFigures are the findings of a run of the request scenario. CPU times are per request.
type RequestFigures struct {
	Answered int64   `json:"answered"`
	Rate     float64 `json:"requests_per_s"`
	Client   CPU     `json:"client_cpu"`
	Server   *CPU    `json:"server_cpu,omitempty"`
}

// RequestRatio is the first server's medians over another's.
type RequestRatio struct {
	Rate      float64 `json:"requests_per_s"` // above 1, the first does more
	ServerCPU float64 `json:"server_cpu_per_request,omitempty"`
}

// summarizeRequest returns medians, but the sum of counts.
func summarizeRequest(runs []Run) *RequestFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Request == nil || r.Request.Answered == 0 })
	if len(runs) == 0 {
		return nil
	}
	s := &RequestFigures{}
	for _, run := range runs {
		s.Answered += run.Request.Answered
	}
	s.Rate = median(runs, func(r Run) float64 { return r.Request.Rate })
	s.Client = *medianCPU(runs, func(r Run) *CPU { return new(r.Request.Client) })
	s.Server = medianCPU(runs, func(r Run) *CPU { return r.Request.Server })
	return s
}

func ratioOfRequest(a, b *RequestFigures) *RequestRatio {
	if a == nil || b == nil {
		return nil
	}
	return &RequestRatio{Rate: over(a.Rate, b.Rate), ServerCPU: overCPU(a.Server, b.Server)}
}
