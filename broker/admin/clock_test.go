package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
)

const year = 365 * 24 * time.Hour

// TestAClockIsConfirmed: the clock of a broker that starts a year after its last record is in doubt
// until an administrator confirms it.
func TestAClockIsConfirmed(t *testing.T) {
	state := coordination.NewState(3, []coordination.Broker{{ID: "a", Incarnation: 1, Name: "main-0"}, {ID: "b", Incarnation: 2, Name: "main-1"}}, nil, nil, nil)
	s, box := newServer(state)
	file := clock.File(t.TempDir() + "/clock.json")
	if err := file.Save(clock.Saved{Boot: "before", Time: time.Now().Add(-year).UnixNano(), Sure: true}); err != nil {
		t.Fatal(err)
	}
	s.Clock(clock.New(clock.Config{Store: file}))
	now := func(off time.Duration) string {
		text, err := json.Marshal(ConfirmClockRequest{Time: time.Now().Add(off)})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := ask[ClockInfo](t, s, box, BrokerClockSubject+"a", "")
	if is := before.Clock; before.Error != nil || before.Broker.Name != "main-0" || is.Doubt != clock.Implausible || is.Vote != "late" || is.Votes != 1 || is.Sure != 0 || is.Why == "" {
		t.Fatalf("a year later: %+v, %+v, %+v", before.Error, before.Broker, is)
	}
	for _, off := range []time.Duration{year, -year, 2 * clock.ConfirmWithin} {
		got := ask[ClockInfo](t, s, box, BrokerConfirmClockSubject+"a", now(off)).Error
		if got == nil || got.Code != Refused || !strings.Contains(got.Text, "from the expected") {
			t.Errorf("confirmed by a client whose clock is %v off: %+v", off, got)
		}
	}
	after := ask[ClockInfo](t, s, box, BrokerConfirmClockSubject+"a", now(clock.ConfirmWithin/2))
	if is := after.Clock; after.Error != nil || is.Doubt != clock.None || is.Vote != "sure" || is.Sure != 1 || is.Why != "" {
		t.Errorf("confirmed: %+v, %+v", after.Error, is)
	}
	if got := ask[ClockInfo](t, s, box, BrokerConfirmClockSubject+"a", now(0)); got.Error != nil || got.Clock.Doubt != clock.None {
		t.Errorf("confirmed again: %+v", got.Error)
	}

	// Other brokers answer for their clocks, and a forwarded request is not forwarded again.
	box.got = nil
	for _, forwarded := range []bool{false, true} {
		s.Take([]protocol.Message{{Subject: []byte(BrokerConfirmClockSubject + "b"), Reply: []byte("r"), Data: []byte(now(0))}}, nil, forwarded)
	}
	if !slices.Equal(box.forwarded, []string{"b " + BrokerConfirmClockSubject + "b"}) || len(box.got) != 1 || !strings.Contains(string(box.got[0].Data), string(Unavailable)) {
		t.Errorf("it forwarded %q and answered %d", box.forwarded, len(box.got))
	}
}
