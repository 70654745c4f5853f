package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// rows reads a file as lines of JSON, and the types of its columns.
func rows(t *testing.T, name string) (lines []string, types string, groups int) {
	t.Helper()
	f, err := os.Open(name)
	testutil.Must(t, err)
	defer func() { _ = f.Close() }()
	p, err := file.NewParquetReader(f)
	testutil.Must(t, err)
	properties := pqarrow.ArrowReadProperties{BatchSize: 1 << 20}
	r, err := pqarrow.NewFileReader(p, properties, memory.DefaultAllocator)
	testutil.Must(t, err)
	schema, err := r.Schema()
	testutil.Must(t, err)
	for n := range p.NumRowGroups() {
		tables, err := r.GetRecordReader(context.Background(), nil, []int{n})
		testutil.Must(t, err)
		for tables.Next() {
			groups++
			var b strings.Builder
			testutil.Must(t, array.RecordToJSON(tables.RecordBatch(), &b))
			lines = append(lines, strings.Split(strings.TrimSpace(b.String()), "\n")...)
		}
		if err := tables.Err(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	for _, f := range schema.Fields() {
		types += f.Name + ":" + f.Type.String() + " "
	}
	return lines, types, groups
}

// only fails unless a folder has these files only.
func only(t *testing.T, folder string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	testutil.Must(t, err)
	var got []string
	for _, e := range all {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the folder has %q, want %q", got, names)
	}
}

// TestMessagesAreWritten: what is written is read again, whatever it is, in several row groups.
func TestMessagesAreWritten(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	folder := t.TempDir()
	name := filepath.Join(folder, "orders.parquet")
	table, err := CreateMessages(name)
	testutil.Must(t, err)
	reused := []byte(`{"a": 1}`)
	testutil.Must(t, table.Append(&Message{
		Shard: 2, Offset: 1 << 60, Time: at, Subject: "a.b", Data: reused,
		Headers: map[string][]string{"K": {"v", "w"}},
	}))
	copy(reused, "  other ")
	reused = []byte{0xff, 0}
	testutil.Must(t, table.Append(&Message{Time: at, Subject: "a.c", Data: reused}))
	copy(reused, "no")
	testutil.Must(t, table.Append(&Message{
		Offset: 1 << 63, Time: at, Subject: "a.\xff", Data: []byte("\"\xff\""),
		Headers: map[string][]string{"\xff": {"\xff", ""}},
	}))
	testutil.Must(t, table.Append(&Message{Time: at, Headers: map[string][]string{"none": nil}}))
	for n := range maxRows {
		testutil.Must(t, table.Append(&Message{Offset: uint64(n), Time: at, Data: []byte("x")}))
	}
	if e, err := os.ReadDir(folder); err != nil || len(e) != 1 || !strings.HasPrefix(e[0].Name(), ".orders") {
		t.Errorf("before the end there are %v: %v", e, err)
	}
	testutil.Must(t, table.Finish())
	only(t, folder, "orders.parquet")
	lines, types, groups := rows(t, name)
	if groups < 2 || len(lines) != maxRows+4 || table.Rows() != maxRows+4 {
		t.Errorf("%d rows in %d groups", len(lines), groups)
	}
	for n, want := range []string{
		`"data":null,"headers":[{"key":"K","value":["v","w"]}],"json":"{\"a\": 1}","offset":1152921504606846976,"shard":2,"subject":"a.b","time":"2026-03-01T12:00:00.123456789Z"`,
		`"data":"/wA=","headers":[],"json":null,"offset":0,"shard":0,"subject":"a.c","time":"2026-03-01T12:00:00.123456789Z"`,
		// Texts of other encodings are no reason for a reader to refuse the file.
		`"data":"Iv8i","headers":[{"key":"�","value":["�",""]}],"json":null,"offset":9223372036854775808,"shard":0,"subject":"a.�","time":"2026-03-01T12:00:00.123456789Z"`,
		`"data":"","headers":[{"key":"none","value":[]}],"json":null,"offset":0,"shard":0,"subject":"","time":"2026-03-01T12:00:00.123456789Z"`,
	} {
		if lines[n] != "{"+want+"}" {
			t.Errorf("row %d is\n%s\nwant\n%s", n, lines[n], want)
		}
	}
	if want := "shard:int32 offset:uint64 time:timestamp[ns, tz=UTC] subject:utf8 headers:map<utf8, list<element: utf8>, items_non_nullable> json:utf8 data:binary "; types != want {
		t.Errorf("the columns are\n%s", types)
	}
}

// TestLargeRowsAreWrittenEarly: few rows are a group if they are large.
func TestLargeRowsAreWrittenEarly(t *testing.T) {
	name := filepath.Join(t.TempDir(), "orders.parquet")
	table, err := CreateMessages(name)
	testutil.Must(t, err)
	for n := range 5 {
		header := map[string][]string{"K": {strings.Repeat("h", maxBytes/4)}}
		data := bytes.Repeat([]byte{byte(n), 0xff}, maxBytes/8)
		testutil.Must(t, table.Append(&Message{Subject: "a", Headers: header, Data: data}))
	}
	testutil.Must(t, table.Finish())
	if lines, _, groups := rows(t, name); groups != 3 || len(lines) != 5 {
		t.Errorf("%d rows in %d groups, want 5 in 3", len(lines), groups)
	}
}

// TestHeadersAreWrittenByKey: the values of many headers stay with theirs.
func TestHeadersAreWrittenByKey(t *testing.T) {
	name := filepath.Join(t.TempDir(), "orders.parquet")
	table, err := CreateMessages(name)
	testutil.Must(t, err)
	for n := range 100 {
		headers := map[string][]string{}
		for k := range n % 7 {
			key := fmt.Sprint("k", k)
			for v := range (n + k) % 4 {
				headers[key] = append(headers[key], fmt.Sprint(key, "-", n, "-", v))
			}
		}
		testutil.Must(t, table.Append(&Message{Offset: uint64(n), Headers: headers}))
	}
	testutil.Must(t, table.Finish())
	lines, _, _ := rows(t, name)
	if len(lines) != 100 {
		t.Fatalf("%d rows", len(lines))
	}
	for n, line := range lines {
		var got struct {
			Headers []struct {
				Key   string
				Value []string
			}
		}
		testutil.Must(t, json.Unmarshal([]byte(line), &got))
		want, found := 0, 0
		for k := range n % 7 {
			if (n+k)%4 > 0 {
				want++
			}
		}
		for _, h := range got.Headers {
			k, err := strconv.Atoi(strings.TrimPrefix(h.Key, "k"))
			testutil.Must(t, err)
			var all []string
			for v := range (n + k) % 4 {
				all = append(all, fmt.Sprint(h.Key, "-", n, "-", v))
			}
			if slices.Equal(h.Value, all) {
				found++
			}
		}
		if found != want || len(got.Headers) != want {
			t.Errorf("row %d has %+v", n, got.Headers)
		}
	}
}

// TestResultsAreWritten: a column has the type of its values.
func TestResultsAreWritten(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	folder := t.TempDir()
	name := filepath.Join(folder, "sums.parquet")
	testutil.Must(t, os.WriteFile(name, []byte("an older one"), 0o600))
	table, err := CreateResults(name, []string{"start", "key", "mixed", "count()", "mean", "flag", "sum(a, b)"})
	testutil.Must(t, err)
	testutil.Must(t, table.Append([]any{at, "eu", 1.5, uint64(7), nil, true, nil}))
	testutil.Must(t, table.Append([]any{at, nil, "x", uint64(1 << 63), 0.25, nil, nil}))
	testutil.Must(t, table.Append([]any{at, nil, at, uint64(0), 1.0, false, nil}))
	testutil.Must(t, table.Finish())
	only(t, folder, "sums.parquet")
	lines, types, _ := rows(t, name)
	if want := `{"count()":9223372036854775808,"flag":null,"key":null,"mean":0.25,"mixed":"x","start":"2026-03-01T12:00:00Z","sum(a, b)":null}`; len(lines) != 3 || lines[1] != want || table.Rows() != 3 {
		t.Errorf("%q", lines)
	}
	if want := "start:timestamp[ns, tz=UTC] key:utf8 mixed:utf8 count():uint64 mean:float64 flag:bool sum(a, b):utf8 "; types != want {
		t.Errorf("the columns are\n%s", types)
	}
	if lines, _, _ := rows(t, name); !strings.Contains(lines[2], `"mixed":"2026-03-01T12:00:00Z"`) {
		t.Errorf("%q", lines)
	}
}

// TestAnUnfinishedFileLeavesNothing: one that had the name stays as it was.
func TestAnUnfinishedFileLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "orders.parquet")
	testutil.Must(t, os.WriteFile(name, []byte("an older one"), 0o600))
	messages, err := CreateMessages(name)
	testutil.Must(t, err)
	testutil.Must(t, messages.Append(&Message{Subject: "a"}))
	testutil.Must(t, messages.Abort())
	results, err := CreateResults(name, []string{"n"})
	testutil.Must(t, err)
	for n := range typingRows + 1 {
		testutil.Must(t, results.Append([]any{float64(n)}))
	}
	if err := results.Append([]any{"text"}); err == nil || !strings.Contains(err.Error(), `column "n" has the value text, which is no float64 as`) {
		t.Error(err)
	}
	testutil.Must(t, results.Abort())
	only(t, folder, "orders.parquet")
	if b, err := os.ReadFile(name); err != nil || string(b) != "an older one" {
		t.Errorf("%q: %v", b, err)
	}
	unused, err := CreateResults(name, nil)
	testutil.Must(t, err)
	testutil.Must(t, unused.Abort())
	for _, bad := range []string{"orders", "orders.csv", "orders.arrow", filepath.Join(folder, "none", "orders.parquet")} {
		if _, err := CreateMessages(bad); err == nil || !strings.Contains(err.Error(), filepath.Base(bad)) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	only(t, folder, "orders.parquet")
	if err := Valid("x.parquet"); err != nil {
		t.Error(err)
	}
}
