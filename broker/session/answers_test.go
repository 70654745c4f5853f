package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// answeringTaker answers each message at once, without waiting.
type answeringTaker struct{ hub *Hub }

func (a *answeringTaker) Take(messages []Message, _ protocol.Memory, _ bool) bool {
	for i := range messages {
		a.hub.Send([]Message{{Subject: messages[i].Reply}})
	}
	return false
}

func (a *answeringTaker) Wait() {}

// TestAPublisherWaitsForWhatItHasSentToOthers: a client publishes for a Taker whose answers have
// many receivers, and messages whose traces have, while their loop does not run. Its own messages
// go to no loop. It is not read on, so the loop's queue is bounded all the same.
func TestAPublisherWaitsForWhatItHasSentToOthers(t *testing.T) {
	const header = "NATS/1.0\r\nNats-Trace-Dest: many\r\nNats-Trace-Only: true\r\n\r\n"
	for name, message := range map[string]string{
		"answers": "PUB topic many 0\r\n\r\n",
		"traces":  fmt.Sprintf("HPUB nobody %d %d\r\n%s\r\n", len(header), len(header), header),
	} {
		for kind, after := range map[string]string{"plain": "", "counted": "UNSUB %d 1000000\r\n"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHubOf(t, 2)
					defer h.Close()
					h.Offer(&answeringTaker{h}).Set([]string{"topic"})
					const receivers = 1000
					var subs strings.Builder
					for i := range receivers {
						fmt.Fprintf(&subs, "SUB many %d\r\n", i)
						if after != "" {
							fmt.Fprintf(&subs, after, i)
						}
					}
					piped(t, h)(subs.String()) // loop 1
					publisher := piped(t, h)   // loop 0
					publisher("CONNECT {\"verbose\":false,\"headers\":true}\r\n")
					l := h.loops[1]
					const many = 2 * limits.LoopDeliveries
					l.push(nil, many, 0)
					const messages = 2000
					publisher(strings.Repeat(message, messages))
					if n := h.Stats().InMsgs; n != 1 {
						t.Errorf("%d messages are read while the loop is behind", n)
					}
					l.served(many, 0)
					time.Sleep(time.Second)
					if n := h.Stats().InMsgs; n != messages {
						t.Errorf("%d messages are read in the end", n)
					}
				})
			})
		}
	}
}
