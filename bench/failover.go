package bench

import (
	"fmt"
	"slices"
	"time"
)

// Failover configures publishers that wait for each ack while, try after try, the broker that
// leads their stream is taken away. What it finds is for how long nothing is acknowledged, and
// whether what was acknowledged is still there.
type Failover struct {
	Publishers   int // in turn on the addresses of the target
	Replicas     int
	PayloadBytes int
	Tries        int
	Fault        Fault
	Steady       time.Duration // of undisturbed publishing before each fault
	AckTimeout   time.Duration // after which a publisher goes on with its next message
	Interval     time.Duration // between two messages of a publisher, at least
	// Within is the longest gap that the first server may have on the other brokers; 0: any.
	Within time.Duration
}

const scenarioFailover = "failover"

// The bounds of a failover load.
const (
	maxFailoverPublishers = 256
	maxTries              = 1000
	longestFault          = 10 * time.Minute
	maxBrokers            = 64 // that are watched, each by a connection
	// returning bounds how long a broker may take until its replica is current again.
	returning = 2 * time.Minute
)

// A failoverPlan is what a Workload of this scenario adds.
type failoverPlan struct{ Failover }

// Workloads makes the one plan.
func (f Failover) Workloads() ([]Workload, error) {
	if err := checkCommon([]int{f.Publishers}, "publishers", f.PayloadBytes, 0, time.Second, ClientNATS); err != nil {
		return nil, err
	}
	if f.Publishers > maxFailoverPublishers {
		return nil, fmt.Errorf("number of publishers is %d; give 1 to %d", f.Publishers, maxFailoverPublishers)
	}
	if err := checkReplicas(f.Replicas); err != nil {
		return nil, err
	}
	if f.Tries < 1 || f.Tries > maxTries {
		return nil, fmt.Errorf("number of tries is %d; give 1 to %d", f.Tries, maxTries)
	}
	for what, d := range map[string]time.Duration{"steady time": f.Steady, "ack timeout": f.AckTimeout, "fault": f.Fault.For} {
		if d <= 0 || d > longestFault {
			return nil, fmt.Errorf("%s is %v; give more than 0, at most %v", what, d, longestFault)
		}
	}
	if f.Interval < time.Millisecond || f.Interval > time.Minute {
		return nil, fmt.Errorf("interval is %v; give 1ms to 1m", f.Interval)
	}
	if f.Within < 0 {
		return nil, fmt.Errorf("the gap may be %v; give 0 (anything) or more", f.Within)
	}
	if err := f.Fault.check(); err != nil {
		return nil, err
	}
	return []Workload{{
		Scenario: scenarioFailover, Size: f.Publishers, Client: ClientNATS,
		Parameters: Parameters{
			Publishers: f.Publishers, Replicas: f.Replicas, PayloadBytes: f.PayloadBytes,
			WarmupNS: int64(f.Steady), DurationNS: int64(f.Fault.For) * int64(f.Tries),
			Tries: f.Tries, Fault: f.Fault.Kind, FaultNS: int64(f.Fault.For),
			AckTimeoutNS: int64(f.AckTimeout), IntervalNS: int64(f.Interval), WithinNS: int64(f.Within),
		},
		failover: &failoverPlan{f},
	}}, nil
}

// suits says what a target lacks for this load, if anything.
func (p failoverPlan) suits(t Target) error {
	if len(t.Addresses) < 2 {
		return fmt.Errorf("%s has one address; failover needs those of all brokers, with commas between them", t.Name)
	}
	if len(t.Addresses) > maxBrokers {
		return fmt.Errorf("%s has %d addresses; give at most %d", t.Name, len(t.Addresses), maxBrokers)
	}
	if p.Fault.Command != "" {
		return nil
	}
	if t.Processes.none() {
		return fmt.Errorf("nothing says which process is which broker of %s; give --pid-file-pattern or --pids (in the order --server, --against), or --fault-command", t.Name)
	}
	if p.Fault.Kind == FaultKill && p.Tries > 1 && t.Processes.Pattern == "" {
		return fmt.Errorf("a broker of %s that was killed comes back as another process; give --pid-file-pattern instead of --pids, or --tries 1", t.Name)
	}
	return nil
}

// Outage is how a run of the failover scenario went.
type Outage struct {
	Tries []Try `json:"tries"`
	// LongestSteady is between two acks of a publisher while nothing was wrong.
	LongestSteady int64 `json:"longest_gap_undisturbed_ns"`
	Published     int64 `json:"published"`
	Acked         int64 `json:"acked"`
	TimedOut      int64 `json:"timed_out"` // no ack within the timeout, or no connection
	Refused       int64 `json:"refused"`   // answered with an error, or nobody was there to answer
	Wrong         int64 `json:"wrong"`     // acks that can't be
}

// A Try is one fault of the leader. A gap is the longest time between two consecutive acks of one
// publisher, the second one after the fault began.
type Try struct {
	Leader     string `json:"leader"`
	NewLeader  string `json:"new_leader"` // at the end of the try
	Others     int    `json:"other_publishers"`
	GapOthers  int64  `json:"gap_of_others_ns"` // of those that were not connected to the victim
	GapAll     int64  `json:"gap_of_all_ns"`
	Failed     int64  `json:"failed_acks"`
	WholeAfter int64  `json:"whole_again_after_ns"` // all replicas current, counted from the fault
	BeganAfter int64  `json:"began_after_ns"`       // from the start of the run
}

// OutageSummary is over all tries of a server.
type OutageSummary struct {
	Tries         int   `json:"tries"`
	MedianOthers  int64 `json:"median_gap_of_others_ns"`
	WorstOthers   int64 `json:"worst_gap_of_others_ns"`
	MedianAll     int64 `json:"median_gap_of_all_ns"`
	WorstAll      int64 `json:"worst_gap_of_all_ns"`
	LongestSteady int64 `json:"longest_gap_undisturbed_ns"`
	Published     int64 `json:"published"`
	Acked         int64 `json:"acked"`
	Failed        int64 `json:"failed_acks"` // timed out or refused
	Wrong         int64 `json:"wrong"`
}

func summarizeOutages(runs []Run) *OutageSummary {
	var s *OutageSummary
	var others, all []int64
	for _, run := range runs {
		o := run.Outage
		if o == nil {
			continue
		}
		if s == nil {
			s = &OutageSummary{}
		}
		s.Tries += len(o.Tries)
		s.LongestSteady = max(s.LongestSteady, o.LongestSteady)
		s.Published, s.Acked, s.Wrong = s.Published+o.Published, s.Acked+o.Acked, s.Wrong+o.Wrong
		s.Failed += o.TimedOut + o.Refused
		for _, t := range o.Tries {
			all = append(all, t.GapAll)
			if t.Others > 0 {
				others = append(others, t.GapOthers)
			}
		}
	}
	if s != nil {
		s.MedianOthers, s.WorstOthers = middleAndWorst(others)
		s.MedianAll, s.WorstAll = middleAndWorst(all)
	}
	return s
}

func middleAndWorst(values []int64) (middle, worst int64) {
	if len(values) == 0 {
		return 0, 0
	}
	slices.Sort(values)
	half := len(values) / 2
	middle = values[half]
	if len(values)%2 == 0 {
		middle = (values[half-1] + values[half]) / 2
	}
	return middle, values[len(values)-1]
}

// slower counts the tries in which the publishers on the other brokers waited longer than that.
func (m Measured) slower(limit time.Duration) (n int) {
	for _, run := range m.Runs {
		if run.Outage == nil {
			continue
		}
		for _, t := range run.Outage.Tries {
			if t.Others > 0 && time.Duration(t.GapOthers) > limit {
				n++
			}
		}
	}
	return n
}
