package coordination

import (
	"context"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Suspect is a replica of a shard that its broker can't vouch for: its recovery cut or refused
// something, or it may lack what was written before it. It says how far its data log goes.
type Suspect struct {
	Topic      string // id
	Shard      int
	Epoch, End uint64 // last epoch, and end, of the data log
	State      uint64 // end of the state log; 0: not said
	// Spent says that the broker vouches for its copy, and can't lead under this epoch, or an
	// earlier one, any more: others may have batches of it that its own logs lost when they failed.
	// 0: it can't vouch for its copy.
	Spent int64
	// Lacks says that the copy is being repaired, or is to be, by fetching so many segments from
	// the leader. 0: it is fetched whole.
	Lacks int
	// Cut says that opening the copy cut a torn tail and found nothing else amiss. The tail was
	// never synced, so the copy lacks nothing that its broker confirmed; one without a cut goes
	// before it.
	Cut bool
}

// report is what one broker has reported about its replicas.
type report map[string][]Suspect // by id of the Topic

type reportValue struct {
	V int `json:"v"`
	// Suspects are, by id of the Topic, the shard, epoch and end of each; the end of its state log,
	// the epoch that is spent, how many segments are fetched, and flags. Earlier versions leave out
	// what comes later in this list, and ignore it.
	Suspects map[string][][7]uint64 `json:"suspects"`
}

const (
	reportValueVersion = 1
	// flagCut is Suspect.Cut.
	flagCut = 1
	// maxReport bounds one report, within what a transaction of etcd takes: some 16,000 replicas.
	maxReport = 1 << 20
)

func (c *Client) reportKey(id string) string { return c.prefix + "reports/" + id }

// Report says which of its replicas a broker can't vouch for, all of them each time; none: it
// vouches for all. It ends with that life of the broker, but a later life in the same process
// begins with it. What is reported with incarnation 0 is there from the first moment of the
// registration to come.
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
			r[topic] = append(r[topic], Suspect{topic, int(s[0]), s[1], s[2], s[3], int64(s[4]), int(min(s[5], math.MaxInt32)), s[6]&flagCut != 0})
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
