package subscription

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestADeadLetterThatIsTooLargeLeavesOutThePayload: or the headers, too. Its message stays where an
// ack would remove it, until somebody acknowledges it.
func TestADeadLetterThatIsTooLargeLeavesOutThePayload(t *testing.T) {
	for _, policy := range []coordination.StreamRetention{coordination.LimitsPolicy, coordination.WorkQueue, coordination.InterestPolicy} {
		t.Run(string(policy), func(t *testing.T) {
			deadStory(t, func(t *testing.T, w *world) {
				w.retain(policy)
				w.dead.most = 1000
				w.declare("s", 1, buried())
				s := w.find("s")
				publish := func(trace, body string) {
					header := "NATS/1.0\r\nTrace: " + trace + "\r\n\r\n"
					w.shard.append(log.Record{Time: time.Now().UnixNano(), Subject: []byte("o"), Header: len(header), Data: []byte(header + body)})
				}
				publish("7", "small")
				publish("7", strings.Repeat("x", 1000))
				publish(strings.Repeat("7", 1000), "small")
				s.Pull(pull("a", 3))
				w.expect("s", "a", "1", "2", "3")
				for offset := uint64(1); offset <= 3; offset++ {
					testutil.Must(t, w.ackNow(s, offset, Term))
				}
				if got := w.dead.subjects(); len(got) != 3 || w.dead.times() != 6 {
					t.Fatalf("stored are %d, asked for %d times", len(got), w.dead.times())
				}
				for i := range w.dead.stored {
					m := &w.dead.stored[i]
					at, left, trace, body := headerOf(m, DeadOffset), headerOf(m, DeadLeftOut), headerOf(m, "Trace"), string(m.Data[m.Header:])
					if want := map[string]string{"1": "|7|small", "2": "Payload|7|", "3": "Payload, Headers||"}[at]; left+"|"+trace+"|"+body != want {
						t.Errorf("%s is stored as %q, want %q", at, left+"|"+trace+"|"+body, want)
					}
				}
				if i := s.Info(); i.GivenUp != 0 || i.Pending != 0 || i.DeadLettered != 3 || i.DeadLetterTrouble != "" {
					t.Errorf("it stands at %+v", i)
				}
				if policy == coordination.LimitsPolicy {
					return
				}
				w.holds("whose payload is stored nowhere else", 2, 3)
				w.restart()
				w.holds("after a restart", 2, 3)
				testutil.Must(t, w.ackNow(w.find("s"), 2, Done))
				w.holds("one was acknowledged", 3)
			})
		})
	}
}
