package bench

import (
	"fmt"
	"slices"
	"time"
)

// Connections configures clients that connect, are idle for a while, and go.
type Connections struct {
	Connections []int
	Rate        float64       // connections that are opened in a second; 0 is all at once
	Hold        time.Duration // how long they are idle
}

const scenarioConnections = "connections"

// maxConnections bounds a connections load: one address of a server has no more ports for a client.
const maxConnections = 60_000

// A connectionsPlan is what a Workload of this scenario adds.
type connectionsPlan struct {
	connections int
	rate        float64
	hold        time.Duration
}

// Workloads makes one plan for each number of connections.
func (c Connections) Workloads() ([]Workload, error) {
	if len(c.Connections) == 0 {
		return nil, fmt.Errorf("no number of connections is given")
	}
	if !(c.Rate >= 0 && c.Rate <= maxRequestRate) {
		return nil, fmt.Errorf("rate is %v connections a second; give up to %d, or 0 for all at once", c.Rate, maxRequestRate)
	}
	if c.Hold < 0 || c.Hold > time.Hour {
		return nil, fmt.Errorf("connections are held for %v; give 0 to 1h", c.Hold)
	}
	var made []Workload
	for _, n := range c.Connections {
		if n < 1 || n > maxConnections {
			return nil, fmt.Errorf("number of connections is %d; give 1 to %d", n, maxConnections)
		}
		made = append(made, Workload{
			Scenario: scenarioConnections, Size: n, Client: ClientLight,
			Parameters:  Parameters{ConnectRate: c.Rate, DurationNS: int64(c.Hold)},
			connections: &connectionsPlan{connections: n, rate: c.Rate, hold: c.Hold},
		})
	}
	return made, nil
}

// ConnectionsFigures are the findings of a run of the connections scenario.
type ConnectionsFigures struct {
	Opened int64 `json:"opened"`
	// AllIn is the time from the first connection's due time until the last one's PONG.
	AllIn int64 `json:"all_in_ns"`
	// Idle is the server's memory that belongs to no file while all are idle, and Before the same
	// at the start of the campaign.
	Idle          int64   `json:"server_memory_idle_bytes,omitempty"`
	Before        int64   `json:"server_memory_before_bytes,omitempty"`
	PerConnection float64 `json:"server_memory_per_connection_bytes,omitempty"`
	Client        CPU     `json:"client_cpu"` // per connection, while they are opened
	Server        *CPU    `json:"server_cpu,omitempty"`
}

// ConnectionsRatio is the first server's medians over another's.
type ConnectionsRatio struct {
	AllIn         float64 `json:"all_in"`
	PerConnection float64 `json:"server_memory_per_connection,omitempty"`
	ServerCPU     float64 `json:"server_cpu_per_connection,omitempty"`
}

// summarizeConnections returns medians, but the sum of counts.
func summarizeConnections(runs []Run) *ConnectionsFigures {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Connections == nil || r.Connections.Opened == 0 })
	if len(runs) == 0 {
		return nil
	}
	s := &ConnectionsFigures{}
	for _, run := range runs {
		s.Opened += run.Connections.Opened
	}
	s.AllIn = median(runs, func(r Run) int64 { return r.Connections.AllIn })
	s.Idle = median(runs, func(r Run) int64 { return r.Connections.Idle })
	s.Before = median(runs, func(r Run) int64 { return r.Connections.Before })
	s.PerConnection = median(runs, func(r Run) float64 { return r.Connections.PerConnection })
	s.Client = *medianCPU(runs, func(r Run) *CPU { return new(r.Connections.Client) })
	s.Server = medianCPU(runs, func(r Run) *CPU { return r.Connections.Server })
	return s
}

func ratioOfConnections(a, b *ConnectionsFigures) *ConnectionsRatio {
	if a == nil || b == nil {
		return nil
	}
	return &ConnectionsRatio{AllIn: over(float64(a.AllIn), float64(b.AllIn)), PerConnection: over(max(0, a.PerConnection), max(0, b.PerConnection)), ServerCPU: overCPU(a.Server, b.Server)}
}
