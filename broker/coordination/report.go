package coordination

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Suspect is a replica that its broker cannot vouch for: its recovery truncated or rejected
// something, or it may lack earlier records. It says how far its logs go.
type Suspect struct {
	Topic      string // id
	Shard      int
	Epoch, End uint64 // last epoch, and end, of the data log
	State      uint64 // end of the state log; 0: unknown
	// Spent, if not 0, is an epoch under which, or under an earlier one, the broker can't lead any
	// more, though it vouches for its copy: followers may have batches of that epoch that its own
	// log lost when it failed. 0: it cannot vouch for its copy.
	Spent int64
	// Lacks is the number of segments being fetched from the leader to repair the copy. 0: the
	// whole copy is fetched.
	Lacks int
	// Cut reports that opening the copy cut a torn tail and found nothing else wrong. The tail was
	// never synced, so the copy has everything that its broker confirmed. A copy without a cut is
	// preferred.
	Cut bool
	// Closed reports that the broker cannot open its copy. It counts as away until it can. How far
	// the copy goes is what was known before; 0: nothing is known.
	Closed bool

	// Of a shard of an earlier generation every copy is reported, also one that the shard does not
	// name, and stands still from then on.

	// Whole reports that nothing speaks against the copy.
	Whole bool
	// Opening reports that there is a copy, and that it is not known yet how far it goes.
	Opening bool
	// Known is the latest epoch of the shard that the broker knows.
	Known uint64
	// StateEpoch is the last epoch of the state log.
	StateEpoch uint64
}

// reach returns how far the logs go, for a comparison of copies without a doubt.
func (s Suspect) reach() [4]uint64 { return [...]uint64{s.Epoch, s.End, s.StateEpoch, s.State} }

// SameReach reports whether two copies go equally far.
func (s Suspect) SameReach(other Suspect) bool { return s.reach() == other.reach() }

// report is a part of what one broker has reported about its replicas: of the Topics with an id of
// at least from, and less than before if that is not empty.
type report struct {
	from, before string
	suspects     map[string][]Suspect // by id of the Topic
	// generation: all copies of these Topics' shards of earlier generations are among the suspects.
	generation int64
}

type reportValue struct {
	V int `json:"v"`
	// Suspects are, by Topic id, for each replica: shard, epoch and end of the data log, end of the
	// state log, spent epoch, segments being fetched, flags. Earlier versions write fewer numbers
	// and ignore further ones: the latest epoch known, the last epoch of the state log.
	Suspects map[string][][]uint64 `json:"suspects"`
	// Generation, From and Before are those of report. Earlier versions write none.
	Generation int64  `json:"generation,omitempty"`
	From       string `json:"from,omitempty"`
	Before     string `json:"before,omitempty"`
}

const (
	reportValueVersion = 1
	// The flags of a Suspect.
	flagCut, flagClosed, flagWhole, flagOpening = 1, 2, 4, 8
	// numbersBefore is how many numbers the version before wrote of a replica.
	numbersBefore = 7
	// maxReport bounds one part of a report in bytes, within etcd's limits: some 10,000 replicas.
	maxReport = 1 << 20
	// maxReportParts bounds the parts of one report: to some 40,000 replicas, four times as many as
	// a cluster is measured with. A broker that starts reads the reports of all brokers in one
	// request.
	maxReportParts = 4
)

// reportKey returns the key of a report's first part, and of everything below it.
func (c *Client) reportKey(id string) string { return c.prefix + "reports/" + id }

// reportPartKey returns the key of a part. Earlier versions read the first one only. They take the
// Topics of the others for Topics that are not reported yet, and 018b7c1 for Topics without damage.
func (c *Client) reportPartKey(id string, part int) string {
	if part == 0 {
		return c.reportKey(id)
	}
	return fmt.Sprintf("%s/%d", c.reportKey(id), part)
}

// Report replaces the list of replicas that a broker cannot vouch for; an empty list vouches for
// all. It ends with the incarnation. A generation says that the list has all copies of shards of
// earlier generations. Only one call at a time may be under way for a broker.
//
// A long list is written in parts, each for a range of Topic ids, one after the other. Meanwhile a
// Topic may be in two parts, where the first one counts, or in none. It is not reported then, and
// its restored shards wait. What does not fit into maxReportParts is left out until there is room:
// shards leave the list when they have leaders.
//
// A later registration of the same process keeps the first part, and with incarnation 0 that is
// part of the next registration. The other parts have to be reported again after a registration.
func (c *Client) Report(ctx context.Context, broker Replica, generation int64, suspects []Suspect) error {
	what := "the report of broker " + broker.Broker
	if why := validBrokerID(broker.Broker); why != "" {
		return &InvalidError{what, why}
	}
	for _, s := range suspects {
		if !validID(s.Topic) || s.Shard < 0 || s.Shard >= maxShards {
			return &InvalidError{what, fmt.Sprintf("shard %d of topic id %q: no such shard can be", s.Shard, s.Topic)}
		}
	}
	suspects = slices.Clone(suspects)
	slices.SortStableFunc(suspects, func(a, b Suspect) int { return strings.Compare(a.Topic, b.Topic) })
	parts, err := encodeReport(generation, suspects)
	if err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	id := broker.Broker
	if err := c.putLeased(ctx, broker, c.reportKey(id), parts[0]); err != nil || broker.Incarnation == 0 {
		return err
	}
	written := c.leased.reportParts(id, len(parts))
	for i := 1; i < len(parts); i++ {
		if err := c.putInLease(ctx, broker, c.reportPartKey(id, i), parts[i]); err != nil {
			return err
		}
	}
	// An earlier part has all Topics of these by now, so they don't count any more.
	for i := len(parts); i < written; i++ {
		if err := c.deleteLeased(ctx, broker, c.reportPartKey(id, i)); err != nil {
			return err
		}
	}
	c.leased.reportPartsLeft(id, len(parts))
	return nil
}

// encodeReport returns the values of the parts for as many of the suspects, sorted by Topic, as
// fit. There is always a first one.
func encodeReport(generation int64, suspects []Suspect) (parts []string, err error) {
	from := ""
	for {
		part, n, err := encodePart(generation, from, suspects)
		if err != nil {
			return nil, err
		}
		if parts = append(parts, part); n == len(suspects) || len(parts) == maxReportParts {
			return parts, nil
		}
		from, suspects = suspects[n].Topic, suspects[n:]
	}
}

// encodePart returns the value for as many of the suspects as fit, and their number. The first
// Topic without room is where the part ends.
func encodePart(generation int64, from string, suspects []Suspect) (part string, n int, err error) {
	value := reportValue{V: reportValueVersion, Generation: generation, From: from}
	for n = len(suspects); ; {
		value.Suspects = map[string][][]uint64{}
		for i := range suspects[:n] {
			s := &suspects[i]
			value.Suspects[s.Topic] = append(value.Suspects[s.Topic], s.numbers())
		}
		data, err := json.Marshal(value)
		if err != nil || len(data) <= maxReport {
			return string(data), n, err
		}
		n = min(n*(maxReport*15/16)/len(data), n-1)
		value.Before = suspects[n].Topic
		for n > 0 && suspects[n-1].Topic == value.Before { // a Topic's shards are in it or not
			n--
		}
	}
}

func (s *Suspect) numbers() []uint64 {
	flags := uint64(0)
	for flag, set := range map[uint64]bool{flagCut: s.Cut, flagClosed: s.Closed, flagWhole: s.Whole, flagOpening: s.Opening} {
		if set {
			flags |= flag
		}
	}
	numbers := []uint64{uint64(s.Shard), s.Epoch, s.End, s.State, uint64(s.Spent), uint64(s.Lacks), flags, s.Known, s.StateEpoch}
	if s.Known == 0 && s.StateEpoch == 0 {
		numbers = numbers[:numbersBefore]
	}
	return numbers
}

func decodeReport(kv *mvccpb.KeyValue) (r report, err error) {
	var value reportValue
	if err := decodeValue(string(kv.GetKey()), kv.GetValue(), reportValueVersion, &value, &value.V); err != nil {
		return r, err
	}
	r = report{from: value.From, before: value.Before, suspects: make(map[string][]Suspect, len(value.Suspects)), generation: value.Generation}
	for topic, shards := range value.Suspects {
		for _, said := range shards {
			var s [numbersBefore + 2]uint64
			copy(s[:], said)
			if s[0] >= maxShards {
				return r, fmt.Errorf("decode %s: no topic has a shard %d", kv.GetKey(), s[0])
			}
			r.suspects[topic] = append(r.suspects[topic], Suspect{
				Topic: topic, Shard: int(s[0]), Epoch: s[1], End: s[2], State: s[3], Spent: int64(s[4]), Lacks: int(min(s[5], math.MaxInt32)),
				Cut: s[6]&flagCut != 0, Closed: s[6]&flagClosed != 0, Whole: s[6]&flagWhole != 0, Opening: s[6]&flagOpening != 0, Known: s[7], StateEpoch: s[8],
			})
		}
	}
	return r, nil
}

// Suspect reports whether the broker, in its current incarnation, cannot vouch for its replica of
// that shard.
func (s *State) Suspect(brokerID, topicID string, shard int) bool {
	said, ok := s.Reported(brokerID, topicID, shard)
	return ok && said.Doubted()
}

// Doubted reports whether the broker can't vouch for the copy.
func (s Suspect) Doubted() bool { return s.Spent == 0 && !s.Whole && !s.Opening }

// reportOn returns the part of a broker's report that a Topic is in, or nil.
func (s *State) reportOn(brokerID, topicID string) *report {
	parts := s.reports[brokerID]
	for i := range parts {
		switch r := &parts[i]; {
		case r.before != "" && topicID >= r.before:
		case topicID < r.from:
			return nil
		default:
			return r
		}
	}
	return nil
}

// ReportedIn returns the generation whose restored copies of a Topic a broker has reported; 0:
// none.
func (s *State) ReportedIn(brokerID, topicID string) int64 {
	if r := s.reportOn(brokerID, topicID); r != nil {
		return r.generation
	}
	return 0
}

// Reported returns what the broker has reported about a replica; false: nothing.
func (s *State) Reported(brokerID, topicID string, shard int) (Suspect, bool) {
	if r := s.reportOn(brokerID, topicID); r != nil {
		for _, suspect := range r.suspects[topicID] {
			if suspect.Shard == shard {
				return suspect, true
			}
		}
	}
	return Suspect{}, false
}
