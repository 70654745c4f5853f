package topic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// TestScrubbingAfterACrashAndAfterARestart: after a crash a broker scrubs within minutes and finds
// what is damaged. After an orderly restart it scrubs when an hour is over, counted from the life
// before, and status says how old the oldest is.
func TestScrubbingAfterACrashAndAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSite(t)
		n.upkeep = 0
		n.serve("orders")
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 30 {
			// Random bytes are not worth compressing, which would write the segments again.
			data := make([]byte, 4000)
			for at := range data {
				data[at] = byte(random.Uint32())
			}
			n.ask("orders.a", fmt.Sprint(i, string(data)))
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		orderly := func() {
			t.Helper()
			_ = n.service.Close()
			n.exchange.Close()
			if err := n.disk.CloseMarked(nil); err != nil {
				t.Fatal(err)
			}
			n.service = nil
			n.serve("orders")
		}
		pass(40 * time.Minute)
		if s := n.service.ScrubStats(); s.Scrubbed > 0 {
			t.Fatalf("%+v before anything is due", s)
		}
		orderly()
		pass(10 * time.Minute)
		if s, age := n.service.ScrubStats(), n.service.Unscrubbed(); s.Scrubbed > 0 || age < 48*time.Minute || age > 51*time.Minute {
			t.Fatalf("%+v; the oldest is %v old", s, age)
		}
		pass(15 * time.Minute)
		if s, age := n.service.ScrubStats(), n.service.Unscrubbed(); s.Scrubbed == 0 || age > 15*time.Minute {
			t.Fatalf("%+v; the oldest is %v old", s, age)
		}
		// A crash: all is scrubbed again.
		n.crash()
		segments := n.segments()
		if err := n.fs.(*crashfs.FS).Flip("data/shards/id-orders-0/"+segments[len(segments)-2], 500*8); err != nil {
			t.Fatal(err)
		}
		n.serve("orders")
		pass(2 * time.Minute) // the scrubber begins after one
		s := n.service.ScrubStats()
		if s.Damages == 0 || n.service.Unscrubbed() > time.Minute+time.Second {
			t.Fatalf("%+v; the oldest is %v old", s, n.service.Unscrubbed())
		}
		n.stop()
	})
}
