package sender

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting counts the frames of a link.
type counting struct {
	Carrier
	frames atomic.Int64
}

func (c *counting) Carry(...[]byte) bool {
	c.frames.Add(1)
	return false
}

// TestSendersThatWaitSendAgainOnceAPause: however often each asks meanwhile.
func TestSendersThatWaitSendAgainOnceAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, w := &counting{}, &Waiting{}
		link := &Link{out: out}
		at := func() ID { return ID{TopicID: "t"} }
		for round := range int64(3) {
			for range 100 {
				for source := range uint64(2) {
					w.Add(Back{link: link, source: source})
					w.ReadySoon(time.Millisecond, at)
				}
			}
			time.Sleep(time.Millisecond - 1)
			if n := out.frames.Load(); n != 2*round {
				t.Errorf("in pause %d there are %d frames", round, n)
			}
			time.Sleep(time.Second)
			if n := out.frames.Load(); n != 2*(round+1) {
				t.Errorf("after pause %d there are %d frames", round, n)
			}
		}
	})
}
