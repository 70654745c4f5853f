package scheduling

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is a pattern of six fields: second, minute, hour, day of the month, month, day of the week.
// Bit n of a field means that n matches.
type cron struct {
	second, minute, hour, day, month, weekday uint64
	// everyDay and everyWeekday say that the field restricts nothing. If both restrict, one of them
	// has to match.
	everyDay, everyWeekday bool
}

var (
	monthNames   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// shortcuts are patterns with names.
var shortcuts = map[string]string{
	"@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 0 * * 0",
	"@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}

func parseCron(pattern string) (c cron, ok bool) {
	if long := shortcuts[pattern]; long != "" {
		pattern = long
	}
	fields := strings.Fields(pattern)
	if len(fields) != 6 {
		return c, false
	}
	var unused bool
	for i, f := range []struct {
		to          *uint64
		every       *bool
		least, most int
		names       []string
	}{
		{&c.second, &unused, 0, 59, nil}, {&c.minute, &unused, 0, 59, nil}, {&c.hour, &unused, 0, 23, nil},
		{&c.day, &c.everyDay, 1, 31, nil}, {&c.month, &unused, 1, 12, monthNames}, {&c.weekday, &c.everyWeekday, 0, 6, weekdayNames},
	} {
		for part := range strings.SplitSeq(fields[i], ",") {
			if part == "" {
				continue
			}
			set, every, ok := parsePart(part, f.least, f.most, f.names)
			if !ok {
				return c, false
			}
			*f.to, *f.every = *f.to|set, *f.every || every
		}
		if bits.OnesCount64(*f.to) == 0 {
			return c, false
		}
	}
	return c, true
}

// parsePart parses *, ?, a value or a range, perhaps with a step. A value with a step means from
// the value on.
func parsePart(part string, least, most int, names []string) (set uint64, every, ok bool) {
	span, by, stepped := strings.Cut(part, "/")
	step := 1
	if stepped {
		if step, ok = value(by, least, nil); !ok || step == 0 {
			return 0, false, false
		}
	}
	low, high := least, most
	if span == "*" || span == "?" {
		every = step == 1
	} else {
		from, to, ranged := strings.Cut(span, "-")
		if low, ok = value(from, least, names); !ok {
			return 0, false, false
		}
		switch {
		case ranged:
			if high, ok = value(to, least, names); !ok {
				return 0, false, false
			}
		case !stepped:
			high = low
		}
	}
	if low < least || high > most || low > high {
		return 0, false, false
	}
	for n := low; n <= high; n += step {
		set |= 1 << n
	}
	return set, every, true
}

// value parses a number or a name; the first name stands for least.
func value(text string, least int, names []string) (int, bool) {
	for i, name := range names {
		if strings.EqualFold(text, name) {
			return least + i, true
		}
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0
}

// next returns the first time behind t that matches; ok is false if there is none for years.
func (c *cron) next(t time.Time) (next time.Time, ok bool) {
	t = t.Truncate(time.Second).Add(time.Second)
	for last := t.Year() + farthest; t.Year() <= last; {
		year, month, day := t.Date()
		hour, minute, second := t.Clock()
		to := t
		switch {
		case c.month>>month&1 == 0:
			to = time.Date(year, month+1, 1, 0, 0, 0, 0, t.Location())
		case !c.onDay(t):
			to = time.Date(year, month, day+1, 0, 0, 0, 0, t.Location())
		case c.hour>>hour&1 == 0: // by time that passes: an hour of the day may not exist
			to = t.Add(time.Hour - time.Duration(minute)*time.Minute - time.Duration(second)*time.Second)
		case c.minute>>minute&1 == 0:
			to = t.Add(time.Minute - time.Duration(second)*time.Second)
		case c.second>>second&1 == 0:
			to = t.Add(time.Second)
		default:
			return t, true
		}
		if !to.After(t) { // midnight doesn't exist on that day
			to = t.Add(time.Hour - time.Duration(minute)*time.Minute - time.Duration(second)*time.Second)
		}
		t = to
	}
	return t, false
}

func (c *cron) onDay(t time.Time) bool {
	day, weekday := c.day>>t.Day()&1 == 1, c.weekday>>t.Weekday()&1 == 1
	if c.everyDay || c.everyWeekday {
		return day && weekday
	}
	return day || weekday
}
