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
		want   string
	}{
		{log.Retention{}, 1, ""},
		{log.Retention{Age: time.Hour}, 100, "in 5m0s"},
		{log.Retention{Age: time.Hour}, 101, ""},
		{log.Retention{Age: 50 * time.Minute}, 1, "in 0s"},
		{log.Retention{Bytes: 3000}, 1, "3000 of the 3000 bytes"},
		{log.Retention{Bytes: 3000}, 101, ""},
		{log.Retention{Bytes: 100}, 250, ""}, // the active segment is not deleted by bytes
		{log.Retention{Messages: 300}, 30, "271 of the 300 messages"},
		{log.Retention{Messages: 300}, 31, ""},
		{log.Retention{Age: time.Hour, Bytes: 1, Messages: 1}, 301, ""}, // nothing is there yet
	} {
		got := Soon(segments, c.policy, &removed, 301, c.offset, now)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v, offset %d: %q, want %q", c.policy, c.offset, got, c.want)
		}
	}
}
