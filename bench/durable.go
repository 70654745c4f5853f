package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Durable configures publishers that wait until the server has acknowledged each message as
// stored, over the JetStream API. It is a closed loop: what it finds is how much a server takes,
// and how long a publisher waits meanwhile.
type Durable struct {
	Publishers       []int // each waits for the ack of a message before it sends the next
	Replicas         []int // of the stream; every load is measured with each number
	Connect          string
	Window           int // of one more publisher that keeps so many in flight; 0 leaves it out
	PayloadBytes     int
	Warmup, Duration time.Duration
	Client           string
	Optional         bool // where a server has no JetStream, leave it out rather than fail
}

// The bounds of a durable load.
const (
	maxDurablePublishers = 10_000
	maxWindow            = 65_536
	maxReplicas          = 5 // what JetStream allows
)

// Where the publishers connect to, when a target has several addresses.
const (
	ConnectSpread   = "spread"   // in turn over all of them, as connections of many clients are
	ConnectLeader   = "leader"   // the broker that leads the stream
	ConnectFollower = "follower" // the other ones
)

// A durablePlan is what a Workload of this scenario adds.
type durablePlan struct {
	publishers int
	window     int // messages in flight, of each publisher
	most       int // messages in all, after which the run ends
	replicas   int
	connect    string
	optional   bool
}

// Workloads makes, for each number of replicas, one plan for each number of publishers, and one
// for the window.
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
	if err := checkReplicas(d.Replicas...); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{ConnectSpread, ConnectLeader, ConnectFollower}, d.Connect) {
		return nil, fmt.Errorf("publishers connect to %q; give %s, %s or %s", d.Connect, ConnectSpread, ConnectLeader, ConnectFollower)
	}
	var made []Workload
	for _, replicas := range d.Replicas {
		for _, n := range d.Publishers {
			if n > maxDurablePublishers {
				return nil, fmt.Errorf("number of publishers is %d; give 1 to %d", n, maxDurablePublishers)
			}
			made = append(made, d.workload(n, 1, replicas))
		}
		if d.Window > 0 {
			made = append(made, d.workload(1, d.Window, replicas))
		}
	}
	return made, nil
}

func checkReplicas(numbers ...int) error {
	if len(numbers) == 0 {
		return errors.New("no number of replicas is given")
	}
	for _, n := range numbers {
		if n < 1 || n > maxReplicas {
			return fmt.Errorf("number of replicas is %d; give 1 to %d", n, maxReplicas)
		}
	}
	return nil
}

func (d Durable) workload(publishers, window, replicas int) Workload {
	return Workload{
		Scenario: scenarioDurable, Size: publishers, Client: d.Client,
		Parameters: Parameters{
			Publishers: publishers, Window: window, Replicas: replicas, Connect: d.Connect, PayloadBytes: d.PayloadBytes,
			WarmupNS: int64(d.Warmup), DurationNS: int64(d.Duration),
		},
		durable: &durablePlan{
			publishers: publishers, window: window, most: maxDurableMessages,
			replicas: replicas, connect: d.Connect, optional: d.Optional,
		},
	}
}

const scenarioDurable = "durable"
