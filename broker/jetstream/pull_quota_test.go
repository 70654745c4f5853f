package jetstream

import (
	"fmt"
	"testing"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/subscription"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestOneClientsPullsLeaveRoomForOthers: the pulls of one account take half of the room, whatever
// the consumer admits and by whichever broker they come. Those of another one still wait, whatever
// it writes into its requests. Pulls that ended make room.
func TestOneClientsPullsLeaveRoomForOthers(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			w := newWorld(t, 2)
			leader, other := w.nodes[0], w.nodes[0]
			if shards == 1 {
				other = w.nodes[1] // pulls from several shards wait where they are asked
				orders(t, w, leader, 0)
			} else {
				w.wide(shards, 0, 0)
			}
			for _, n := range w.nodes {
				n.config.Account = func(client uint64) string { return fmt.Sprint("10.0.0.", client) }
			}
			made := ask[struct{ Error any }](leader, "CONSUMER.CREATE.orders.many", `{"stream_name":"orders","config":{"durable_name":"many","max_waiting":100000000}}`)
			if made.Error != nil {
				t.Fatal(made.Error)
			}
			const room = 64 << 10
			leader.room = subscription.NewPullRoom(room)
			pulls := 0
			pull := func(n *node, client uint64) {
				pulls++
				header := "NATS/1.0\r\nCarillon-Account: 10.0.0.9\r\n\r\n"
				n.TakeOf(client, []protocol.Message{{
					Subject: []byte("$JS.API.CONSUMER.MSG.NEXT.orders.many"), Reply: fmt.Appendf(nil, "_INBOX.%d", pulls), Header: len(header),
					Data: []byte(header + `{"batch":1,"expires":60000000000}`),
				}}, nil, nil)
			}
			settled := func(client uint64, want int64) {
				t.Helper()
				testutil.EventuallyTrue(t, fmt.Sprintf("the pulls of client %d take %d bytes", client, want), func() bool {
					before := leader.Stats().TooMany
					pull(leader, client)
					return leader.Stats().TooMany > before && leader.Stats().PullBytes > want-1024 && leader.Stats().PullBytes <= want
				})
			}
			for range 100 {
				pull(leader, 1)
				pull(other, 1)
			}
			settled(1, room/2)
			for range 100 {
				pull(other, 2)
			}
			settled(2, room*3/4)
			before := leader.Stats().TooMany
			pull(leader, 3)
			if leader.Stats().TooMany != before {
				t.Error("a third client has no room")
			}
			if done := ask[jsapi.DoneResponse](leader, "CONSUMER.DELETE.orders.many", ""); !done.Success {
				t.Fatalf("%+v", done)
			}
			testutil.EventuallyTrue(t, "all pulls ended", func() bool { return leader.Stats().PullBytes == 0 })
		})
	}
}
