package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Throughput configures publishers of one subject at the highest rate, and subscribers that each
// receive everything.
type Throughput struct {
	Shapes           []string // publishers:subscribers, such as 4:4; 1:0 only publishes
	PayloadBytes     []int
	Warmup, Duration time.Duration
}

const scenarioThroughput = "throughput"

// maxFloodClients bounds the publishers, and the subscribers, of a throughput load.
const maxFloodClients = 1000

// Workloads makes, for each shape, one plan for each size.
func (c Throughput) Workloads() ([]Workload, error) {
	if len(c.Shapes) == 0 || len(c.PayloadBytes) == 0 {
		return nil, fmt.Errorf("no publishers and subscribers, or no size, is given")
	}
	if err := checkTimes(c.Warmup, c.Duration); err != nil {
		return nil, err
	}
	var made []Workload
	for _, shape := range c.Shapes {
		publishers, subscribers, err := parseShape(shape)
		if err != nil {
			return nil, err
		}
		for _, size := range c.PayloadBytes {
			if err := checkFloodSize(size); err != nil {
				return nil, err
			}
			made = append(made, Workload{
				Scenario: scenarioThroughput, Size: publishers, Client: ClientLight,
				Parameters: Parameters{
					Publishers: publishers, Subscribers: subscribers, PayloadBytes: size,
					WarmupNS: int64(c.Warmup), DurationNS: int64(c.Duration),
				},
				throughput: &throughputPlan{publishers: publishers, subscribers: subscribers},
			})
		}
	}
	return made, nil
}

// A throughputPlan is what a Workload of this scenario adds.
type throughputPlan struct{ publishers, subscribers int }

func parseShape(text string) (publishers, subscribers int, err error) {
	before, after, found := strings.Cut(text, ":")
	publishers, err1 := strconv.Atoi(before)
	subscribers, err2 := strconv.Atoi(after)
	if !found || err1 != nil || err2 != nil || publishers < 1 || publishers > maxFloodClients || subscribers < 0 || subscribers > maxFloodClients {
		return 0, 0, fmt.Errorf("%q is not publishers:subscribers; give something like 4:4, or 1:0 to publish only, with at most %d each", text, maxFloodClients)
	}
	return publishers, subscribers, nil
}

func checkFloodSize(size int) error {
	if size < floodHeaderBytes || size > maxPayloadBytes {
		return fmt.Errorf("payload is %d bytes; give %d (what identifies a message) to %d", size, floodHeaderBytes, maxPayloadBytes)
	}
	return nil
}

// shape is how the load is written on the command line.
func (p Parameters) shape() string {
	if p.Subscribers == 0 && p.Publishers == 1 {
		return "publish only"
	}
	return fmt.Sprintf("%d:%d", p.Publishers, p.Subscribers)
}

// ThroughputFigures are the findings of a run of the throughput scenario. Bytes are those of
// payloads. CPU times are per message received, or published where nobody subscribes.
type ThroughputFigures struct {
	Published    int64   `json:"published_messages"`
	PublishRate  float64 `json:"published_messages_per_s"`
	PublishBytes float64 `json:"published_bytes_per_s"`
	Received     int64   `json:"received_messages"`
	ReceiveRate  float64 `json:"received_messages_per_s"`
	ReceiveBytes float64 `json:"received_bytes_per_s"`
	Client       CPU     `json:"client_cpu"`
	Server       *CPU    `json:"server_cpu,omitempty"`
}

// ThroughputRatio is the first server's medians over another's.
type ThroughputRatio struct {
	PublishRate float64 `json:"published_messages_per_s"` // above 1, the first does more
	ReceiveRate float64 `json:"received_messages_per_s,omitempty"`
	ServerCPU   float64 `json:"server_cpu_per_message,omitempty"`
}

// summarizeThroughput returns medians, but sums of counts.
func summarizeThroughput(runs []Run) *ThroughputFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Throughput == nil || r.Throughput.Published == 0 })
	if len(runs) == 0 {
		return nil
	}
	s := &ThroughputFigures{}
	for _, run := range runs {
		s.Published, s.Received = s.Published+run.Throughput.Published, s.Received+run.Throughput.Received
	}
	s.PublishRate = median(runs, func(r Run) float64 { return r.Throughput.PublishRate })
	s.PublishBytes = median(runs, func(r Run) float64 { return r.Throughput.PublishBytes })
	s.ReceiveRate = median(runs, func(r Run) float64 { return r.Throughput.ReceiveRate })
	s.ReceiveBytes = median(runs, func(r Run) float64 { return r.Throughput.ReceiveBytes })
	s.Client = *medianCPU(runs, func(r Run) *CPU { return new(r.Throughput.Client) })
	s.Server = medianCPU(runs, func(r Run) *CPU { return r.Throughput.Server })
	return s
}

func ratioOfThroughput(a, b *ThroughputFigures) *ThroughputRatio {
	if a == nil || b == nil {
		return nil
	}
	return &ThroughputRatio{PublishRate: over(a.PublishRate, b.PublishRate), ReceiveRate: over(a.ReceiveRate, b.ReceiveRate), ServerCPU: overCPU(a.Server, b.Server)}
}
