package viewing

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/work"
)

// silent is the links to brokers that never answer.
type silent struct {
	publish.Hub
	asked func()
}

func (s silent) Forward(string, *protocol.Message) (linked bool, behind work.Behind) {
	s.asked()
	return true, behind
}

// TestAQuestionEndsWhenAnotherBrokerLeads: a broker that died does not answer. Who asked it does
// not wait for the whole time of an answer once another one leads.
func TestAQuestionEndsWhenAnotherBrokerLeads(t *testing.T) {
	var moved atomic.Bool
	s := New(Config[*leader]{
		Self: "0", Payload: 4 << 10, Hub: silent{asked: func() { moved.Store(true) }},
		Shard: func(string, int) (*leader, bool, string) {
			if moved.Load() {
				return nil, false, "2"
			}
			return nil, false, "1"
		},
	})
	_, err := s.ask(t.Context(), &question{Kind: handOver, Topic: "in"})
	if !errors.Is(err, errUnreached) {
		t.Errorf("got %v, want that the shard was not reached", err)
	}
}
