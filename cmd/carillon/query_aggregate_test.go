package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestQueriesComputeResults: of the messages of all shards, by key and window; what is wrong with
// them is said with its column.
func TestQueriesComputeResults(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 3")
	begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for n := range 40 {
		at := begin.Add(time.Duration(n*7%40) * time.Second).Format(time.RFC3339)
		s.does(fmt.Sprintf("pub --ack orders.%d", n), fmt.Sprintf(`{"at": %q, "region": %q, "total": 0.1, "user": %d}`, at, []string{"eu", "us"}[n%2], n%6))
	}
	s.does("pub --ack orders.note", "no JSON")
	s.does("pub --ack orders.free", fmt.Sprintf(`{"at": %q, "region": "eu"}`, begin.Format(time.RFC3339)))

	s.prints(`{"json.region":"eu","count()":21,"total":2,"p99(json.total)":0.1,"distinct(json.user)":3}
{"json.region":"us","count()":20,"total":2,"p99(json.total)":0.1,"distinct(json.user)":3}
`, "query orders --by json.region --aggregate", "count(), sum(json.total) as total, p99(json.total), distinct(json.user)")
	out, said, code := s.types("", "query orders --by json.region --aggregate", "sum(json.total)", "--where", "subject != 'orders.1'")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(said, "41 of 42 messages match\n") ||
		!strings.Contains(said, "missing from the results: 0 messages without a time, 1 without a key, and 1 values; of the first one: json.") {
		t.Errorf("exit code %d\n%s%s", code, out, said)
	}
	const windows = `{"start":"2026-01-31T12:00:00Z","end":"2026-01-31T12:00:20Z","count()":21}
{"start":"2026-01-31T12:00:20Z","end":"2026-01-31T12:00:40Z","count()":20}
`
	s.prints(windows, "query orders --aggregate count() --time json.at --window 20s")
	out = s.does("query orders --aggregate count() --time json.at --window 20s --output table")
	if lines := strings.Split(out, "\n"); len(lines) != 4 || lines[0] != "START                     END                       count()" || lines[2] != "2026-01-31T12:00:20Z      2026-01-31T12:00:40Z      20" {
		t.Errorf("printed\n%s", out)
	}
	if got := s.does("query orders --aggregate count() --time json.at --session 1s --by json.region"); strings.Count(got, "\n") != 40 { // each region has a message each two seconds
		t.Errorf("printed\n%s", got)
	}
	if got := s.does("query orders --aggregate count() --time json.at --window 20s --slide 10s"); strings.Count(got, "\n") != 5 {
		t.Errorf("printed\n%s", got)
	}
	s.prints("{\"count()\":7}\n", "query orders --aggregate count() --count 7")
	s.prints("", "query orders --aggregate count() --where false")

	folder := t.TempDir()
	file := filepath.Join(folder, "orders.parquet")
	if _, said, code := s.types("", "query orders --where json.region=='eu' --output-file", file); code != 0 || !strings.HasPrefix(said, "21 rows in "+file) {
		t.Errorf("exit code %d: %s", code, said)
	}
	parquet, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(parquet), "PAR1") || !strings.HasSuffix(string(parquet), "PAR1") {
		t.Errorf("%d bytes: %v", len(parquet), err)
	}
	if _, said, code := s.types("", "query orders --aggregate count() --by json.region --output-file", filepath.Join(folder, "sums.parquet")); code != 0 || !strings.HasPrefix(said, "2 rows in ") {
		t.Errorf("exit code %d: %s", code, said)
	}
	s.fails(2, `"orders.csv": files are written as Parquet only`, "query orders --output-file orders.csv")
	s.fails(2, `--output-file: "x.arrow": files are written as Parquet only, so end the name with .parquet`, "query orders --output-file x.arrow")
	s.fails(2, "--output-file and --follow", "query orders --follow --output-file", file)
	s.fails(1, `there is no topic "nobody"`, "query nobody --output-file", file)
	if again, err := os.ReadFile(file); err != nil || string(again) != string(parquet) {
		t.Errorf("a query that failed changed the file: %v", err)
	}

	// One that is interrupted leaves nothing.
	waiting := exec.Command(os.Args[0], "query", "orders", "--follow", "--count", "1000", "--output-file", filepath.Join(folder, "none.parquet"), "--timeout", patient, "--server", dev.url)
	waiting.Env = append(os.Environ(), asCarillon+"=1")
	var why strings.Builder
	waiting.Stderr = &why
	testutil.Must(t, waiting.Start())
	testutil.EventuallyTrue(t, "the file is begun", func() bool { return len(names(t, folder)) == 3 })
	testutil.Must(t, waiting.Process.Signal(os.Interrupt))
	if err := waiting.Wait(); err == nil || !strings.Contains(why.String(), "interrupted: no file was written") {
		t.Errorf("%v: %s", err, why.String())
	}
	if got := strings.Join(names(t, folder), " "); got != "orders.parquet sums.parquet" {
		t.Errorf("there are %s", got)
	}

	s.fails(2, `--aggregate "count(), sum(json.total +)": column 26: Syntax error`, "query orders --aggregate", "count(), sum(json.total +)")
	s.fails(2, `--aggregate "avg(json.total)": column 1: there is no function "avg"`, "query orders --aggregate avg(json.total)")
	s.fails(2, `--by "json.region, x": column 14: undeclared reference to 'x'`, "query orders --aggregate count() --by", "json.region, x")
	s.fails(2, "--window: a slide of 2m0s is longer", "query orders --aggregate count() --window 1m --slide 2m")
	s.fails(2, "--window without --aggregate", "query orders --window 1m")
	s.fails(2, "--output raw and --aggregate", "query orders --aggregate count() --output raw")
	s.fails(2, "--lateness -1s", "query orders --aggregate count() --lateness -1s")
}

// names returns the names of a folder's files.
func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	testutil.Must(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestAQueryThatFollowsPrintsCompleteWindows: a window is printed once its time is over, also of a
// shard without messages, and never before.
func TestAQueryThatFollowsPrintsCompleteWindows(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	s.does("topic create orders --shards 2")
	following := exec.Command(os.Args[0], "query", "orders", "--aggregate", "count()", "--window", "1s", "--follow", "--timeout", patient, "--server", dev.url)
	following.Env = append(os.Environ(), asCarillon+"=1")
	out, err := following.StdoutPipe()
	testutil.Must(t, err)
	testutil.Must(t, following.Start())
	giveUp := time.AfterFunc(3*testutil.Patience, func() { _ = following.Process.Kill() })
	defer giveUp.Stop()
	begun := time.Now()
	for n := range 30 {
		s.does("pub --ack orders.x", fmt.Sprint(n)) // the other shard stays empty
	}
	sum := 0
	for windows := json.NewDecoder(out); sum < 30; {
		var w struct {
			Start, End time.Time
			Count      int `json:"count()"`
		}
		if err := windows.Decode(&w); err != nil {
			t.Fatalf("after %d messages: %v", sum, err)
		}
		if w.End.Sub(w.Start) != time.Second || time.Now().Before(w.End) || w.End.Before(begun) || w.Count < 1 {
			t.Errorf("printed at %s: %+v", time.Now(), w)
		}
		sum += w.Count
	}
	if sum != 30 {
		t.Errorf("%d messages in all windows", sum)
	}
	testutil.Must(t, following.Process.Signal(os.Interrupt))
	if err := following.Wait(); err != nil {
		t.Error(err)
	}
}
