package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Filter configures Subscriptions of one Topic that each have a condition on the content of
// messages, no two alike, while messages come at a steady rate. Each message matches one of them.
type Filter struct {
	Filters          []int
	Rate             float64 // messages a second
	PayloadBytes     int
	Durability       string
	Replicas         int
	Warmup, Duration time.Duration
}

const scenarioFilter = "filter"

// The bounds of a filter load.
const (
	maxFilters      = 50_000
	maxFilterRate   = 1_000_000
	maxFilterBytes  = 64 << 10
	leastFilterSize = 128 // what identifies a message, as JSON
)

// A filterPlan is what a Workload of this scenario adds.
type filterPlan struct {
	filters, replicas, warm, messages int // messages counts those of the warm-up, too
	rate                              float64
	durability                        string
}

// Workloads makes one plan for each number of filters.
func (c Filter) Workloads() ([]Workload, error) {
	if err := checkCommon(c.Filters, "filters", max(c.PayloadBytes, headerBytes), c.Warmup,
		c.Duration,
		ClientNATS); err != nil {
		return nil, err
	}
	if err := checkReplicas(c.Replicas); err != nil {
		return nil, err
	}
	if err := checkDurability(c.Durability); err != nil {
		return nil, err
	}
	if c.PayloadBytes < leastFilterSize || c.PayloadBytes > maxFilterBytes {
		return nil, fmt.Errorf("messages have %d bytes; give %d (what identifies one, as JSON) to %d",
			c.PayloadBytes, leastFilterSize, maxFilterBytes)
	}
	if !(c.Rate >= 1 && c.Rate <= maxFilterRate) {
		return nil, fmt.Errorf("rate is %v messages a second; give 1 to %d", c.Rate, maxFilterRate)
	}
	var made []Workload
	for _, filters := range c.Filters {
		if filters > maxFilters {
			return nil, fmt.Errorf("number of filters is %d; give 1 to %d", filters, maxFilters)
		}
		plan := &filterPlan{
			filters: filters, replicas: c.Replicas, rate: c.Rate, durability: c.Durability,
			warm: int(c.Warmup.Seconds() * c.Rate),
		}
		plan.messages = plan.warm + max(1, int(c.Duration.Seconds()*c.Rate))
		if bytes := wordsFor(plan.messages) * 8; bytes > maxLedgerBytes {
			return nil, fmt.Errorf("keeping account of every message would take %d MiB, more than %d; "+
				"shorten the duration or lower the rate", bytes>>20, maxLedgerBytes>>20)
		}
		made = append(made, Workload{
			Scenario: scenarioFilter, Size: filters, Client: ClientNATS,
			Parameters: Parameters{
				Publishers: 1, Subscribers: filters, Replicas: c.Replicas, Durability: c.Durability,
				PayloadBytes: c.PayloadBytes, WarmupNS: int64(c.Warmup), DurationNS: int64(c.Duration),
				OfferedMessages: c.Rate, OfferedDeliveries: c.Rate,
			},
			filter: plan,
		})
	}
	return made, nil
}

func checkDurability(durability string) error {
	all := []string{DurabilitySynced, DurabilityReplicated, DurabilityMemory}
	if !slices.Contains(all, durability) {
		return fmt.Errorf("durability is %q; give %s, %s or %s", durability, all[0], all[1], all[2])
	}
	return nil
}

// setDurability has a stream promise that much when it acknowledges.
func setDurability(config *jetstream.StreamConfig, durability string) {
	config.Storage = jetstream.FileStorage
	switch durability {
	case DurabilityMemory:
		config.Storage = jetstream.MemoryStorage
	case DurabilityReplicated:
		config.PersistMode = jetstream.AsyncPersistMode
	}
}

// condition is that of a Subscription: message number n has k = n modulo the number of filters.
func (p *filterPlan) condition(filter int) string { return fmt.Sprintf("json.k == %d", filter) }

// compareSizes sets what the server's CPU time is over that of the first size, where the sizes of a
// scenario are about that.
func (r *Report) compareSizes() {
	for i := range r.Results {
		first := slices.IndexFunc(r.Results[:i],
			func(other Result) bool { return other.sizeOf(r.Results[i]) })
		if first < 0 {
			continue
		}
		for j := range r.Results[i].Measured {
			m, one := &r.Results[i].Measured[j], &r.Results[first].Measured[j]
			m.OverFirst = over(m.serverCPU(), one.serverCPU())
		}
	}
}

// sizeOf tells results of the same load with different sizes.
func (r Result) sizeOf(other Result) bool {
	switch r.Scenario {
	case scenarioFilter:
		return r.besides(other)
	case scenarioForward:
		return r.Parameters.Queries > 0 && r.besides(other) && r.Size == other.Size
	}
	return false
}

// serverCPU returns nanoseconds per delivery, or 0 if they are not known.
func (m Measured) serverCPU() float64 {
	if c := medianCPU(m.Runs, func(r Run) *CPU { return r.ServerCPU }); c != nil {
		return c.PerDelivery
	}
	return 0
}
