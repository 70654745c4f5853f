package bench

import (
	"fmt"
	"slices"
	"time"
)

// Noisy configures a bystander, whose latency is measured alone and then beside a noise: requests
// beside a flood, and publishes to a stream beside a fan-out.
type Noisy struct {
	Noises           []string
	Subscribers      int     // of the fan-out
	Rate             float64 // requests, or publishes, a second of the bystander
	PayloadBytes     int     // of both
	Warmup, Duration time.Duration
	Seed             uint64
}

const scenarioNoisy = "noisy"

// The noises.
const (
	NoiseFlood  = "flood"  // one publisher, one subscriber, at the highest rate
	NoiseFanout = "fanout" // one publisher, many subscribers, at the highest rate
)

// A noisyPlan is what a Workload of this scenario adds.
type noisyPlan struct {
	publishers, subscribers int
	stream                  bool // the bystander publishes to a stream, else it sends requests
	schedule                *ticking
}

// Workloads makes one plan for each noise.
func (c Noisy) Workloads() ([]Workload, error) {
	if err := checkCommon([]int{c.Subscribers}, "subscribers", c.PayloadBytes, c.Warmup, c.Duration, ClientLight); err != nil {
		return nil, err
	}
	if c.Subscribers > maxFloodClients {
		return nil, fmt.Errorf("number of subscribers is %d; give 1 to %d", c.Subscribers, maxFloodClients)
	}
	if !(c.Rate >= 1 && c.Rate <= 100_000) {
		return nil, fmt.Errorf("rate is %v a second; give 1 to 100000", c.Rate)
	}
	if len(c.Noises) == 0 {
		return nil, fmt.Errorf("no noise is given; give %s or %s", NoiseFlood, NoiseFanout)
	}
	var made []Workload
	for _, noise := range c.Noises {
		plan := &noisyPlan{publishers: 1, subscribers: 1, schedule: newTicking(1, c.Rate, c.Warmup, c.Duration, c.Seed)}
		switch noise {
		case NoiseFlood:
		case NoiseFanout:
			plan.subscribers, plan.stream = c.Subscribers, true
		default:
			return nil, fmt.Errorf("noise is %q; give %s or %s", noise, NoiseFlood, NoiseFanout)
		}
		made = append(made, Workload{
			Scenario: scenarioNoisy, Size: plan.subscribers, Client: ClientLight,
			Parameters: Parameters{
				Noise: noise, Publishers: plan.publishers, Subscribers: plan.subscribers, RequestRate: c.Rate, PayloadBytes: c.PayloadBytes,
				WarmupNS: int64(c.Warmup), DurationNS: int64(c.Duration),
			},
			noisy: plan,
		})
	}
	return made, nil
}

// noisyName says what is beside what.
func noisyName(p Parameters) string {
	if p.Noise == NoiseFanout {
		return fmt.Sprintf("fan-out to %d beside a stream", p.Subscribers)
	}
	return "flood beside a request"
}

// A NoisyPhase is the bystander's latency, from when each request was due.
type NoisyPhase struct {
	Answered int64          `json:"answered"`
	Latency  Latency        `json:"latency"`
	Late     Latency        `json:"publisher_late"`
	HDR      string         `json:"latency_hdr_v2,omitempty"`    // in a run only
	OverTime []LatencyPoint `json:"latency_over_time,omitempty"` // in a run only
}

// NoisyFigures are the findings of a run of the noisy scenario.
type NoisyFigures struct {
	Alone  NoisyPhase        `json:"alone"`
	Beside NoisyPhase        `json:"beside"`
	Noise  ThroughputFigures `json:"noise"` // while the bystander was beside it
}

// NoisyRatio is the first server's medians over another's.
type NoisyRatio struct {
	Alone  *Ratio  `json:"alone,omitempty"`
	Beside *Ratio  `json:"beside,omitempty"`
	Noise  float64 `json:"noise_messages_per_s"` // above 1, the first one's noise was louder
}

// summarizeNoisy returns medians, but sums of counts.
func summarizeNoisy(runs []Run) *NoisyFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Noisy == nil || r.Noisy.Beside.Answered == 0 })
	if len(runs) == 0 {
		return nil
	}
	phase := func(of func(Run) NoisyPhase) (p NoisyPhase) {
		for _, run := range runs {
			p.Answered += of(run).Answered
		}
		p.Latency = medianOf(runs, func(r Run) Latency { return of(r).Latency })
		p.Late = medianOf(runs, func(r Run) Latency { return of(r).Late })
		return p
	}
	noises := make([]Run, len(runs))
	for i, run := range runs {
		noises[i] = Run{Throughput: &run.Noisy.Noise}
	}
	s := &NoisyFigures{Alone: phase(func(r Run) NoisyPhase { return r.Noisy.Alone }), Beside: phase(func(r Run) NoisyPhase { return r.Noisy.Beside })}
	if noise := summarizeThroughput(noises); noise != nil {
		s.Noise = *noise
	}
	return s
}

func ratioOfNoisy(a, b *NoisyFigures) *NoisyRatio {
	if a == nil || b == nil {
		return nil
	}
	return &NoisyRatio{
		Alone: ratioOf(a.Alone.Latency, b.Alone.Latency), Beside: ratioOf(a.Beside.Latency, b.Beside.Latency),
		Noise: over(a.Noise.ReceiveRate, b.Noise.ReceiveRate),
	}
}
