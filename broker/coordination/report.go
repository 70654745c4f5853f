package coordination

import (
	"context"
	"fmt"
	"math"

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
}

// report is what one broker has reported about its replicas.
type report map[string][]Suspect // by id of the Topic

type reportValue struct {
	V int `json:"v"`
	// Suspects are, by Topic id, for each replica: shard, epoch and end of the data log, end of the
	// state log, spent epoch, segments being fetched, flags. Earlier versions write fewer numbers
	// and ignore further ones.
	Suspects map[string][][7]uint64 `json:"suspects"`
}

const (
	reportValueVersion = 1
	// flagCut encodes Suspect.Cut.
	flagCut = 1
	// flagClosed encodes Suspect.Closed.
	flagClosed = 2
	// maxReport bounds one report in bytes, within etcd's limits: some 16,000 replicas.
	maxReport = 1 << 20
)

func (c *Client) reportKey(id string) string { return c.prefix + "reports/" + id }

// Report replaces the list of replicas that a broker cannot vouch for; an empty list vouches for
// all. It ends with the incarnation, but a later registration of the same process keeps it. With
// incarnation 0 it is part of the next registration.
func (c *Client) Report(ctx context.Context, broker Replica, suspects []Suspect) error {
	what := "the report of broker " + broker.Broker
	if why := validBrokerID(broker.Broker); why != "" {
		return &InvalidError{what, why}
	}
	value := reportValue{reportValueVersion, map[string][][7]uint64{}}
	for _, s := range suspects {
		if !validID(s.Topic) || s.Shard < 0 || s.Shard >= maxShards {
			return &InvalidError{what, fmt.Sprintf("shard %d of topic id %q: no such shard can be", s.Shard, s.Topic)}
		}
		flags := uint64(0)
		if s.Cut {
			flags |= flagCut
		}
		if s.Closed {
			flags |= flagClosed
		}
		value.Suspects[s.Topic] = append(value.Suspects[s.Topic], [7]uint64{uint64(s.Shard), s.Epoch, s.End, s.State, uint64(s.Spent), uint64(s.Lacks), flags})
	}
	data, err := encodeBounded(what, value, maxReport)
	if err != nil {
		return err
	}
	return c.putLeased(ctx, broker, c.reportKey(broker.Broker), data)
}

func decodeReport(kv *mvccpb.KeyValue) (report, error) {
	var value reportValue
	if err := decodeValue(string(kv.GetKey()), kv.GetValue(), reportValueVersion, &value, &value.V); err != nil {
		return nil, err
	}
	r := make(report, len(value.Suspects))
	for topic, shards := range value.Suspects {
		for _, s := range shards {
			if s[0] >= maxShards {
				return nil, fmt.Errorf("decode %s: no topic has a shard %d", kv.GetKey(), s[0])
			}
			r[topic] = append(r[topic], Suspect{topic, int(s[0]), s[1], s[2], s[3], int64(s[4]), int(min(s[5], math.MaxInt32)), s[6]&flagCut != 0, s[6]&flagClosed != 0})
		}
	}
	return r, nil
}

// Suspect reports whether the broker, in its current incarnation, cannot vouch for its replica of
// that shard.
func (s *State) Suspect(brokerID, topicID string, shard int) bool {
	said, ok := s.Reported(brokerID, topicID, shard)
	return ok && said.Spent == 0
}

// Reported returns what the broker has reported about a replica; false: nothing.
func (s *State) Reported(brokerID, topicID string, shard int) (Suspect, bool) {
	for _, suspect := range s.reports[brokerID][topicID] {
		if suspect.Shard == shard {
			return suspect, true
		}
	}
	return Suspect{}, false
}
