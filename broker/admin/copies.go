package admin

import (
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// TopicCopiesSubject is the subject of requests about one broker's copies of a Topic. The Topic and
// the broker's id follow.
const TopicCopiesSubject = Prefix + "TOPIC.COPIES."

// TopicCopies are one broker's copies of a Topic's shards.
type TopicCopies struct {
	Error  *Error  `json:"error,omitempty"`
	Broker *Broker `json:"broker,omitempty"`
	Copies []Copy  `json:"copies,omitempty"` // by shard
}

// Copy is a broker's copy of a shard.
type Copy struct {
	Shard int `json:"shard"`
	// Unscrubbed is for how many nanoseconds the sealed segment has not been scrubbed that has
	// waited longest; 0: there is no sealed segment, or the copy is not open.
	Unscrubbed time.Duration `json:"unscrubbed"`
}

// answerCopies answers for this broker's copies. It forwards a request for another broker's, once,
// and then returns nil.
func (s *Server) answerCopies(r *request, m *protocol.Message, by origin) []byte {
	v := s.view()
	desired := v.state.Topic(r.topic)
	if desired == nil {
		return encodeError(noTopic(r.topic))
	}
	if data, elsewhere := s.elsewhere(r.broker, m, by); elsewhere {
		return data
	}
	t := s.topics.ByID(desired.ID)
	if t == nil {
		return encodeError(notReady())
	}
	broker := v.broker(r.broker)
	answer := TopicCopies{Broker: &broker}
	for _, shard := range t.Shards() {
		if shard.Holds() {
			answer.Copies = append(answer.Copies, Copy{Shard: shard.Number(), Unscrubbed: shard.Unscrubbed()})
		}
	}
	return encode(answer)
}
