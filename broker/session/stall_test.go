package session

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
)

// TestALargeMessageWaitsForItsSlowReceiver: a message with a claim goes to a receiver that is close
// to its bound and whose loop is behind. The publisher waits for the loop, and then for the
// receiver, as without the loop's delay.
func TestALargeMessageWaitsForItsSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHubOf(t, 2)
		defer h.Close()
		near, far := net.Pipe() // loop 1
		defer near.Close()
		go func() { _, _ = io.CopyN(io.Discard, near, 1<<10) }()
		h.accept(far, false)
		_, _ = io.WriteString(near, "CONNECT {\"verbose\":false}\r\nSUB a 1\r\n")
		synctest.Wait()
		slow := h.list()[0]
		publisher := piped(t, h) // loop 0
		slow.nearBound.Store(true)
		const many, size = 2 * limits.LoopDeliveries, 1 << 20
		h.loops[1].push(nil, many, 0)
		publisher(fmt.Sprintf("PUB a %d\r\n%s\r\n", size, strings.Repeat("x", size)))
		slow.nearBound.Store(true) // what is parked now is below the bound
		h.loops[1].served(many, 0)
		synctest.Wait()
		next := publisher("PING\r\n")
		if next.Load() {
			t.Error("the publisher does not wait for its receiver")
		}
		time.Sleep(limits.StallSteps * limits.StallStep)
		if synctest.Wait(); !next.Load() {
			t.Error("the publisher still waits")
		}
	})
}
