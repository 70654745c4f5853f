package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
)

func TestWhatIsDeletedSoonIsInTheOldestTenth(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	segments := []log.SegmentInfo{
		{Base: 1, End: 101, Bytes: 1000, Last: now.Add(-55 * time.Minute)},
		{Base: 101, End: 201, Bytes: 1000, Last: now.Add(-20 * time.Minute)},
		{Base: 201, End: 301, Bytes: 1000, Last: now, Active: true},
	}
	var removed removal.Set
	for _, c := range []struct {
		policy log.Retention
		offset uint64
		was    bool
		want   string
	}{
		{log.Retention{}, 1, false, ""},
		{log.Retention{Age: time.Hour}, 100, false, "in 5m0s"},
		{log.Retention{Age: time.Hour}, 101, false, ""},
		{log.Retention{Age: 50 * time.Minute}, 1, false, "in 0s"},
		{log.Retention{Bytes: 3000}, 1, false, "3000 of the 3000 bytes"},
		{log.Retention{Bytes: 3000}, 101, false, ""},
		{log.Retention{Bytes: 100}, 250, false, ""}, // the active segment is not deleted by bytes
		{log.Retention{Messages: 300}, 30, false, "271 of the 300 messages"},
		{log.Retention{Messages: 300}, 31, false, ""},
		{log.Retention{Messages: 300}, 60, true, "241 of the 300 messages"}, // it ends behind a fifth
		{log.Retention{Messages: 300}, 61, true, ""},
		{log.Retention{Age: time.Hour}, 1, true, "in 5m0s"},
		{log.Retention{Age: 68 * time.Minute}, 1, false, ""},
		{log.Retention{Age: 68 * time.Minute}, 1, true, "in 13m0s"},
		{log.Retention{Age: 69 * time.Minute}, 1, true, ""},
		{log.Retention{Bytes: 3600}, 1, true, "3000 of the 3600 bytes"},
		{log.Retention{Bytes: 3600}, 1, false, ""},
		{log.Retention{Age: time.Hour, Bytes: 1, Messages: 1}, 301, false, ""}, // nothing is there yet
	} {
		got := Soon(segments, c.policy, &removed, 301, c.offset, now, c.was)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v, offset %d, before %v: %q, want %q", c.policy, c.offset, c.was, got, c.want)
		}
	}
}
