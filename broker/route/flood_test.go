package route

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestBrokersFloodEachOthersClients: publishers at each of two brokers flood hundreds of
// subscriptions at both. Everything arrives: no reader of a link waits for the other link.
func TestBrokersFloodEachOthersClients(t *testing.T) {
	const receivers, publishers, messages = 300, 2, 1500
	ca := newAuthority(t)
	brokers := []*broker{startBroker(t, "a", ca), startBroker(t, "b", ca)}
	linkAll(t, brokers[0].testNode, brokers[1].testNode)
	dial := func(b *broker, text string) net.Conn {
		nc, err := net.Dial("tcp", strings.TrimPrefix(b.url, "nats://"))
		testutil.Must(t, err)
		t.Cleanup(func() { nc.Close() })
		testutil.Must(t, nc.SetDeadline(time.Now().Add(testutil.Patience)))
		_, err = io.WriteString(nc, "CONNECT {\"verbose\":false}\r\n"+text)
		testutil.Must(t, err)
		return nc
	}
	var subs strings.Builder
	for i := range receivers {
		fmt.Fprintf(&subs, "SUB flood %d\r\n", i)
	}
	subs.WriteString("PING\r\n")
	var reading sync.WaitGroup
	for _, b := range brokers {
		nc := bufio.NewReader(dial(b, subs.String()))
		for line := ""; line != "PONG\r\n"; { // the broker has all of them
			var err error
			line, err = nc.ReadString('\n')
			testutil.Must(t, err)
		}
		reading.Go(func() {
			buf, left := make([]byte, 1<<20), receivers*publishers*len(brokers)*messages
			for left > 0 {
				n, err := nc.Read(buf)
				if left -= bytes.Count(buf[:n], []byte{'!'}); err != nil {
					t.Errorf("%d messages are left: %v", left, err)
					return
				}
			}
			if left < 0 {
				t.Errorf("%d messages too many", -left)
			}
		})
	}
	brokers[0].knows(t, "b", 1, 0)
	brokers[1].knows(t, "a", 1, 0)
	flood := strings.Repeat("PUB flood 1\r\n!\r\n", messages)
	for _, b := range brokers {
		for range publishers {
			nc := dial(b, "")
			go io.Copy(io.Discard, nc)
			go io.WriteString(nc, flood)
		}
	}
	reading.Wait()
}
