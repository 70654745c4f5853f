package bench

import (
	"fmt"
	"time"
)

// KV configures clients of a key-value bucket, over nats.go: many writers at the highest rate, then
// readers, then one writer, then a watcher of all keys.
type KV struct {
	Keys             int
	Writers          []int
	Readers          int
	Replicas         []int // of the bucket; every load is measured with each number
	PayloadBytes     int
	Warmup, Duration time.Duration // of each of the first three phases
}

const scenarioKV = "kv"

// The bounds of a kv load.
const (
	maxKeys      = 1_000_000
	maxKVClients = 10_000
	// watches is how many watchers receive all keys, one after another.
	watches = 5
)

// A kvPlan is what a Workload of this scenario adds.
type kvPlan struct {
	keys, writers, readers, replicas int
}

// Workloads makes, for each number of replicas, one plan for each number of writers.
func (k KV) Workloads() ([]Workload, error) {
	if err := checkCommon(k.Writers, "writers", k.PayloadBytes, k.Warmup, k.Duration, ClientNATS); err != nil {
		return nil, err
	}
	if err := checkReplicas(k.Replicas...); err != nil {
		return nil, err
	}
	if k.Keys < 1 || k.Keys > maxKeys {
		return nil, fmt.Errorf("number of keys is %d; give 1 to %d", k.Keys, maxKeys)
	}
	if k.Readers < 1 || k.Readers > maxKVClients {
		return nil, fmt.Errorf("number of readers is %d; give 1 to %d", k.Readers, maxKVClients)
	}
	var made []Workload
	for _, replicas := range k.Replicas {
		for _, writers := range k.Writers {
			if writers > min(k.Keys, maxKVClients) {
				return nil, fmt.Errorf("number of writers is %d; give 1 to %d, each of them with keys of its own", writers, min(k.Keys, maxKVClients))
			}
			made = append(made, Workload{
				Scenario: scenarioKV, Size: writers, Client: ClientNATS,
				Parameters: Parameters{
					Publishers: writers, Readers: k.Readers, Keys: k.Keys, Replicas: replicas, PayloadBytes: k.PayloadBytes,
					WarmupNS: int64(k.Warmup), DurationNS: int64(k.Duration),
				},
				kv: &kvPlan{keys: k.Keys, writers: writers, readers: k.Readers, replicas: replicas},
			})
		}
	}
	return made, nil
}

// KVPhase is what one kind of operation did. CPU times are per operation.
type KVPhase struct {
	Operations int64          `json:"operations"`
	Rate       float64        `json:"operations_per_s"`
	Latency    Latency        `json:"latency"`
	HDR        string         `json:"latency_hdr_v2,omitempty"`    // in a run only
	OverTime   []LatencyPoint `json:"latency_over_time,omitempty"` // in a run only
	Client     CPU            `json:"client_cpu"`
	Server     *CPU           `json:"server_cpu,omitempty"`
}

// KVFigures are the findings of a run of the kv scenario.
type KVFigures struct {
	Put KVPhase `json:"put"`            // by all writers
	Get KVPhase `json:"get"`            // by all readers
	One KVPhase `json:"put_one_writer"` // by one writer
	// Watch counts keys as operations; its latency is the time until a watcher has all of them.
	Watch KVPhase `json:"watch"`
	Stale int64   `json:"stale_gets"` // of replicated buckets: an earlier value of the key
}

// KVPhaseRatio is the first server's medians over another's.
type KVPhaseRatio struct {
	Rate      float64 `json:"operations_per_s"` // above 1, the first does more
	ServerCPU float64 `json:"server_cpu_per_operation,omitempty"`
	Latency   *Ratio  `json:"latency,omitempty"`
}

// KVRatio has a ratio for each phase.
type KVRatio struct {
	Put   KVPhaseRatio `json:"put"`
	Get   KVPhaseRatio `json:"get"`
	One   KVPhaseRatio `json:"put_one_writer"`
	Watch KVPhaseRatio `json:"watch"`
}

// summarizeKV returns medians, but sums of counts.
func summarizeKV(runs []Run) *KVFigures {
	var whole []Run
	s := &KVFigures{}
	for _, run := range runs {
		if run.KV != nil && run.KV.Put.Rate > 0 {
			whole = append(whole, run)
			s.Stale += run.KV.Stale
		}
	}
	if len(whole) == 0 {
		return nil
	}
	s.Put = medianPhase(whole, func(r Run) KVPhase { return r.KV.Put })
	s.Get = medianPhase(whole, func(r Run) KVPhase { return r.KV.Get })
	s.One = medianPhase(whole, func(r Run) KVPhase { return r.KV.One })
	s.Watch = medianPhase(whole, func(r Run) KVPhase { return r.KV.Watch })
	return s
}

func medianPhase(runs []Run, of func(Run) KVPhase) (p KVPhase) {
	for _, run := range runs {
		p.Operations += of(run).Operations
	}
	p.Rate = median(runs, func(r Run) float64 { return of(r).Rate })
	p.Latency = medianOf(runs, func(r Run) Latency { return of(r).Latency })
	p.Client = *medianCPU(runs, func(r Run) *CPU { return new(of(r).Client) })
	p.Server = medianCPU(runs, func(r Run) *CPU { return of(r).Server })
	return p
}

func ratioOfKV(a, b *KVFigures) *KVRatio {
	if a == nil || b == nil {
		return nil
	}
	of := func(a, b KVPhase) KVPhaseRatio {
		return KVPhaseRatio{Rate: over(a.Rate, b.Rate), ServerCPU: overCPU(a.Server, b.Server), Latency: ratioOf(a.Latency, b.Latency)}
	}
	return &KVRatio{Put: of(a.Put, b.Put), Get: of(a.Get, b.Get), One: of(a.One, b.One), Watch: of(a.Watch, b.Watch)}
}
