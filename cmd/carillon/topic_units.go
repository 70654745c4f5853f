package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// sizeFlag is a number of bytes: 512, 10Ki, 1.5GiB, 2GB.
type sizeFlag int64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"", 1},
}

func (s *sizeFlag) Set(text string) error {
	number, unit := strings.TrimSuffix(text, "B"), float64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(n) || n*unit < 1 || n*unit >= math.MaxInt64 || strings.ContainsAny(number, "eExXpP_") {
		return fmt.Errorf("write a number of bytes, for example 512Mi or 10Gi")
	}
	*s = sizeFlag(n * unit)
	return nil
}

func (s *sizeFlag) Type() string { return "SIZE" }

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return bytesText(uint64(*s))
}

// ageFlag is a duration that may be in days: 90s, 12h, 7d.
type ageFlag time.Duration

func (a *ageFlag) Set(text string) error {
	d, err := parseAge(text)
	if err != nil {
		return err
	}
	*a = ageFlag(d)
	return nil
}

func parseAge(text string) (time.Duration, error) {
	const day, longest = 24 * time.Hour, 100 * 365
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err == nil && n > 0 && n <= longest {
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d > 0 && d <= longest*day {
		return d, nil
	}
	return 0, fmt.Errorf("write a time like 90s, 12h or 7d")
}

func (a *ageFlag) Type() string { return "DURATION" }

func (a *ageFlag) String() string {
	if *a == 0 {
		return ""
	}
	return durationText(time.Duration(*a))
}

// durationText returns a duration without the zeros of 168h0m0s, and whole days in days.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// agoText returns the time since a moment, in kubectl's form.
func agoText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(time.Since(t), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// timeText returns a time to the second.
func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), agoText(t))
}

func bytesText(n uint64) string {
	unit := ""
	f := float64(n)
	for _, unit = range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 || unit == "TiB" {
			break
		}
		f /= 1024
	}
	if f == math.Trunc(f) {
		return fmt.Sprintf("%.0f %s", f, unit)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// printTable prints rows in columns. The first row is the header.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}
