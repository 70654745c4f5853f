package push

import (
	"testing"
	"time"
)

func same(d time.Duration) time.Duration { return d }

func TestACircuitOpensProbesAndCloses(t *testing.T) {
	c := circuit{jitter: same}
	now := int64(0)
	allows := func(underWay int, ok, probe bool) {
		t.Helper()
		if gotOK, gotProbe := c.allows(now, underWay); gotOK != ok || ok && gotProbe != probe {
			t.Errorf("at %s with %d under way it allows %v, probe %v", time.Duration(now), underWay, gotOK, gotProbe)
		}
	}
	for range circuitFailures - 1 {
		c.failed(now, false, false, 0)
	}
	allows(3, true, false)
	c.worked(true) // failures count in a row only
	for range circuitFailures - 1 {
		c.failed(now, false, false, 0)
	}
	allows(3, true, false)
	if wasOpen := c.failed(now, false, false, 0); wasOpen {
		t.Error("the failure that opens it was with an open circuit")
	}
	allows(0, false, false)
	if wasOpen := c.failed(now, false, false, 0); !wasOpen || c.pause != circuitFirst {
		t.Errorf("a request that was under way changes an open circuit: %v, %s", wasOpen, c.pause)
	}
	pause := circuitFirst
	for range 10 {
		now += int64(pause) - 1
		allows(0, false, false)
		now++
		allows(1, false, false)
		allows(0, true, true)
		c.failed(now, true, false, 0)
		pause = min(2*pause, circuitLast)
		if c.pause != pause {
			t.Fatalf("the pause is %s, want %s", c.pause, pause)
		}
	}
	c.worked(true)
	allows(5, true, false)
}

func TestAnEndpointThatAsksToWaitIsLeftAlone(t *testing.T) {
	c := circuit{jitter: same}
	c.failed(0, false, false, 7*time.Second)
	if ok, _ := c.allows(int64(7*time.Second)-1, 0); ok {
		t.Error("a request begins before the time that the endpoint asked for")
	}
	if ok, probe := c.allows(int64(7*time.Second), 0); !ok || !probe {
		t.Error("no probe after that time")
	}
	c.failed(0, false, false, 1000*time.Hour)
	if c.until != int64(retryAfterLast) {
		t.Errorf("it waits until %s", time.Duration(c.until))
	}
	if c.worked(false); !c.open {
		t.Error("a request that was under way ends the pause that was asked for")
	}
	if c.worked(true); c.open {
		t.Error("the probe does not end the pause")
	}
	c = circuit{jitter: same}
	c.failed(0, false, true, 0)
	if !c.open || c.until != int64(circuitLast) {
		t.Errorf("an endpoint that is gone is tried again after %s", time.Duration(c.until))
	}
}
