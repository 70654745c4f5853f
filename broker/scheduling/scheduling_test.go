package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// TestNextTimes: each pattern's times after one, as RFC 3339 has them, also around the changes of
// clocks.
func TestNextTimes(t *testing.T) {
	for _, test := range []struct{ pattern, zone, after, want string }{
		{"@at 2030-01-02T03:04:05Z", "", "2026-01-01T00:00:00Z", "2030-01-02T03:04:05Z"},
		{"@at 2020-01-02T03:04:05+01:00", "", "2026-01-01T00:00:00Z", "2020-01-02T02:04:05Z"},
		{"@every 90s", "", "2026-01-01T00:00:00.6Z", "2026-01-01T00:01:31Z 2026-01-01T00:03:01Z"},
		{"* * * * * *", "", "2026-01-01T00:00:00.9Z", "2026-01-01T00:00:01Z 2026-01-01T00:00:02Z"},
		{"0 30 9-17/4 * * mon-fri", "", "2026-01-02T09:30:00Z", "2026-01-02T13:30:00Z 2026-01-02T17:30:00Z 2026-01-05T09:30:00Z"},
		{"15,45 59 23 31 * *", "", "2026-01-31T23:59:45Z", "2026-03-31T23:59:15Z 2026-03-31T23:59:45Z"},
		{"0 0 0 29 feb ?", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 0 13 * fri", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-09T00:00:00Z 2026-01-13T00:00:00Z"}, // one of both
		{"0 0 0 */2 * fri", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z 2026-01-03T00:00:00Z"},
		{"0 0/20 1 * * *", "", "2026-01-01T01:40:00Z", "2026-01-02T01:00:00Z"},
		{"@yearly", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@monthly", "", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"@weekly", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"@hourly", "Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z"},
		// 02:30 does not exist on March 29, and exists twice on October 25.
		{"0 30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-28T01:30:00Z 2026-03-30T00:30:00Z"},
		{"0 30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T01:30:00Z 2026-10-26T01:30:00Z"},
		{"0 0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z 2026-03-29T02:00:00Z"},
		{"@daily", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z 2026-03-09T04:00:00Z"},
		{"@daily", "Africa/Cairo", "2026-04-22T12:00:00Z", "2026-04-22T22:00:00Z 2026-04-24T21:00:00Z"}, // no midnight on April 24
		{"0 0 2 * * *", "Australia/Lord_Howe", "2026-10-02T00:00:00Z", "2026-10-02T15:30:00Z 2026-10-04T15:00:00Z"},
	} {
		var zone []byte
		if test.zone != "" {
			zone = []byte(test.zone)
		}
		s, why := Parse(test.pattern, zone)
		if why != None {
			t.Errorf("%s: %d", test.pattern, why)
			continue
		}
		at, err := time.Parse(time.RFC3339, test.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		after := at.UnixNano()
		for range strings.Fields(test.want) {
			next, ok := s.Next(after, after)
			got = append(got, time.Unix(0, next).UTC().Format(time.RFC3339))
			if after = next; !ok {
				t.Errorf("%s has no next time", test.pattern)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s in %s after %s: %s, want %s", test.pattern, test.zone, test.after, strings.Join(got, " "), test.want)
		}
	}
}

// TestTimesThatPassedCountOnce: after a day nothing is made up for but the next time.
func TestTimesThatPassedCountOnce(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := due.Add(24*time.Hour + 300*time.Millisecond)
	for pattern, want := range map[string]string{"@every 10s": "2026-01-02T00:00:10Z", "@hourly": "2026-01-02T01:00:00Z", "*/10 * * * * *": "2026-01-02T00:00:10Z"} {
		s, _ := Parse(pattern, nil)
		next, _ := s.Next(due.UnixNano(), now.UnixNano())
		if got := time.Unix(0, next).UTC().Format(time.RFC3339); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

// TestInvalidPatterns: each is refused with its reason, without a panic.
func TestInvalidPatterns(t *testing.T) {
	for _, pattern := range []string{
		"", "@at", "@at ", "@at 2026-01-01", "@at 0001-01-01T00:00:00Z", "@at 9999-01-01T00:00:00Z", "@every 1", "@every 999ms", "@every -1h", "@weekend", "* * * * *", "* * * * * * *",
		"60 * * * * *", "* 60 * * * *", "* * 24 * * *", "* * * 0 * *", "* * * 32 * *", "* * * * 0 *", "* * * * 13 *", "* * * * * 7", "5-1 * * * * *", "1-2-3 * * * * *",
		"*/0 * * * * *", "*/2/2 * * * * *", "a * * * * *", ", * * * * *", "-1 * * * * *", "*/-1 * * * * *", "* * * * foo *", strings.Repeat("0", maxPattern) + " * * * * *",
	} {
		if _, why := Parse(pattern, nil); why != BadPattern {
			t.Errorf("%q: %d", pattern, why)
		}
	}
	for _, zone := range []string{"", "Local", "Europe/Nowhere", "../etc/passwd"} {
		if _, why := Parse("@daily", []byte(zone)); why != BadZone {
			t.Errorf("zone %q: %d", zone, why)
		}
	}
	never, _ := Parse("0 0 0 30 2 *", nil)
	if next, ok := never.Next(0, 0); ok {
		t.Errorf("February 30 comes at %d", next)
	}
}

// TestOnlyThisProcessFires: what a message says of its schedule is read back, and not if a client
// says it.
func TestOnlyThisProcessFires(t *testing.T) {
	q := &Request{Target: []byte("b"), TTL: []byte("1h"), Rollup: []byte("sub"), Zone: []byte("Asia/Kolkata")}
	header := "NATS/1.0\r\nNats-Schedule: @daily\r\nNats-Schedule-Target: b\r\nNats-Rollup: sub\r\nNats-TTL: 5s\r\nNats-Msg-Id: x\r\nNats-Expected-Stream: s\r\nMine: yes\r\n\r\n"
	f := Firing{Offset: 7, Due: 5, Next: 1e18}
	m := Result(f, q, []byte("a"), []byte(header), []byte("data"))
	value, _ := protocol.Header(m.Data[:m.Header]).Get(Header)
	got, ok := ParseFiring(value)
	f.Inner = got.Inner
	if !ok || got != f || string(m.Subject) != "b" {
		t.Errorf("%+v %v", got, ok)
	}
	const want = "NATS/1.0\r\nMine: yes\r\nNats-Scheduler: a\r\nNats-Schedule-Next: 2001-09-09T07:16:40+05:30\r\nNats-TTL: 1h\r\nNats-Rollup: sub\r\n\r\ndata"
	if inner := string(m.Data[m.Header:]); inner != want || got.Inner != len(want)-4 {
		t.Errorf("%q", inner)
	}
	for _, forged := range []string{"", "x 7 5 0 3", "x", strings.Replace(string(value), " 7 ", " seven ", 1), string(value) + " 1", strings.ToLower(string(value))} {
		if _, ok := ParseFiring([]byte(forged)); ok {
			t.Errorf("%q is believed", forged)
		}
	}
	again := Result(Firing{Offset: 8}, q, []byte("a"), nil, nil)
	if !strings.Contains(string(again.Data), "Nats-Schedule-Next: purge\r\n") {
		t.Errorf("%q", again.Data)
	}
}

// TestPatternsNeverTakeLong: the longest search ends.
func TestPatternsNeverTakeLong(t *testing.T) {
	for month := 1; month <= 12; month++ {
		for day := 1; day <= 31; day++ {
			c, ok := parseCron(fmt.Sprintf("59 59 23 %d %d *", day, month))
			if !ok {
				t.Fatal(day, month)
			}
			at, ok := c.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			exists := day <= 28 || day <= 29 && month == 2 || time.Date(2026, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() == day
			if ok != exists || ok && (at.Day() != day || int(at.Month()) != month) {
				t.Errorf("%d.%d.: %v %v", day, month, at, ok)
			}
		}
	}
}
