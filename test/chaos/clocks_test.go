//go:build e2e && linux

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAllClocksLeap: the clocks of all brokers are wrong by a year, forward or back, and all
// brokers are killed meanwhile. The time is in doubt: nothing expires by its age, and no message
// that is published again is kept twice. When the clocks are right again, they are confirmed by
// hand, and the doubt ends.
func TestAllClocksLeap(t *testing.T) {
	program, err := binary()
	testutil.Must(t, err)
	t.Logf("CHAOS_SEED=%d", seed)
	w := begin(t, usually(program, noBroker))
	for _, by := range []time.Duration{leap, -leap, 0} {
		leaps := Step{Kind: Clock, Nodes: from(0, founders)}
		for range leaps.Nodes {
			leaps.Shifts = append(leaps.Shifts, by)
		}
		testutil.Must(t, w.inflict(leaps))
		testutil.Must(t, w.clocks(func(c *admin.BrokerClock) error {
			if off := time.Until(c.Clock); (off-by).Abs() > time.Minute || c.Doubt == clock.None {
				return fmt.Errorf("its clock is %v off, and it doubts the time: %q", off, c.Doubt)
			}
			return nil
		}))
		if by != 0 {
			testutil.Must(t, w.suffer(Round{{Kind: Kill, For: time.Second, Nodes: from(0, founders)}}))
		}
	}
	for n := range founders {
		m, err := w.memberAt(n)
		testutil.Must(t, err)
		_, err = ask[admin.ClockInfo](w.cluster, admin.BrokerConfirmClockSubject+m.ID, admin.ConfirmClockRequest{Time: time.Now()})
		testutil.Must(t, err)
	}
	testutil.Must(t, w.clocks(func(c *admin.BrokerClock) error {
		if off := time.Until(c.Time).Abs(); c.Doubt != clock.None || off > time.Minute {
			return fmt.Errorf("the time is %v off, in doubt: %q", off, c.Doubt)
		}
		return nil
	}))
	testutil.Must(t, w.recovers())
	for _, err := range w.judge() {
		t.Error(err)
	}
}

// clocks waits until the clocks of all brokers satisfy ok.
func (c *cluster) clocks(ok func(*admin.BrokerClock) error) error {
	return within(patience, "the brokers' clocks", func() error {
		for n := range founders {
			m, err := c.memberAt(n)
			if err != nil {
				return err
			}
			is, err := ask[admin.ClockInfo](c, admin.BrokerClockSubject+m.ID, nil)
			if err == nil {
				err = ok(is.Clock)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", nodeName(n), err)
			}
		}
		return nil
	})
}
