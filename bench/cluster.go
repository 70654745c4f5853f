package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cluster configures publishers at several brokers that change their attributes, while subscribers
// find them by live queries: the complete system of the CQBS paper. Latency counts from when a
// message was due until a subscriber has it. What the start takes, and changes, are part of it.
type Cluster struct {
	Brokers      int
	Subscribers  int     // at each broker
	Rate         float64 // messages a second of each publisher
	PayloadBytes int
	Least, Most  time.Duration // between two changes of a publisher's room
	Duration     time.Duration
	Seed         uint64
}

const scenarioCluster = "cluster"

// The paper's figures: each subscriber has as many publishers as there are rooms, and asks for four
// rooms. The publishers of a subscriber go through all rooms.
const (
	clusterRooms  = 12
	clusterChosen = 4
)

// The bounds of a cluster load.
const (
	maxClusterBrokers     = 32
	maxClusterSubscribers = 200
)

// lateEntry is how long after a publisher has become a member its messages may be missed: a broker
// that is slow with an attribute change is not waited for (docs/queries.md, Order).
const lateEntry = 10 * time.Second

// lateMessage is how long all publishers are held up for the first message of a member. A broker is
// waited for half as long, and so what has not come then was missed.
const lateMessage = time.Second

// A clusterPlan is what a Workload of this scenario adds. Publisher p belongs to the bucket, and
// the subscriber, p / clusterRooms.
type clusterPlan struct {
	brokers, subscribers, publishers int
	schedule                         *ticking
	changes                          [][]int // of each publisher, the messages that change its room
	first                            []int   // room of each publisher
}

// Workloads makes the plan.
func (c Cluster) Workloads() ([]Workload, error) {
	for _, bound := range []struct {
		what        string
		value, most int
	}{
		{"brokers", c.Brokers, maxClusterBrokers},
		{"subscribers at a broker", c.Subscribers, maxClusterSubscribers},
	} {
		if bound.value < 1 || bound.value > bound.most {
			return nil, fmt.Errorf("number of %s is %d; give 1 to %d", bound.what, bound.value,
				bound.most)
		}
	}
	if c.PayloadBytes < headerBytes || c.PayloadBytes > maxPayloadBytes {
		return nil, fmt.Errorf("payload is %d bytes; give %d (what identifies a message) to %d",
			c.PayloadBytes, headerBytes, maxPayloadBytes)
	}
	if !(c.Rate >= 0.01 && c.Rate <= 1000) {
		return nil, fmt.Errorf("rate is %v messages a second; give 0.01 to 1000", c.Rate)
	}
	if c.Least <= 0 || c.Most < c.Least || c.Most > time.Hour {
		return nil, fmt.Errorf("changes are %v to %v apart; give the least time, more than 0, and the "+
			"greatest, at most 1h", c.Least, c.Most)
	}
	if err := checkTimes(0, c.Duration); err != nil {
		return nil, err
	}
	p := &clusterPlan{brokers: c.Brokers, subscribers: c.Brokers * c.Subscribers}
	p.publishers = p.subscribers * clusterRooms
	p.schedule = newTicking(p.publishers, c.Rate, 0, c.Duration, c.Seed)
	if total := p.publishers * wordsFor(p.schedule.ticks) * 8 * 3; total > maxLedgerBytes {
		return nil, fmt.Errorf("keeping account of every message would take %d MiB, more than %d; shorten "+
			"the duration or lower the rate", total>>20, maxLedgerBytes>>20)
	}
	random := rand.New(rand.NewPCG(c.Seed, uint64(p.publishers)))
	total := 0
	for publisher := range p.publishers {
		p.first = append(p.first, publisher%clusterRooms)
		var changes []int
		for at := time.Duration(0); ; {
			at += c.Least + time.Duration(random.Int64N(int64(c.Most-c.Least)+1))
			tick := int(at / p.schedule.period)
			if tick >= p.schedule.ticks {
				break
			}
			if n := len(changes); tick > 0 && (n == 0 || changes[n-1] < tick) {
				changes = append(changes, tick)
			}
		}
		total += len(changes)
		p.changes = append(p.changes, changes)
	}
	offered := float64(p.publishers) / p.schedule.period.Seconds()
	return []Workload{{
		Scenario: scenarioCluster, Size: p.publishers, Client: ClientNATS,
		Parameters: Parameters{
			Brokers: c.Brokers, Subscribers: p.subscribers, Publishers: p.publishers, Changes: total,
			RatePerPublisher: c.Rate, PayloadBytes: c.PayloadBytes, LeastNS: int64(c.Least), MostNS: int64(c.Most),
			DurationNS: int64(p.schedule.period) * int64(p.schedule.ticks), OfferedMessages: offered,
			OfferedDeliveries: offered * clusterChosen / clusterRooms,
		},
		cluster: p,
	}}, nil
}

// generation is how often a publisher has changed its room up to a message of it, and changed says
// whether that message changes it.
func (p *clusterPlan) generation(publisher, sequence int) (generation int, changed bool) {
	at, found := slices.BinarySearch(p.changes[publisher], sequence)
	if found {
		return at + 1, true
	}
	return at, sequence == 0
}

// room is that of a publisher after so many changes.
func (p *clusterPlan) room(publisher, generation int) int {
	return (p.first[publisher] + generation) % clusterRooms
}

// chosen tells whether a subscriber asks for a room.
func (p *clusterPlan) chosen(subscriber, room int) bool {
	return (room-subscriber%clusterRooms+clusterRooms)%clusterRooms < clusterChosen
}

// member tells whether a publisher is a member of its subscriber's query with a message.
func (p *clusterPlan) member(publisher, sequence int) bool {
	generation, _ := p.generation(publisher, sequence)
	return p.chosen(publisher/clusterRooms, p.room(publisher, generation))
}

// leaves tells whether a publisher is a member up to a message, and not with it.
func (p *clusterPlan) leaves(publisher, sequence int) bool {
	return sequence > 0 && p.member(publisher, sequence-1) && !p.member(publisher, sequence)
}

// broker returns at which broker a publisher is: a third of each bucket's is at that of the
// subscriber, if there are three.
func (p *clusterPlan) broker(publisher int) int { return publisher % p.brokers }

func (p *clusterPlan) where(subscriber int) string {
	var rooms []string
	for room := range clusterRooms {
		if p.chosen(subscriber, room) {
			rooms = append(rooms, fmt.Sprintf("attributes.room == %q", strconv.Itoa(room)))
		}
	}
	bucket := fmt.Sprintf("attributes.bucket == %q", strconv.Itoa(subscriber))
	return bucket + " && (" + strings.Join(rooms, " || ") + ")"
}

// attributes returns the header of a message that changes a publisher's attributes.
func (p *clusterPlan) attributes(publisher, generation int) string {
	data, _ := json.Marshal(map[string]any{ // of texts and numbers
		"bucket": strconv.Itoa(publisher / clusterRooms), "generation": generation,
		"room": strconv.Itoa(p.room(publisher, generation)),
	})
	return string(data)
}

// ClusterFigures are the findings of a run of the cluster scenario.
type ClusterFigures struct {
	// Missed are messages of new members that a slow broker did not route yet.
	Missed  int64 `json:"missed_at_entry"`
	Notices int64 `json:"notices"`
	Changes int64 `json:"changes"`
}

// summarizeCluster returns sums.
func summarizeCluster(runs []Run) *ClusterFigures {
	var s *ClusterFigures
	for _, run := range runs {
		if run.Cluster == nil {
			continue
		}
		if s == nil {
			s = &ClusterFigures{}
		}
		s.Missed, s.Notices = s.Missed+run.Cluster.Missed, s.Notices+run.Cluster.Notices
		s.Changes += run.Cluster.Changes
	}
	return s
}
