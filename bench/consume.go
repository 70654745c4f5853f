package bench

import (
	"fmt"
	"time"
)

// Consume configures consumers that take and acknowledge the messages of a stream: first all
// messages of a filled stream at the highest rate, then messages that are published at a fixed
// rate.
type Consume struct {
	Consumers        []int   // that share one durable consumer, each on a connection of its own
	Batches          []int   // messages that a consumer asks for at a time; unused with Push
	Push             bool    // the server pushes to a queue group, instead of answering pulls
	Replicas         []int   // of the stream; every load is measured with each number
	Messages         int     // in the stream at the start of the first phase
	Rate             float64 // messages a second of the second phase; 0 is a tenth of what the first run took
	AckPending       int     // bound of unacknowledged messages; 0 is twice what all consumers ask for
	AckWait          time.Duration
	PayloadBytes     int
	Warmup, Duration time.Duration // of the second phase
	Client           string
}

const scenarioConsume = "consume"

// The bounds of a consume load.
const (
	maxConsumers = 1000
	maxPullBatch = 65_536
	// maxConsumeMessages bounds the account of a run: a bit for each message of either phase.
	maxConsumeMessages = 1 << 28
	maxAckPending      = 1 << 20
	// leastAckPending is the default of nats-server.
	leastAckPending = 1000
	// minAckWait is above any pause of a busy machine, so that a redelivery before it is a fault.
	minAckWait = time.Second
	// pacedShare is the second phase's part of the first one's rate, if no rate is given.
	pacedShare = 0.1
	maxRate    = 1_000_000
)

// A consumePlan is what a Workload of this scenario adds.
type consumePlan struct {
	consumers, batch, replicas int
	push                       bool
	messages, pending          int
	// rate is that of the second phase. If none is given, the first run sets it for all servers and
	// repeats, so that their latencies are those of one load.
	rate    float64
	ackWait time.Duration
}

// Workloads makes, for each number of replicas, one plan for each batch and number of consumers.
func (c Consume) Workloads() ([]Workload, error) {
	if err := checkCommon(c.Consumers, "consumers", c.PayloadBytes, c.Warmup, c.Duration, c.Client); err != nil {
		return nil, err
	}
	if err := checkReplicas(c.Replicas...); err != nil {
		return nil, err
	}
	batches := c.Batches
	if c.Push {
		batches = []int{0}
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("no number of messages in a batch is given")
	}
	if c.Messages < 1 || c.Messages > maxConsumeMessages/2 {
		return nil, fmt.Errorf("number of messages is %d; give 1 to %d", c.Messages, maxConsumeMessages/2)
	}
	if c.Rate != 0 && !(c.Rate >= 1 && c.Rate <= maxRate) {
		return nil, fmt.Errorf("rate is %v messages a second; give 1 to %d, or 0 for a tenth of the rate of the first run", c.Rate, maxRate)
	}
	if paced := c.Rate * (c.Warmup + c.Duration).Seconds(); paced > maxConsumeMessages/2 {
		return nil, fmt.Errorf("%.0f messages at the given rate; shorten the duration or lower the rate, to at most %d messages", paced, maxConsumeMessages/2)
	}
	if c.AckPending < 0 || c.AckPending > maxAckPending {
		return nil, fmt.Errorf("bound of unacknowledged messages is %d; give 1 to %d, or 0 for twice what all consumers ask for", c.AckPending, maxAckPending)
	}
	if c.AckWait < minAckWait || c.AckWait > time.Hour {
		return nil, fmt.Errorf("ack wait is %v; give %v to 1h", c.AckWait, minAckWait)
	}
	var made []Workload
	for _, replicas := range c.Replicas {
		for _, batch := range batches {
			if !c.Push && (batch < 1 || batch > maxPullBatch) {
				return nil, fmt.Errorf("batch is %d messages; give 1 to %d", batch, maxPullBatch)
			}
			for _, consumers := range c.Consumers {
				if consumers > maxConsumers {
					return nil, fmt.Errorf("number of consumers is %d; give 1 to %d", consumers, maxConsumers)
				}
				made = append(made, c.workload(consumers, batch, replicas))
			}
		}
	}
	return made, nil
}

func (c Consume) workload(consumers, batch, replicas int) Workload {
	pending := c.AckPending
	if pending == 0 {
		pending = min(max(leastAckPending, 2*consumers*batch), maxAckPending)
		if c.Push {
			pending = max(leastAckPending, pushPending*consumers)
		}
	}
	return Workload{
		Scenario: scenarioConsume, Size: consumers, Client: c.Client,
		Parameters: Parameters{
			Consumers: consumers, PullBatch: batch, Push: c.Push, Replicas: replicas, Messages: c.Messages,
			AckPending: pending, AckWaitNS: int64(c.AckWait), PacedRate: c.Rate, PayloadBytes: c.PayloadBytes,
			WarmupNS: int64(c.Warmup), DurationNS: int64(c.Duration),
		},
		consume: &consumePlan{
			consumers: consumers, batch: batch, push: c.Push, replicas: replicas, messages: c.Messages,
			pending: pending, rate: c.Rate, ackWait: c.AckWait,
		},
	}
}

// pushPending is the usual bound of unacknowledged messages for each consumer that is pushed to.
const pushPending = 1000

// ConsumeFigures are the findings of a run of the consume scenario. CPU times are per message.
type ConsumeFigures struct {
	Taken       int64   `json:"taken_messages"` // in the first phase
	Rate        float64 `json:"taken_per_s"`    // until the server reported all as acknowledged
	Redelivered int64   `json:"redelivered"`    // in both phases
	PacedRate   float64 `json:"paced_per_s"`    // of the second phase, as planned
	Paced       int64   `json:"paced_messages"`
	Client      CPU     `json:"client_cpu"`
	Server      *CPU    `json:"server_cpu,omitempty"`
	PacedClient CPU     `json:"paced_client_cpu"`
	PacedServer *CPU    `json:"paced_server_cpu,omitempty"`
}

// ConsumeRatio is the first server's medians over another's.
type ConsumeRatio struct {
	Rate      float64 `json:"taken_per_s"` // above 1, the first takes more
	ServerCPU float64 `json:"server_cpu_per_message,omitempty"`
	PacedCPU  float64 `json:"paced_server_cpu_per_message,omitempty"`
}

// summarizeConsume returns medians, but sums of counts.
func summarizeConsume(runs []Run) *ConsumeFigures {
	var whole []Run
	s := &ConsumeFigures{}
	for _, run := range runs {
		if run.Consume == nil || run.Consume.Rate == 0 {
			continue
		}
		whole = append(whole, run)
		s.Taken, s.Paced = s.Taken+run.Consume.Taken, s.Paced+run.Consume.Paced
		s.Redelivered += run.Consume.Redelivered
	}
	if len(whole) == 0 {
		return nil
	}
	s.Rate = median(whole, func(r Run) float64 { return r.Consume.Rate })
	s.PacedRate = median(whole, func(r Run) float64 { return r.Consume.PacedRate })
	s.Client = *medianCPU(whole, func(r Run) *CPU { return &r.Consume.Client })
	s.PacedClient = *medianCPU(whole, func(r Run) *CPU { return &r.Consume.PacedClient })
	s.Server = medianCPU(whole, func(r Run) *CPU { return r.Consume.Server })
	s.PacedServer = medianCPU(whole, func(r Run) *CPU { return r.Consume.PacedServer })
	return s
}

// medianCPU is the median of each figure over the runs that know it, or nil.
func medianCPU(runs []Run, of func(Run) *CPU) *CPU {
	var known []Run
	for _, run := range runs {
		if of(run) != nil {
			known = append(known, run)
		}
	}
	if len(known) == 0 {
		return nil
	}
	return &CPU{
		Seconds:     median(known, func(r Run) float64 { return of(r).Seconds }),
		Cores:       median(known, func(r Run) float64 { return of(r).Cores }),
		PerDelivery: median(known, func(r Run) float64 { return of(r).PerDelivery }),
	}
}

func ratioOfConsume(a, b *ConsumeFigures) *ConsumeRatio {
	if a == nil || b == nil {
		return nil
	}
	return &ConsumeRatio{
		Rate: over(a.Rate, b.Rate), ServerCPU: overCPU(a.Server, b.Server), PacedCPU: overCPU(a.PacedServer, b.PacedServer),
	}
}

func overCPU(a, b *CPU) float64 {
	if a == nil || b == nil {
		return 0
	}
	return over(a.PerDelivery, b.PerDelivery)
}
