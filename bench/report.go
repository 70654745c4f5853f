package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// Schema names the layout of the JSON report; docs/benchmark.md describes it.
const Schema = "carillon.dev/bench/v1"

// A Report is everything that a campaign found. Times are in nanoseconds unless a field's
// name says otherwise.
type Report struct {
	Schema      string      `json:"schema"`
	Partial     bool        `json:"partial"`
	Environment Environment `json:"environment"`
	Servers     []Server    `json:"servers"`
	Skipped     []string    `json:"skipped,omitempty"` // what was left out, and why
	Results     []Result    `json:"results"`
}

// Environment is where and how it was measured.
type Environment struct {
	Date       time.Time `json:"date"`
	Version    string    `json:"carillon_version"`
	Go         string    `json:"go_version"`
	Platform   string    `json:"platform"`
	Kernel     string    `json:"kernel"`
	CPUs       int       `json:"cpus"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	CPUModel   string    `json:"cpu_model,omitempty"`
	Command    []string  `json:"command"`
	Repeat     int       `json:"repeat"`
	Seed       uint64    `json:"seed"`
}

func readEnvironment(c Campaign) Environment {
	return Environment{
		Date: time.Now().UTC().Truncate(time.Second), Version: c.Version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(), CPUs: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), CPUModel: cpuModel(), Command: c.Command, Repeat: c.Repeat, Seed: c.Seed,
	}
}

// A Result is one workload on every target.
type Result struct {
	Scenario   string     `json:"scenario"`
	Size       int        `json:"size"`
	Client     string     `json:"client"`
	Parameters Parameters `json:"parameters"`
	Measured   []Measured `json:"measured"`
	Ratio      *Ratio     `json:"ratio,omitempty"`  // over the second server
	Ratios     []Ratio    `json:"ratios,omitempty"` // over each of the others
}

// Measured is one workload on one target: the median of each figure over the runs, and the
// sum of what went wrong in them.
type Measured struct {
	Server      string              `json:"server"`
	Median      Latency             `json:"median"`
	Late        Latency             `json:"median_publisher_late"`
	Deliveries  Deliveries          `json:"deliveries"`
	Dropped     int                 `json:"dropped_subscribers"`
	Acks        *Acks               `json:"acks,omitempty"`
	AckRate     float64             `json:"median_acks_per_s,omitempty"`
	Outage      *OutageSummary      `json:"outage,omitempty"`
	Log         *LogFigures         `json:"log,omitempty"`        // medians of rates, sums of counts
	Consume     *ConsumeFigures     `json:"consume,omitempty"`    // medians, but the sum of redeliveries
	KV          *KVFigures          `json:"kv,omitempty"`         // medians, but the sum of stale gets
	Throughput  *ThroughputFigures  `json:"throughput,omitempty"` // medians, but sums of counts
	Request     *RequestFigures     `json:"request,omitempty"`    // medians, but the sum of counts
	Connections *ConnectionsFigures `json:"connections,omitempty"`
	Noisy       *NoisyFigures       `json:"noisy,omitempty"`
	Requery     *RequeryFigures     `json:"requery,omitempty"` // medians, but the sum of counts
	Query       *QueryFigures       `json:"query,omitempty"`   // medians, but sums of counts
	Cluster     *ClusterFigures     `json:"cluster,omitempty"` // sums
	// OverFirst is the server's CPU time per delivery over that of the scenario's first size.
	OverFirst float64 `json:"server_cpu_over_first_size,omitempty"`
	Runs      []Run   `json:"runs"`
}

// A Ratio is the first server's medians over another's: below 1, the first is quicker.
type Ratio struct {
	Against     string            `json:"against"`
	AckRate     float64           `json:"acks_per_s,omitempty"` // above 1, the first does more
	Mean        float64           `json:"mean"`
	SD          float64           `json:"sd"`
	P50         float64           `json:"p50"`
	P95         float64           `json:"p95"`
	P99         float64           `json:"p99"`
	P999        float64           `json:"p99_9"`
	Max         float64           `json:"max"`
	Consume     *ConsumeRatio     `json:"consume,omitempty"`
	KV          *KVRatio          `json:"kv,omitempty"`
	Throughput  *ThroughputRatio  `json:"throughput,omitempty"`
	Request     *RequestRatio     `json:"request,omitempty"`
	Connections *ConnectionsRatio `json:"connections,omitempty"`
	Noisy       *NoisyRatio       `json:"noisy,omitempty"`
	Query       *QueryRatio       `json:"query,omitempty"`
}

func newResult(w Workload, targets []Target) Result {
	r := Result{Scenario: w.Scenario, Size: w.Size, Client: w.Client, Parameters: w.Parameters}
	for _, t := range targets {
		r.Measured = append(r.Measured, Measured{Server: t.Name, Runs: []Run{}})
	}
	return r
}

func (r Result) unit() string {
	switch r.Scenario {
	case scenarioForward:
		return "groups"
	case scenarioDurable, scenarioFailover, scenarioLog, scenarioThroughput, scenarioRequery,
		scenarioCluster:
		return "publishers"
	case scenarioConsume:
		return "consumers"
	case scenarioQuery:
		return "records"
	case scenarioFilter:
		return "filters"
	case scenarioKV:
		return "writers"
	case scenarioConnections:
		return "connections"
	case scenarioRequest:
		return "pairs"
	}
	return "subscribers"
}

// load names the result: forward 10 groups.
func (r Result) load() string {
	replicas := ""
	if r.Parameters.Replicas > 1 {
		replicas = fmt.Sprintf(" on %d replicas", r.Parameters.Replicas)
	}
	if r.Scenario == scenarioLog {
		return fmt.Sprintf("%s%s %d publishers, %d readers, batches of %d", r.Scenario, replicas, r.Size, r.Parameters.Readers, r.Parameters.Batch)
	}
	if r.Scenario == scenarioConnections {
		return thousands(int64(r.Size)) + " connections"
	}
	if r.Scenario == scenarioNoisy {
		return fmt.Sprintf("%s %s", r.Scenario, noisyName(r.Parameters))
	}
	if r.Scenario == scenarioThroughput {
		return fmt.Sprintf("%s %s of %s", r.Scenario, r.Parameters.shape(), byteCount(float64(r.Parameters.PayloadBytes)))
	}
	if r.Scenario == scenarioConsume {
		return fmt.Sprintf("%s%s %s", r.Scenario, replicas, consumeSize(r))
	}
	if r.Parameters.Window > 1 {
		return fmt.Sprintf("%s%s, %d in flight", r.Scenario, replicas, r.Parameters.Window)
	}
	queries := ""
	if r.Scenario == scenarioForward && r.Parameters.Queries > 0 {
		queries = fmt.Sprintf(", %s other queries", thousands(int64(r.Parameters.Queries)))
	}
	return fmt.Sprintf("%s%s %d %s%s", r.Scenario, replicas, r.Size, r.unit(), queries)
}

// besides tells whether the other result stands in the same table.
func (r Result) besides(other Result) bool {
	return r.Scenario == other.Scenario && r.Parameters.Replicas == other.Parameters.Replicas &&
		r.Parameters.Connect == other.Parameters.Connect && r.Parameters.Durability == other.Parameters.Durability &&
		r.Parameters.Noise == other.Parameters.Noise && (r.Parameters.Queries > 0) == (other.Parameters.Queries > 0)
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
