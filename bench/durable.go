package bench

import (
	"fmt"
	"time"
)

// Durable configures publishers that wait until the server has acknowledged each message as
// stored, over the JetStream API. It is a closed loop: what it finds is how much a server takes,
// and how long a publisher waits meanwhile.
type Durable struct {
	Publishers       []int // each waits for the ack of a message before it sends the next
	Window           int   // of one more publisher that keeps so many in flight; 0 leaves it out
	PayloadBytes     int
	Warmup, Duration time.Duration
	Client           string
	Optional         bool // where a server has no JetStream, leave it out rather than fail
}

// The bounds of a durable load. All publishers share one connection.
const (
	maxDurablePublishers = 10_000
	maxWindow            = 65_536
)

// A durablePlan is what a Workload of this scenario adds.
type durablePlan struct {
	publishers int
	window     int // messages in flight, of each publisher
	most       int // messages in all, after which the run ends
	optional   bool
}

// Workloads makes one plan for each number of publishers, and one for the window.
func (d Durable) Workloads() ([]Workload, error) {
	if len(d.Publishers) > 0 || d.Window == 0 {
		if err := checkCommon(d.Publishers, "publishers", d.PayloadBytes, d.Warmup, d.Duration, d.Client); err != nil {
			return nil, err
		}
	} else if err := checkCommon([]int{1}, "publishers", d.PayloadBytes, d.Warmup, d.Duration, d.Client); err != nil {
		return nil, err
	}
	if d.Window < 0 || d.Window > maxWindow {
		return nil, fmt.Errorf("window is %d messages; give 1 to %d, or 0 to leave it out", d.Window, maxWindow)
	}
	var made []Workload
	for _, n := range d.Publishers {
		if n > maxDurablePublishers {
			return nil, fmt.Errorf("number of publishers is %d; give 1 to %d", n, maxDurablePublishers)
		}
		made = append(made, d.workload(n, 1))
	}
	if d.Window > 0 {
		made = append(made, d.workload(1, d.Window))
	}
	return made, nil
}

func (d Durable) workload(publishers, window int) Workload {
	return Workload{
		Scenario: scenarioDurable, Size: publishers, Client: d.Client,
		Parameters: Parameters{
			Publishers: publishers, Window: window, PayloadBytes: d.PayloadBytes,
			WarmupNS: int64(d.Warmup), DurationNS: int64(d.Duration),
		},
		durable: &durablePlan{publishers: publishers, window: window, most: maxDurableMessages, optional: d.Optional},
	}
}

const scenarioDurable = "durable"
