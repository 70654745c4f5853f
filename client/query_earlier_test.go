package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// startEarlier runs a server that answers requests for live queries as brokers of the versions do
// that have none. It tells of requests.
func startEarlier(t *testing.T) (address string, requests <-chan struct{}) {
	told := make(chan struct{}, 1)
	address = startFake(t, func(a asked) {
		if a.subject != "$CARILLON.API.QUERY.OPEN" {
			return
		}
		const answer = `{"error":{"code":"BadRequest","text":"there is no request \"QUERY.OPEN\" (use TOPIC.LIST)"}}`
		_, _ = fmt.Fprintf(a.conn, "MSG %s %s %d\r\n%s\r\n", a.reply, a.sid, len(answer), answer)
		select {
		case told <- struct{}{}:
		default:
		}
	})
	return address, told
}

// TestABrokerOfAnEarlierVersionOpensNoLiveQuery: the program learns that, and not that its
// condition is wrong.
func TestABrokerOfAnEarlierVersionOpensNoLiveQuery(t *testing.T) {
	address, _ := startEarlier(t)
	if _, err := client.Query(within(t), connect(t, address), client.QueryOptions{}); !errors.Is(err, client.ErrNotCarillon) {
		t.Errorf("it is %v", err)
	}
}

// TestALiveQueryOutlivesAnEarlierVersion: in a rolling change its connection comes to a broker
// without live queries. It goes on when that is changed, or at another one.
func TestALiveQueryOutlivesAnEarlierVersion(t *testing.T) {
	address, _ := newCluster(t).broker("main-0", "127.0.0.1:0", t.TempDir())
	earlier, requests := startEarlier(t)
	other := connect(t, address)
	change(t, other, "a=410")
	nc, err := nats.Connect("nats://"+address+",nats://"+earlier, nats.DontRandomize(), nats.IgnoreDiscoveredServers(),
		nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	testutil.Must(t, err)
	defer nc.Close()
	q, err := client.Query(within(t), nc, client.QueryOptions{})
	testutil.Must(t, err)
	defer q.Close()
	wantWords(t, events(t, q, client.EventReady), "new:a")
	testutil.Must(t, nc.ForceReconnect())
	for range 2 { // it asks again
		select {
		case <-requests:
		case <-within(t).Done():
			t.Fatal("nobody asks the earlier version")
		}
	}
	change(t, other, "b=410")
	testutil.Must(t, nc.ForceReconnect())
	wantWords(t, untilMembers(t, q, "a b"), "new:b")
}
