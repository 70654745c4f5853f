package bench

import (
	"fmt"
	"time"
)

// The clients that a workload can be driven by.
const (
	ClientNATS  = "nats"  // nats.go, what an application uses
	ClientLight = "light" // this package's own, for thousands of subscribers in one small process
)

// maxLedgerBytes bounds what keeping account of every delivery may take.
const maxLedgerBytes = 128 << 20

// A Workload is one thing to measure: a plan, with no connection in it.
type Workload struct {
	Scenario   string // name of the subcommand of carillon bench
	Size       int    // groups, subscribers, publishers, consumers or writers
	Client     string
	Parameters Parameters

	topics      []string // what publisher i publishes on, relative to the run's prefix
	subscribers []listener
	schedule    schedule

	durable  *durablePlan // instead of all these, for the durable scenario
	failover *failoverPlan
	log      *logPlan
	consume  *consumePlan
	kv       *kvPlan

	throughput  *throughputPlan
	request     *requestPlan
	connections *connectionsPlan
	noisy       *noisyPlan
	requery     *requeryPlan
	filter      *filterPlan
	query       *queryPlan
	cluster     *clusterPlan
}

// A listener is one subscriber: what it subscribes to, and whose messages it must get.
type listener struct {
	subjects []string
	sources  []int
}

// Parameters say what the load was, in the report.
type Parameters struct {
	Groups             int     `json:"groups,omitempty"`
	PublishersPerGroup int     `json:"publishers_per_group,omitempty"`
	RatePerPublisher   float64 `json:"rate_per_publisher_hz,omitempty"`
	Subscribers        int     `json:"subscribers"`
	Publishers         int     `json:"publishers"`
	Readers            int     `json:"readers,omitempty"`
	Batch              int     `json:"records_per_message,omitempty"`
	Durability         string  `json:"durability,omitempty"`
	Consumers          int     `json:"consumers,omitempty"`
	Messages           int     `json:"stored_messages,omitempty"`
	PullBatch          int     `json:"pull_batch,omitempty"`
	Push               bool    `json:"push,omitempty"`
	AckPending         int     `json:"max_ack_pending,omitempty"`
	AckWaitNS          int64   `json:"ack_wait_ns,omitempty"`
	PacedRate          float64 `json:"paced_messages_per_s,omitempty"` // 0 is a tenth of the rate of the first run
	Keys               int     `json:"keys,omitempty"`
	Window             int     `json:"in_flight_per_publisher,omitempty"`
	Replicas           int     `json:"replicas,omitempty"`
	Connect            string  `json:"publishers_connect_to,omitempty"`
	Topics             int     `json:"topics,omitempty"`
	MessagesPerTopic   int     `json:"messages_per_topic_per_round,omitempty"`
	Rounds             int     `json:"rounds,omitempty"`
	WarmupRounds       int     `json:"warmup_rounds,omitempty"`
	PaceNS             int64   `json:"pace_ns,omitempty"`
	RequestRate        float64 `json:"requests_per_s,omitempty"`    // of an open loop
	ConnectRate        float64 `json:"connections_per_s,omitempty"` // 0: all at once
	Noise              string  `json:"noise,omitempty"`
	Brokers            int     `json:"brokers,omitempty"`
	Sessions           int     `json:"sessions,omitempty"`
	Queries            int     `json:"queries,omitempty"`
	Share              float64 `json:"matching_share,omitempty"`
	Changes            int     `json:"changes,omitempty"`
	Scans              int     `json:"scans,omitempty"`
	LeastNS            int64   `json:"least_between_changes_ns,omitempty"`
	MostNS             int64   `json:"most_between_changes_ns,omitempty"`
	PayloadBytes       int     `json:"payload_bytes"`
	WarmupNS           int64   `json:"warmup_ns"`
	DurationNS         int64   `json:"duration_ns"`
	Tries              int     `json:"tries,omitempty"`
	Fault              string  `json:"fault,omitempty"`
	FaultNS            int64   `json:"fault_ns,omitempty"`
	AckTimeoutNS       int64   `json:"ack_timeout_ns,omitempty"`
	IntervalNS         int64   `json:"interval_ns,omitempty"`
	WithinNS           int64   `json:"gap_within_ns,omitempty"`
	OfferedMessages    float64 `json:"offered_messages_per_s"`
	OfferedDeliveries  float64 `json:"offered_deliveries_per_s"`
}

// Forward configures groups of publishers that each have one subscriber, all at a steady rate:
// the forwarding workload of the CQBS paper.
type Forward struct {
	Groups             []int
	PublishersPerGroup int
	Rate               float64 // messages a second of each publisher
	PayloadBytes       int
	Warmup, Duration   time.Duration
	Client             string
	Seed               uint64
	// Queries are numbers of live queries that are open beside those of the subscribers, which then
	// choose publishers by their attributes. None: subscribers have wildcards.
	Queries []int
}

const scenarioForward = "forward"

// Workloads makes one plan for each number of groups.
func (f Forward) Workloads() ([]Workload, error) {
	if err := checkCommon(f.Groups, "groups", f.PayloadBytes, f.Warmup, f.Duration, f.Client); err != nil {
		return nil, err
	}
	if f.PublishersPerGroup < 1 || f.PublishersPerGroup > 1000 {
		return nil, fmt.Errorf("publishers per group is %d; give 1 to 1000", f.PublishersPerGroup)
	}
	if !(f.Rate >= 0.01 && f.Rate <= 100_000) {
		return nil, fmt.Errorf("rate is %v messages a second; give 0.01 to 100000", f.Rate)
	}
	if err := f.checkQueries(); err != nil {
		return nil, err
	}
	var made []Workload
	for _, groups := range f.Groups {
		s := newTicking(groups*f.PublishersPerGroup, f.Rate, f.Warmup, f.Duration, f.Seed)
		w := Workload{Scenario: scenarioForward, Size: groups, Client: f.Client, schedule: s}
		for g := range groups {
			// Each publisher is a stream with a subject of its own; the group is a wildcard over
			// them.
			l := listener{subjects: []string{fmt.Sprintf("group.%d.*", g)}}
			for p := range f.PublishersPerGroup {
				l.sources = append(l.sources, len(w.topics))
				w.topics = append(w.topics, fmt.Sprintf("group.%d.%d", g, p))
			}
			w.subscribers = append(w.subscribers, l)
		}
		offered := float64(len(w.topics)) / s.period.Seconds()
		w.Parameters = Parameters{
			Groups: groups, PublishersPerGroup: f.PublishersPerGroup, RatePerPublisher: f.Rate,
			Subscribers: groups, Publishers: len(w.topics), PayloadBytes: f.PayloadBytes,
			WarmupNS: int64(s.period) * int64(s.warm), DurationNS: int64(s.period) * int64(s.ticks-s.warm),
			OfferedMessages: offered, OfferedDeliveries: offered,
		}
		if err := w.checkLedger(); err != nil {
			return nil, err
		}
		if len(f.Queries) == 0 {
			made = append(made, w)
		}
		for _, queries := range f.Queries {
			w.Parameters.Queries = queries
			made = append(made, w)
		}
	}
	return made, nil
}

// maxForwardQueries bounds the other queries: a broker accepts 20,000.
const maxForwardQueries = 20_000

func (f Forward) checkQueries() error {
	for _, queries := range f.Queries {
		if queries < 1 || queries > maxForwardQueries {
			return fmt.Errorf("number of other queries is %d; give 1 to %d", queries, maxForwardQueries)
		}
		if f.Client != ClientNATS {
			return fmt.Errorf("live queries have the client %s only, and %q is given", ClientNATS, f.Client)
		}
	}
	return nil
}

// Fanout configures many subscribers over three topics: the workload of Newsome and Jones.
// Even subscribers hear the first and third topic, odd ones the second.
type Fanout struct {
	Subscribers      []int
	MessagesPerTopic int           // in each round
	Pace             time.Duration // between messages; 0 chooses by the number of subscribers
	Rounds           int           // measured; 0 means as many as Duration holds
	PayloadBytes     int
	Warmup, Duration time.Duration
	Client           string
}

const fanoutTopics = 3

// The default pace offers at most 25,000 deliveries a second, which a server on one
// commodity core carries, and at most 100 messages a second.
const (
	pacePerSubscriber = 20 * time.Microsecond
	leastPace         = 10 * time.Millisecond
)

// Workloads makes one plan for each number of subscribers.
func (f Fanout) Workloads() ([]Workload, error) {
	if err := checkCommon(f.Subscribers, "subscribers", f.PayloadBytes, f.Warmup, f.Duration, f.Client); err != nil {
		return nil, err
	}
	if f.MessagesPerTopic < 1 || f.MessagesPerTopic > 10_000 {
		return nil, fmt.Errorf("messages per topic is %d; give 1 to 10000", f.MessagesPerTopic)
	}
	if f.Pace < 0 || f.Pace > time.Minute {
		return nil, fmt.Errorf("pace is %v; give up to 1m, or 0 to let the number of subscribers decide", f.Pace)
	}
	if f.Rounds < 0 || f.Rounds > 1_000_000 {
		return nil, fmt.Errorf("rounds is %d; give up to 1000000, or 0 to fill the duration", f.Rounds)
	}
	var made []Workload
	for _, n := range f.Subscribers {
		s := &rounds{pace: f.Pace, topics: fanoutTopics, each: f.MessagesPerTopic}
		if s.pace == 0 {
			s.pace = max(leastPace, time.Duration(n)*pacePerSubscriber)
		}
		one := s.pace * time.Duration(s.topics*s.each)
		s.warm = ceilDiv(f.Warmup, one)
		measured := f.Rounds
		if measured == 0 {
			measured = max(1, int(f.Duration/one))
		}
		s.count = s.warm + measured
		w := Workload{Scenario: "fanout", Size: n, Client: f.Client, schedule: s}
		for t := range fanoutTopics {
			w.topics = append(w.topics, fmt.Sprintf("topic.%d", t+1))
		}
		deliveries := 0
		for i := range n {
			l := listener{subjects: []string{"topic.2"}, sources: []int{1}}
			if i%2 == 0 {
				l = listener{subjects: []string{"topic.1", "topic.3"}, sources: []int{0, 2}}
			}
			deliveries += len(l.sources)
			w.subscribers = append(w.subscribers, l)
		}
		offered := 1 / s.pace.Seconds()
		w.Parameters = Parameters{
			Subscribers: n, Publishers: fanoutTopics, Topics: fanoutTopics, MessagesPerTopic: f.MessagesPerTopic,
			Rounds: measured, WarmupRounds: s.warm, PaceNS: int64(s.pace), PayloadBytes: f.PayloadBytes,
			WarmupNS: int64(one) * int64(s.warm), DurationNS: int64(one) * int64(measured),
			OfferedMessages: offered, OfferedDeliveries: offered * float64(deliveries) / fanoutTopics,
		}
		if err := w.checkLedger(); err != nil {
			return nil, err
		}
		made = append(made, w)
	}
	return made, nil
}

func checkCommon(sizes []int, what string, payload int, warmup, duration time.Duration, client string) error {
	if len(sizes) == 0 {
		return fmt.Errorf("no number of %s is given", what)
	}
	for _, n := range sizes {
		if n < 1 || n > 100_000 {
			return fmt.Errorf("number of %s is %d; give 1 to 100000", what, n)
		}
	}
	if payload < headerBytes || payload > maxPayloadBytes {
		return fmt.Errorf("payload is %d bytes; give %d (what identifies a message) to %d", payload, headerBytes, maxPayloadBytes)
	}
	if err := checkTimes(warmup, duration); err != nil {
		return err
	}
	if client != ClientNATS && client != ClientLight {
		return fmt.Errorf("client is %q; give %s or %s", client, ClientNATS, ClientLight)
	}
	return nil
}

func checkTimes(warmup, duration time.Duration) error {
	if warmup < 0 || warmup > time.Hour {
		return fmt.Errorf("warm-up is %v; give 0 to 1h", warmup)
	}
	if duration <= 0 || duration > 24*time.Hour {
		return fmt.Errorf("duration is %v; give more than 0, at most 24h", duration)
	}
	return nil
}

// checkLedger refuses a plan whose account would not fit the memory that is promised.
func (w Workload) checkLedger() error {
	total := 0
	for _, l := range w.subscribers {
		total += len(l.sources) * wordsFor(w.schedule.perPublisher()) * 8
	}
	if total > maxLedgerBytes {
		return fmt.Errorf("%s with %d: keeping account of every delivery would take %d MiB, more than %d; shorten the duration or lower the rate",
			w.Scenario, w.Size, total>>20, maxLedgerBytes>>20)
	}
	return nil
}

// sockets is how many sockets the workload holds open at once.
func (w Workload) sockets() int {
	if w.durable != nil {
		return w.durable.publishers + 1 // at most one each, and one to manage the stream
	}
	if w.failover != nil {
		return w.failover.Publishers + maxBrokers + 2
	}
	if w.log != nil {
		return max(w.log.publishers, w.log.readers) + 1
	}
	if w.consume != nil {
		return w.consume.consumers + 2 // one to publish, and one to manage the stream
	}
	if w.kv != nil {
		return maxBrokers + 2 // one to each address, and one to manage the bucket
	}
	if w.throughput != nil {
		return w.throughput.publishers + w.throughput.subscribers
	}
	if w.request != nil {
		return 2 * w.request.pairs
	}
	if w.connections != nil {
		return w.connections.connections
	}
	if w.requery != nil {
		return 2 * w.requery.sessions
	}
	if w.cluster != nil {
		return w.cluster.subscribers + w.cluster.publishers + 1 // one to delete attributes
	}
	if w.query != nil {
		return 2 // one that publishes and scans, and one to manage the stream
	}
	if w.filter != nil {
		return 3 // publisher, subscriber, and one to manage the stream
	}
	if w.noisy != nil {
		return w.noisy.publishers + w.noisy.subscribers + 3 // requester, responder, and one to manage the stream
	}
	others := (w.Parameters.Queries + queriesOfAnAddress - 1) / queriesOfAnAddress
	return len(w.subscribers) + len(w.topics) + others + min(others, 1)
}
